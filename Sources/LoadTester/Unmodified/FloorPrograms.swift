import CFloors
import Glibc
import LinuxSystem

/// The same programs, frozen by the load tester and thawed by a bare waker that has duplicates of their
/// sockets.
final class FloorPrograms {
    private let range: Range<Int>
    private let children: [ChildProcess]
    private let freezers: [CInt]
    private let stopped: [StoppedProcess]
    private let lifetime: Pipe

    /// The descriptor of a program's connection: the first that it opens.
    private static let connection: CInt = 3

    init(_ runDirectory: RunDirectory, _ callers: PeerSockets, range: Range<Int>) throws {
        self.range = range
        let tree = try CgroupTree.required()
        let parent = try runDirectory.cgroup(in: tree)
        let before = callers.connected
        children = try range.map { index throws(LoadError) in
            try runDirectory.start("nightbell-echo", [callers.endpoint, "\(index)"], log: "floor-programs")
        }
        try wait(for: "the floor's programs to connect", atMost: .seconds(60), firstPause: 5_000_000) {
            try runDirectory.requireAllRunning()
            try callers.acceptConnections()
            return callers.connected == before + range.count
        }
        var (freezers, sockets): ([CInt], [CInt]) = ([], [])
        defer { for socket in sockets { close(socket) } }
        var stopped: [StoppedProcess] = []
        for (index, child) in zip(range, children) {
            let cgroup = FloorCgroup(parent: parent, index: index)
            try cgroup.create(for: child.id)
            freezers.append(try Self.open(cgroup.freezer))
            let socket = cfloors_descriptor_of(child.id, Self.connection)
            guard socket >= 0 else { throw LoadError(failed: "pidfd_getfd") }
            sockets.append(socket)
            stopped.append(StoppedProcess(child.id, .cgroup, tree))
        }
        self.freezers = freezers
        self.stopped = stopped
        lifetime = try Pipe()
        _ = try runDirectory.start(
            .floorWaker, ["\(range.count)"],
            descriptors: [lifetime.reading.rawValue]
                + zip(sockets, freezers).flatMap { [$0, $1] })
        for index in range { try putToSleep(index) }
    }

    deinit { for freezer in freezers { close(freezer) } }

    private static func open(_ path: String) throws(LoadError) -> CInt {
        let descriptor = Glibc.open(path, O_WRONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw LoadError(failed: "open \(path)") }
        return descriptor
    }

    /// Freezes a program once it waits for the next packet.
    func putToSleep(_ index: Int) throws {
        let place = index - range.lowerBound
        try wait(for: "a program of the floor to wait", atMost: .seconds(5)) {
            ProcFS.state(children[place].id) == "S"
        }
        guard write(freezers[place], "1", 1) == 1 else { throw LoadError(failed: "freeze") }
        try wait(for: "a program of the floor to freeze", atMost: .seconds(5)) { stopped[place].isStopped }
    }

    /// The waker's process: inherits a lifetime pipe as descriptor 3, and then each program's socket and
    /// freezer.
    static func runWaker(_ arguments: [String]) throws {
        guard arguments.count == 1, let count = Int(arguments[0]) else {
            throw LoadError.missing("arguments")
        }
        let targets = (0..<CInt(count)).map { index in
            cfloors_target(socket: 4 + 2 * index, freezer: 5 + 2 * index, process: -1)
        }
        cfloors_catch_interrupts()
        let code = cfloors_waker(targets, targets.count, 3)
        guard code == 0 || code == EINTR else { throw LoadError("the floor's waker", code: code) }
    }
}
