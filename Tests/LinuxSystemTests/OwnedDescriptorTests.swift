import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

/// Whether the number is an open descriptor.
func isOpen(_ descriptor: CInt) -> Bool { fcntl(descriptor, F_GETFD) != -1 }

func makePipe() throws -> (reader: OwnedDescriptorBox, writer: OwnedDescriptorBox) {
    var ends: [CInt] = [-1, -1]
    _ = try systemCall("pipe") { pipe(&ends) }
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    return (OwnedDescriptorBox(ends[0]), OwnedDescriptorBox(ends[1]))
}

/// An owned descriptor that can be in a tuple.
final class OwnedDescriptorBox {
    private var owned: OwnedDescriptor?
    let rawValue: CInt

    init(_ rawValue: CInt) {
        owned = OwnedDescriptor(adopting: rawValue)
        self.rawValue = rawValue
    }

    func close() { owned = nil }
}

@Suite struct OwnedDescriptorTests {
    @Test func isClosedByItsOwnersEnd() throws {
        let (reader, writer) = try makePipe()
        do {
            let owned = try OwnedDescriptor(duplicating: writer.rawValue)
            writer.close()
            #expect(Poll.now(reader.rawValue) == [])
            #expect(isOpen(owned.rawValue))
        }
        #expect(Poll.now(reader.rawValue) == .hangUp)
    }

    @Test func closesWhenAsked() throws {
        let (reader, writer) = try makePipe()
        let owned = try OwnedDescriptor(duplicating: writer.rawValue)
        writer.close()
        owned.close()
        #expect(Poll.now(reader.rawValue) == .hangUp)
    }

    @Test func givesUpOwnership() throws {
        let (reader, writer) = try makePipe()
        let taken = try OwnedDescriptor(duplicating: writer.rawValue).take()
        writer.close()
        #expect(Poll.now(reader.rawValue) == [])
        #expect(Glibc.close(taken) == 0)
    }

    @Test func duplicatesAreNotInherited() throws {
        let (_, writer) = try makePipe()
        let duplicate = try OwnedDescriptor(duplicating: writer.rawValue).duplicate()
        #expect(fcntl(duplicate.rawValue, F_GETFD) & FD_CLOEXEC != 0)
    }

    @Test func duplicatingNothingFails() {
        #expect(throws: SystemError(code: EBADF, call: "fcntl(F_DUPFD_CLOEXEC)")) {
            _ = try OwnedDescriptor(duplicating: 1 << 20)
        }
    }

    @Test func twoOwnersAreAProgrammingError() async {
        await #expect(processExitsWith: .failure) {
            let descriptor = Glibc.open("/dev/null", O_RDONLY)
            let owned = OwnedDescriptor(adopting: descriptor)
            _ = Glibc.close(descriptor)
            owned.close()
        }
    }

    @Test func errorsNameTheCallAndTheReason() {
        #expect(SystemError(code: ECONNREFUSED, call: "connect").description == "connect: Connection refused")
        #expect(SystemError.message(for: 99_999).contains("99999"))
    }
}
