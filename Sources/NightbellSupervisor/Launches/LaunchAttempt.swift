import EventLoop
import Glibc
import Launching
import LinuxSystem
import NightbellCore

/// A launch in progress: from the making of the process until its Hello.
final class LaunchAttempt {
    /// nil: another worker made the process.
    private var launch: Launch?
    private var isReported = false
    let process: ProcessHandle
    private let exit: Watch
    /// The connection that was made for it.
    let connection: UInt64
    /// The sockets that it inherits, in the order of their descriptors.
    let sockets: [SocketToken]
    /// The Hello that it sent to another worker, which may have welcomed it.
    let introduction: Introduction?

    struct Introduction {
        var registration: Registration
        var wantsWakeWord: Bool
    }

    /// The process exists and waits.
    init(
        _ launch: consuming Launch, client: ClientID, connection: UInt64, sockets: [SocketToken],
        loop: LoopExecutor
    ) throws {
        let process = try launch.process.duplicate()
        exit = try Self.watchExit(process, client, loop)
        self.launch = consume launch
        self.process = process
        self.connection = connection
        self.sockets = sockets
        introduction = nil
        hasRun = false
    }

    /// Another worker made the process, and it runs.
    init(
        _ process: consuming ProcessHandle, client: ClientID, connection: UInt64, sockets: [SocketToken],
        _ introduction: Introduction?, loop: LoopExecutor
    ) throws {
        exit = try Self.watchExit(process, client, loop)
        self.process = process
        self.connection = connection
        self.sockets = sockets
        self.introduction = introduction
        hasRun = true
    }

    private static func watchExit(
        _ process: borrowing ProcessHandle, _ client: ClientID, _ loop: LoopExecutor
    ) throws(LoopError) -> Watch {
        let exit = try loop.watch(
            process.rawValue, .read, .oneShot, token: WatchToken(.launchExit, id: client.rawValue).rawValue)
        try exit.arm()
        return exit
    }

    var pid: pid_t { process.pid }

    /// Lets its program run.
    func letRun() { launch?.letRun() }

    var reportDescriptor: CInt? { launch?.reportDescriptor }

    /// Whether its program has begun, as far as that is known. For a process that another worker made, only
    /// its end shows it.
    private(set) var hasRun: Bool

    /// The outcome of the launch, returned once; nil if it is not known yet or was returned before.
    ///
    /// - Parameter isOver: The process has said Hello or has ended.
    func takeOutcome(isOver: Bool) -> Launch.Outcome? {
        guard !isReported, let outcome = launch?.outcome(isOver: isOver) else { return nil }
        isReported = true
        switch outcome {
        case .runs: hasRun = true
        case .failed(let error): isProgramMissing = error.isMissing
        }
        return outcome
    }

    /// It could not begin, because its program is not there.
    private(set) var isProgramMissing = false

    /// When it is killed, after it was asked to end.
    private(set) var killsAt: Instant?

    /// Asks it to end, with the processes that it has started: it may be a program that knows nothing of
    /// Nightbell.
    ///
    /// - Parameter deadline: when it is killed.
    func terminate(until deadline: Instant) throws(SystemError) {
        if killsAt == nil { killsAt = deadline }
        try signal(SIGTERM)
    }

    /// Kills it with the processes that it has started: one of them may be about to say Hello.
    func kill() throws(SystemError) {
        killsAt = nil
        try signal(SIGKILL)
    }

    /// Signals its process group, and its descendants in other groups, such as one that `setsid` has made. A
    /// kernel before 6.9 cannot signal a group by a pidfd: then only the first process of it is signalled.
    private func signal(_ number: CInt) throws(SystemError) {
        // They have another parent once theirs has ended.
        signalDescendantsApart(number)
        do {
            try process.signalGroup(number)
        } catch {
            // It may not lead its group yet.
            try process.signal(number)
        }
    }

    /// Signals the descendants that are in other process groups than its own. Looks at no more than
    /// `mostDescendants`, so that no program makes this long, and at the children of each process's first
    /// thread: wrappers have no other threads.
    private func signalDescendantsApart(_ number: CInt) {
        var (found, index) = ([(pid: process.pid, parent: pid_t(0))], 0)
        while index < found.count, found.count <= Self.mostDescendants {
            let parent = found[index].pid
            let children = ProcFS.children(ofFirstThreadOf: parent, limit: Self.mostChildren) ?? []
            found += children.prefix(Self.mostDescendants).map { ($0, parent) }
            index += 1
        }
        for (pid, parent) in found.dropFirst().prefix(Self.mostDescendants) where getpgid(pid) != process.pid
        {
            do throws(SystemError) {
                let descendant = try ProcessHandle(opening: pid)
                // The pid may have been given to another process before it was opened.
                if ProcFS.statistics(pid)?.parent == parent { try descendant.signal(number) }
            } catch {
                // It has ended meanwhile, or the supervisor may not signal it.
            }
        }
    }

    private static let mostDescendants = 64
    /// Of a process with more, none is looked at.
    private static let mostChildren = 512

    /// Kills the processes that it has left behind: another launch follows, and they would be a second copy.
    func killRest() {
        killsAt = nil
        do throws(SystemError) {
            try process.signalGroup(SIGKILL)
        } catch {
            // It has left none, or this kernel cannot.
        }
    }

    /// Whether a process of its group is there, also after the first one has ended.
    var hasProcesses: Bool {
        do throws(SystemError) {
            try process.signalGroup(0)
            return true
        } catch {
            return error.code == EPERM
        }
    }

    /// Gives up the launch; the process runs on.
    func end() {
        exit.disarm()
        // After its Hello its program has run; otherwise it has ended.
        _ = launch?.outcome(isOver: true)
    }
}
