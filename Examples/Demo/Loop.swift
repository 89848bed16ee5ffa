import Glibc
import SIPKit

/// Why the demo could not go on.
enum DemoError: Error, CustomStringConvertible {
    case interrupted
    case timedOut(waitingFor: String, detail: String)
    case childEnded(String, status: CInt)
    case system(String, code: CInt)
    case missing(String)

    var description: String {
        switch self {
        case .interrupted: "interrupted"
        case .timedOut(let what, let detail):
            "gave up waiting for \(what)\(detail.isEmpty ? "" : ": \(detail)")"
        case .childEnded(let name, let status): "\(name) ended unexpectedly with status \(status)"
        case .system(let call, let code): "\(call): \(String(cString: strerror(code)))"
        case .missing(let what): what
        }
    }
}

/// One loop over `poll` for the demo's own work: the SIP server, the callers, the reports of the phones.
/// Its user is written as a sequence: `wait` runs the loop until a condition holds.
@MainActor
final class Loop {
    /// Something with a descriptor.
    struct Source {
        var descriptor: CInt
        var wantsToWrite: () -> Bool = { false }
        var serve: () -> Void
    }

    private let stopSignals: StopSignals
    private var sources: [CInt: Source] = [:]
    /// Each returns when it next has to be called.
    private var timers: [(next: () -> ContinuousClock.Instant?, fire: () -> Void)] = []

    init() throws {
        stopSignals = try StopSignals()
    }

    func add(_ source: Source) { sources[source.descriptor] = source }

    func remove(_ descriptor: CInt) { sources[descriptor] = nil }

    func addTimer(next: @escaping () -> ContinuousClock.Instant?, fire: @escaping () -> Void) {
        timers.append((next, fire))
    }

    /// Runs until the condition holds. It is evaluated after each turn, and at least every `interval`.
    func wait(
        for what: String, atMost limit: Duration, every interval: Duration = .milliseconds(100),
        detail: () -> String = { "" }, until condition: () throws -> Bool
    ) throws {
        let end = ContinuousClock.now + limit
        while try !condition() {
            guard .now < end else { throw DemoError.timedOut(waitingFor: what, detail: detail()) }
            try turn(atMost: interval)
        }
    }

    /// One turn: waits for an event, but no longer than `limit`.
    func turn(atMost limit: Duration) throws {
        let descriptors = Array(sources.keys)
        var entries = [pollfd(fd: stopSignals.descriptor, events: Int16(POLLIN), revents: 0)]
        for descriptor in descriptors {
            let writes = sources[descriptor]?.wantsToWrite() == true
            entries.append(pollfd(fd: descriptor, events: Int16(POLLIN | (writes ? POLLOUT : 0)), revents: 0))
        }
        let now = ContinuousClock.now
        let next = timers.compactMap { $0.next() }.min().map { min($0 - now, limit) } ?? limit
        let milliseconds = CInt(max(0, next / .milliseconds(1)).rounded(.up))
        guard poll(&entries, nfds_t(entries.count), milliseconds) >= 0 || errno == EINTR else {
            throw DemoError.system("poll", code: errno)
        }
        if entries[0].revents != 0 {
            stopSignals.take()
            throw DemoError.interrupted
        }
        for entry in entries.dropFirst() where entry.revents != 0 {
            // One source may have removed another in this turn.
            sources[entry.fd]?.serve()
        }
        for timer in timers where timer.next().map({ $0 <= .now }) ?? false { timer.fire() }
    }
}
