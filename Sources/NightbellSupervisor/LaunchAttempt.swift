import Descriptors
import EventLoop
import Glibc
import Launching
import NightbellCore

/// A launch that is under way: from the making of the process until it says who it is.
final class LaunchAttempt {
    /// nil: another worker has made the process.
    private var launch: Launch?
    private var isReported = false
    let process: ProcessHandle
    private let report: Watch?
    private let exit: Watch
    /// The connection that was made for it.
    let connection: UInt64
    /// The sockets that it takes over, in the order of their descriptors.
    let sockets: [SocketToken]
    /// What it has said of itself to another worker, who may have welcomed it.
    let introduction: Introduction?

    struct Introduction {
        var registration: Registration
        var wantsWakeWord: Bool
    }

    /// The process is there, and waits.
    init(
        _ launch: consuming Launch, client: ClientID, connection: UInt64, sockets: [SocketToken],
        loop: LoopExecutor
    ) throws {
        let process = try launch.process.duplicate()
        report = try loop.watch(
            launch.reportDescriptor, .read, .oneShot,
            token: WatchToken(.launchReport, id: client.rawValue).rawValue)
        exit = try Self.watchExit(process, client, loop)
        self.launch = consume launch
        self.process = process
        self.connection = connection
        self.sockets = sockets
        introduction = nil
        hasRun = false
        try self.report?.arm()
    }

    /// The process was made by another worker, and runs.
    init(
        _ process: consuming ProcessHandle, client: ClientID, connection: UInt64, sockets: [SocketToken],
        _ introduction: Introduction?, loop: LoopExecutor
    ) throws {
        exit = try Self.watchExit(process, client, loop)
        self.process = process
        report = nil
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
    func go() { launch?.go() }

    var reportDescriptor: CInt? { launch?.reportDescriptor }

    /// Whether its program has begun, as far as that is known. Of a process that another worker has made its end tells.
    private(set) var hasRun: Bool

    /// What has become of the launch, once: nil if that is not known yet, or was told before.
    func takeOutcome() -> Launch.Outcome? {
        guard !isReported, let outcome = launch?.outcome() else { return nil }
        isReported = true
        if case .runs = outcome { hasRun = true }
        return outcome
    }

    func kill() throws(SystemError) { try process.signal(SIGKILL) }

    /// The process goes on without us.
    func end() {
        report?.disarm()
        exit.disarm()
        // It has run its program if it has said who it is; else it has ended. Asked, the launch is over either way.
        _ = launch?.outcome()
    }
}
