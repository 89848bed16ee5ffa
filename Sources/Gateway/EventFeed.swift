import Glibc
import LinuxSystem
import Logging
import Nightbell

/// Reads the supervisor's events on a thread of its own, which lasts as long as the process. One connection
/// serves all streams.
final class EventFeed: Sendable {
    private let path: String
    private let hub: EventHub
    private let durations: WakeDurations
    private let logger: Logger

    /// Events are gathered for so many microseconds before they are passed on: each portion costs every stream a
    /// wake-up and a packet.
    private static let gathering: UInt32 = 50_000
    private static let mostAtOnce = 8_192
    /// Between two attempts to connect, in microseconds.
    private static let pauses: ClosedRange<UInt32> = 50_000...1_000_000

    init(path: String, hub: EventHub, durations: WakeDurations, logger: Logger) {
        self.path = path
        self.hub = hub
        self.durations = durations
        self.logger = logger
    }

    /// - Throws: if no thread can be made.
    func start() throws(SystemError) {
        let code = Thread.start { self.run() }
        guard code == 0 else { throw SystemError(code: code, call: "pthread_create") }
    }

    private func run() {
        var pause = Self.pauses.lowerBound
        var lastProblem = ""
        while true {
            do throws(NightbellError) {
                let administration = try Administration(socketPath: path)
                var events = try administration.watch()
                hub.connected()
                logger.notice("connected to the supervisor", metadata: ["socket": "\(path)"])
                (pause, lastProblem) = (Self.pauses.lowerBound, "")
                try read(&events)
                logger.notice("the supervisor has ended the connection")
            } catch {
                // It may last for hours.
                let problem = "\(error)"
                if problem != lastProblem { logger.warning("no events: \(problem)") }
                lastProblem = problem
            }
            hub.disconnected()
            durations.interrupt()
            usleep(pause)
            pause = min(2 * pause, Self.pauses.upperBound)
        }
    }

    private func read(_ events: inout ClientEvents) throws(NightbellError) {
        while let first = try events.next() {
            var batch = [first]
            usleep(Self.gathering)
            var hasEnded = false
            gathering: while batch.count < Self.mostAtOnce {
                switch try events.nextPending() {
                case .event(let event): batch.append(event)
                case .nothing: break gathering
                case .end:
                    hasEnded = true
                    break gathering
                }
            }
            if batch.contains(where: { $0.dropped > 0 }) { hub.lose() }
            durations.note(batch)
            hub.publish(batch)
            if hasEnded { return }
        }
    }
}
