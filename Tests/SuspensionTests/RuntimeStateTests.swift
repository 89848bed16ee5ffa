import EdgeTestSupport
import Glibc
import LinuxSystem
import Suspension
import Testing

@Suite struct RuntimeStateTests {
    private typealias Process = RuntimeState.Process

    private let directory: TemporaryDirectory
    private var path: String { directory.file("runtime-state") }

    init() throws { directory = try TemporaryDirectory() }

    private func state() throws -> RuntimeState { try RuntimeState(directory: directory.path) }

    private var length: Int {
        get throws { try SmallFile.read(path).count }
    }

    private func process(_ number: Int) -> Process {
        Process(pid: pid_t(number), startTime: UInt64(number) << 33)
    }

    @Test func everythingIsReadAgain() throws {
        do {
            let state = try state()
            for number in 1...3 { try state.noteStopped(process(number)) }
            state.noteResumed([process(2), Process(pid: 3, startTime: 1)])
            try state.note(cgroup: "/a")
            try state.note(cgroup: "/b")
            state.forget(cgroup: "/a")
            try state.setReturning([("phone.alice", process(4)), ("phone.bob", process(5))])
        }
        let state = try state()
        #expect(state.damage == nil)
        #expect(state.stopped == [1: 1 << 33, 3: 3 << 33])
        #expect(state.cgroups == ["/b"])
        #expect(state.returning.map(\.identifier) == ["phone.alice", "phone.bob"])
        #expect(state.returning.map(\.process) == [process(4), process(5)])
        try state.setReturning([])
        #expect(try self.state().returning.isEmpty)
    }

    /// Of what is noted many times, only the last matters.
    @Test func theFileStaysShort() throws {
        let state = try state()
        try state.noteStopped(process(1))
        for _ in 0..<5_000 {
            try state.noteStopped(process(2))
            state.noteResumed([process(2)])
        }
        #expect(try length < 66_000)
        #expect(try self.state().stopped == [1: 1 << 33])
    }

    @Test func anotherBootsStateIsForgotten() throws {
        try state().noteStopped(process(1))
        var bytes = try SmallFile.read(path)
        let boot = try BootClock.bootID()
        let index = try #require(bytes.firstRange(of: Array(boot.utf8))?.lowerBound)
        bytes[index] = bytes[index] == UInt8(ascii: "0") ? UInt8(ascii: "1") : UInt8(ascii: "0")
        try replace(bytes)
        let state = try state()
        #expect(state.stopped.isEmpty && state.damage == nil)
        try state.noteStopped(process(2))
        #expect(try self.state().stopped == [2: 2 << 33])
    }

    @Test(arguments: [1, 15, 17, 4_096]) func damageIsReported(length: Int) throws {
        try state().noteStopped(process(1))
        let whole = try SmallFile.read(path)
        try replace(whole + (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 37 &+ 9) })
        let state = try state()
        #expect(state.damage?.contains("damaged, or of a later version, after \(whole.count)") == true)
        #expect(state.stopped == [1: 1 << 33])
        try state.noteStopped(process(2))
        #expect(try self.state().damage == nil)
        #expect(try self.state().stopped.keys.sorted() == [1, 2])
    }

    /// A field of a later version.
    @Test func unknownFieldsAreDamage() throws {
        try state().note(cgroup: "/a")
        // Changes: one of three bytes, with field 99 as a number.
        try replace(SmallFile.read(path) + [1 << 3 | 2, 3, 0x98, 0x06, 1])
        #expect(try state().damage != nil)
        #expect(try state().cgroups == ["/a"])
    }

    @Test(.enabled(if: geteuid() == 0)) func anotherUsersFileIsRefused() throws {
        try state().note(cgroup: "/a")
        #expect(chown(path, 65_534, 65_534) == 0)
        let error = #expect(throws: SystemError.self) { try state() }
        #expect(error?.code == EPERM)
    }

    @Test func aPipeIsRefused() throws {
        #expect(mkfifo(path, 0o600) == 0)
        let error = #expect(throws: SystemError.self) { try state() }
        #expect(error?.code == EPERM)
    }

    /// With no space left, outdated state still goes, and other processes take its place.
    @Test(.enabled(if: geteuid() == 0)) func aFullDiskKeepsNoOutdatedState() throws {
        let disk = try SmallDisk()
        let state = try RuntimeState(directory: disk.path)
        try state.setReturning([("phone.alice", process(1))])
        try state.note(cgroup: "/a")
        for number in 1...5_000 {
            try state.noteStopped(process(number))
            if number > 100 { state.noteResumed([process(number)]) }
        }
        try disk.fill()
        try state.setReturning([])
        let next = try RuntimeState(directory: disk.path)
        #expect(next.returning.isEmpty && next.cgroups == ["/a"] && next.stopped == state.stopped)
        for number in 1...2_000 {
            try state.noteStopped(process(1 + number % 100))
            state.noteResumed([process(1 + number % 100)])
        }
        #expect(try RuntimeState(directory: disk.path).stopped.isEmpty)
        // A process that does not fit is refused, and the rest remains.
        #expect(throws: SystemError.self) {
            for number in 1...100_000 { try state.noteStopped(process(number)) }
        }
        let last = try RuntimeState(directory: disk.path)
        #expect(last.damage == nil && last.stopped == state.stopped && last.stopped.count > 100)
    }

    private func replace(_ bytes: [UInt8]) throws {
        let file = try OwnedDescriptor(opening: path, O_WRONLY | O_TRUNC)
        #expect(write(file.rawValue, bytes, bytes.count) == bytes.count)
    }
}
