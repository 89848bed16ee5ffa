import EventLoop
import Glibc
import Launching
import LinuxSystem
import NightbellCore
import SwiftProtobuf

/// A process beside the supervisor, such as one that observes the machine, and the connection to it.
final class HelperProcess {
    private var launch: Launch
    private let process: ProcessHandle
    let connection: SeqPacketSocket
    private let readable: Watch
    private let exit: Watch
    /// Tells it from the ones before.
    let number: UInt64
    let startedAt: Instant

    /// Starts the program, which has the other end of the connection as its descriptor 3, and the listener as
    /// its descriptor 4.
    ///
    /// - Parameter tokens: of the connection, and of the end of the process.
    init(
        _ program: HelperProgram, number: UInt64, listener: CInt? = nil,
        tokens: (readable: WatchToken, exit: WatchToken), at now: Instant, _ loop: LoopExecutor
    ) throws {
        let identity: ProcessIdentity
        if let given = program.identity { identity = given } else { identity = try ProcessIdentity.own() }
        var order = LaunchOrder(
            LaunchSpecification(
                arguments: [program.path, "--ends-with-parent"] + program.arguments,
                environment: program.environment), as: identity
        )
        let pair = try SeqPacketSocket.pair()
        order.sockets = [LaunchOrder.Socket(pair.second.rawValue, name: "supervisor")]
        if let listener { order.sockets.append(LaunchOrder.Socket(listener, name: "clients")) }
        let launch = try Launch.begin(order)
        let process = try launch.process.duplicate()
        let connection = pair.separate { ours, theirs in
            theirs.takeDescriptor().close()
            return ours
        }
        readable = try loop.watch(
            connection.rawValue, .read, .persistent, token: tokens.readable.rawValue)
        exit = try loop.watch(process.rawValue, .read, .oneShot, token: tokens.exit.rawValue)
        try readable.arm()
        try exit.arm()
        self.launch = consume launch
        self.process = process
        self.connection = connection
        self.number = number
        startedAt = now
    }

    deinit {
        // Before their descriptors are closed.
        readable.disarm()
        exit.disarm()
    }

    var pid: pid_t { process.pid }

    /// Something could not be sent, because it has ended.
    private(set) var hasMissedDemand = false

    /// False: there is no room, because the process does not read.
    func send(_ demand: some SwiftProtobuf.Message) -> Bool {
        do {
            return try connection.send(try demand.serializedBytes() as [UInt8])
        } catch {
            // It has ended, which its pidfd reports.
            hasMissedDemand = true
            return true
        }
    }

    /// Whether it has not read everything that was sent.
    var hasUnread: Bool { SocketTraffic.hasUnsent(connection.rawValue) }

    /// Ends it: nothing of it is read any more. Its pidfd reports when it can be reaped.
    func kill() { end(by: SIGKILL) }

    /// As `kill`, in order.
    func terminate() { end(by: SIGTERM) }

    private func end(by signal: CInt) {
        readable.disarm()
        do throws(SystemError) {
            try process.signal(signal)
        } catch {
            // It has ended.
        }
    }

    /// Its connection is at its end, which would be reported again and again.
    func stopReading() { readable.disarm() }

    /// Why its program did not run; nil: it did.
    func problem() -> String? {
        guard case .failed(let error) = launch.outcome() else { return nil }
        return error.description
    }

    /// Waits this long for its end, after it was killed, and reaps it.
    func reap(within milliseconds: CInt) {
        _ = Poll.wait(process.rawValue, for: .readable, timeoutMilliseconds: milliseconds)
        _ = reap()
    }

    /// Reaps it. False: it has not ended.
    func reap() -> Bool { exitStatus() != nil }

    /// Reaps it; nil: it has not ended.
    func exitStatus() -> ExitStatus? {
        do throws(SystemError) {
            return try process.exitStatus()
        } catch {
            return .unknown
        }
    }
}
