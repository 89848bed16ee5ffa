import EdgeTestSupport
import Glibc
import LinuxSystem
import SwiftProtobuf
import Testing
import TransferClient
import TransferWire

/// Uploads of files that take long to copy, as large ones do, or those on a file system that hangs.
@Suite("Uploads of slow files", .enabled(if: SlowDisk.isPossible), .timeLimit(.minutes(10)))
struct SlowFileTests {
    private static let size = 3_000_000
    private let server: OddServer
    private let disk: SlowDisk

    init() throws {
        server = try OddServer()
        disk = try SlowDisk(fileBytes: Self.size)
    }

    private var address: String { server.address + "/put?name=n" }

    /// Without waiting for the answer.
    private func send(_ file: borrowing OwnedDescriptor, _ client: TransferClient, tag: String = "t") throws
        -> UInt64
    {
        try client.send(descriptors: [file.rawValue]) {
            $0.add.tag = tag
            $0.add.task.kind = .upload
            $0.add.task.url = address
        }
    }

    private func names(_ process: TransferProcess) throws -> [String] {
        try SmallFile.names(in: process.data + "/sessions/1")
    }

    private func uploads() throws -> Int {
        try server.get("/uploaded?name=n").split(separator: ",").count
    }

    @Test("Requests for a file that is being copied already join that copy")
    func joined() throws {
        let process = try TransferProcess()
        let client = try process.open()
        let file = try disk.open()
        try disk.hold(.reads)
        defer { try? disk.resume() }
        var requests = [try send(file, client)]
        try disk.waitForHeld(.reads)
        requests.append(try send(file, client))
        let other = try process.open()
        let late = try send(file, other)
        for client in [client, other] {
            #expect(try client.request { $0.list.after = 0 }.tasks.isEmpty)
        }
        #expect(try names(process) == ["1.body"])
        try disk.resume()
        let tasks = try requests.map { try client.answer($0).task } + [try other.answer(late).task]
        #expect(Set(tasks) == [1])
        #expect(try client.nextResult().0.failure == .none)
        #expect(try uploads() == 1)
    }

    @Test("A file is sent also if its client has gone before it was copied")
    func abandoned() throws {
        let process = try TransferProcess()
        let file = try disk.open()
        try disk.hold(.reads)
        defer { try? disk.resume() }
        try leave(file, process)
        // It has heard of the end of that connection before it answers.
        let other = try process.open("other")
        #expect(try other.request { $0.list.after = 0 }.tasks.isEmpty)
        try disk.resume()
        #expect(try process.open().nextResult().0.tag == "t")
        #expect(try uploads() == 1)
    }

    /// The connection ends while the file is being copied.
    private func leave(_ file: borrowing OwnedDescriptor, _ process: TransferProcess) throws {
        let client = try process.open()
        _ = try send(file, client)
        try disk.waitForHeld(.reads)
    }

    /// A client uploads the file, of which the read is held up.
    private func beginUpload() throws -> (supervisor: Supervised, client: SupervisedClient) {
        let supervisor = try Supervised()
        let client = try SupervisedClient(awaiting: "org.test.reader", of: supervisor)
        try client.start(isLaunchable: false)
        try client.accept()
        try client.command("hello \(client.name) socket=\(supervisor.socket) timeout=300")
        try client.command("transfers s")
        try client.command("open \(disk.file) body")
        try disk.hold(.reads)
        try client.tell("upload s t body \(address)")
        try disk.waitForHeld(.reads)
        return (supervisor, client)
    }

    @Test("A client that waits for the copy of a large file is not told that it failed")
    func patience() throws {
        let (supervisor, client) = try beginUpload()
        defer { try? disk.resume() }
        // Several times as long as other requests wait.
        #expect(throws: Unexpected.self) { try client.event("error", within: 1_500) }
        try disk.resume()
        try client.event("ok")
        #expect(try client.event("transferred s t").hasSuffix(" failure=-"))
        #expect(try uploads() == 1)
        withExtendedLifetime(supervisor) {}
    }

    @Test("A client does not wait for the copy of a file by a process that hangs")
    func hangingProcess() throws {
        let (supervisor, client) = try beginUpload()
        defer { try? disk.resume() }
        let process = try require(supervisor.transferProcess)
        kill(process, SIGSTOP)
        defer { kill(process, SIGKILL) }
        // Sooner than the supervisor replaces a process, which it cannot if that hangs in the kernel.
        #expect(try client.event("error", within: 20_000).contains("requestTimedOut"))
    }

    @Test(
        "A file system that hangs holds up no other transfer",
        arguments: [SlowDisk.Request.attributes, .reads, .closes])
    func hanging(_ request: SlowDisk.Request) throws {
        let process = try TransferProcess()
        let client = try process.open()
        let file = try disk.open()
        try disk.hold(request)
        defer { try? disk.resume() }
        let upload = try send(file, client)
        try disk.waitForHeld(request)
        let other = try process.open("other")
        try other.add(server.address + "/good?seed=a&size=1000")
        #expect(try other.nextResult().0.failure == .none)
        try disk.resume()
        #expect(try client.answer(upload).task > 0)
        #expect(try client.nextResult().0.failure == .none)
    }

    @Test("Uploads are refused while a file system hangs, and not done later")
    func stuck() throws {
        let process = try TransferProcess(["--stall", "1"])
        let client = try process.open()
        let file = try disk.open()
        try disk.hold(.reads)
        defer { try? disk.resume() }
        let upload = try send(file, client)
        try disk.waitForHeld(.reads)
        let path = process.directory.path + "/source"
        try Nginx.write([1], to: path)
        let other = try OwnedDescriptor(opening: path, O_RDONLY)
        let waiting = try send(other, client, tag: "waiting")
        for request in [upload, waiting] {
            #expect(throws: TransferClient.Refused.self) { try client.answer(request) }
        }
        #expect(throws: TransferClient.Refused.self) {
            try client.answer(try send(other, client, tag: "more"))
        }
        try disk.resume()
        // It is taken once the copies before are done with.
        #expect(
            try eventually(within: 30_000) {
                do {
                    _ = try client.answer(try send(other, client, tag: "later"))
                    return true
                } catch is TransferClient.Refused {
                    return false
                }
            })
        let (result, _) = try client.nextResult()
        #expect(result.failure == .none && result.tag == "later")
        #expect(try names(process).allSatisfy { $0.hasPrefix("\(result.task).") })
        #expect(try uploads() == 1)
    }

    @Test("A file is not read on once its upload was refused")
    func refused() throws {
        let process = try TransferProcess(["--stall", "1"])
        let client = try process.open()
        let file = try disk.open()
        try disk.hold(.reads)
        defer { try? disk.resume() }
        let upload = try send(file, client)
        try disk.waitForHeld(.reads)
        #expect(throws: TransferClient.Refused.self) { try client.answer(upload) }
        let path = process.directory.path + "/source"
        try Nginx.write([1], to: path)
        let other = try OwnedDescriptor(opening: path, O_RDONLY)
        // Of all reads of the file only the first one is answered.
        try disk.step()
        #expect(
            try eventually(within: 10_000) {
                do {
                    _ = try client.answer(try send(other, client, tag: "later"))
                    return true
                } catch is TransferClient.Refused {
                    return false
                }
            })
    }
}
