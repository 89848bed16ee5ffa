import Logging
package import NightbellCore

/// Keeps those who can make the supervisor say something as often as they like from filling its log: so many messages
/// of a kind in a minute. The others are counted; the number is told with the next message of that kind, or at the
/// supervisor's end.
package struct LogLimiter {
    /// What all those messages are about.
    package enum Kind: String, CaseIterable, Sendable {
        case breaches = "breaches of the protocol"
        case descriptors = "missing descriptors"
        case connections = "connections that cannot be served"
        case slowReaders = "clients that do not read"
        case suspension = "clients that cannot be suspended"
        case sockets = "sockets that cannot be watched"
        case launches = "clients that cannot be launched"
        case state = "what cannot be written down"
    }

    package static let perMinute = 10

    private struct Window {
        var end = Instant(nanoseconds: .min)
        var said = 0
        var heldBack = 0
    }

    private var windows: [Kind: Window] = [:]

    package init() {}

    /// Whether a message may be said now: nil, it is held back; else how many were held back before it.
    package mutating func admit(_ kind: Kind, at now: Instant) -> Int? {
        var window = windows[kind] ?? Window()
        defer { windows[kind] = window }
        if now >= window.end {
            window.end = now + .seconds(60)
            window.said = 0
        }
        guard window.said < Self.perMinute else {
            window.heldBack += 1
            return nil
        }
        window.said += 1
        defer { window.heldBack = 0 }
        return window.heldBack
    }

    /// What was held back and has not been told of.
    package var heldBack: [(kind: Kind, count: Int)] {
        Kind.allCases.compactMap { kind in
            windows[kind].flatMap { $0.heldBack > 0 ? (kind, $0.heldBack) : nil }
        }
    }

    mutating func log(
        _ kind: Kind, _ message: @autoclosure () -> String, _ level: Logger.Level, _ logger: Logger,
        at now: Instant
    ) {
        guard level >= logger.logLevel, let heldBack = admit(kind, at: now) else { return }
        let more = heldBack == 0 ? "" : " (\(heldBack) messages about \(kind.rawValue) were held back)"
        logger.log(level: level, "\(message())\(more)")
    }

    func logHeldBack(_ logger: Logger) {
        for (kind, count) in heldBack {
            logger.notice("\(count) messages about \(kind.rawValue) were held back")
        }
    }
}

extension Supervisor {
    /// Logs what others can make happen as often as they like.
    func log(_ kind: LogLimiter.Kind, _ level: Logger.Level, _ message: @autoclosure () -> String) {
        logLimiter.log(kind, message(), level, logger, at: now)
    }

    func logWhatWasHeldBack() {
        logLimiter.logHeldBack(logger)
    }
}
