import EventLoop
import Logging
import NightbellCore
import Suspension

/// The orderly end: every client is thawed and told, and messages are still delivered for a while.
extension Supervisor {
    enum Phase {
        case running
        /// All clients are thawed; messages are still being delivered, and launched programs end, until then
        /// at the latest.
        case lameDuck(until: Instant)
        case stopped
    }

    /// The time limit for delivering the last messages, and for launched programs to end.
    private static let lameDuck: Duration = .seconds(2)

    private var hasOutgoing: Bool { connections.all.contains { $0.hasOutgoing } }

    /// Thaws and informs every client; no new connection is accepted.
    func beginLameDuck() {
        guard case .running = phase else { return }
        logger.notice("stopping: thawing all clients")
        configuration.onStopping()
        phase = .lameDuck(until: now + Self.lameDuck)
        acceptance.pause()
        Acceptance.unlink(configuration)
        noteReturning()
        feed(.stop)
        endLaunches(until: now + Self.lameDuck)
    }

    /// Whether everything is delivered, and every launched program has ended that was asked to.
    var isLameDuckOver: Bool {
        !hasOutgoing && launches.silentAttempts.isEmpty && launches.askedToEnd.isEmpty
    }

    /// When to look again. The end of a process that another one has left is not reported.
    func nextLook(until deadline: Instant) -> Instant {
        launches.leftovers.isEmpty ? deadline : min(deadline, now + .milliseconds(50))
    }

    func finish() {
        phase = .stopped
        killLaunches(dueBy: Instant(nanoseconds: .max))
        logWhatWasHeldBack()
        writeFetches()
        writeNotifications()
        endMonitor()
        endTransfers()
        // The table may have been damaged or removed, of which only its next write tells.
        rememberOwnership(supervision.identifiers)
        durable.finish(logger)
        suspender.detachAll()
        for connection in Array(connections.all) { closeConnection(connection) }
        directory = nil
        loop.stop()
    }
}
