import LinuxSystem
package import Logging
package import NightbellCore

/// Rate limit for log messages that others can cause as often as they like: for each kind, a number of
/// messages per minute for each user, and a number for all users. The others are counted; the count is logged
/// with the next message of that kind about that user, or at the supervisor's end.
package struct LogLimiter {
    /// The kinds of limited messages.
    package enum Kind: String, CaseIterable, Sendable {
        case violations = "violations of the protocol"
        case descriptors = "missing descriptors"
        case connections = "connections that cannot be served"
        case slowReaders = "clients that do not read"
        case suspension = "clients that cannot be suspended"
        case sockets = "sockets that cannot be watched"
        case launches = "clients that cannot be launched"
        case ends = "clients that are ended"
        case overruns = "clients that take too long"
        case crashes = "clients that ended badly"
        case givenUp = "clients that are given up"
        case reach = "clients that nothing can wake"
        case keepAlives = "keep-alives that are late"
        case locks = "clients that sleep with file locks held"
        case state = "state that cannot be written"
        case monitor = "the monitor of the machine"
        case transfers = "transfer processes"
    }

    /// For one user, or for messages that concern no user.
    package static let perMinute = 10
    /// For all users. Half of them are for the first message about a user, so that a few users do not silence
    /// the others.
    package static let perMinuteOfAll = 100
    /// At most this many pairs of kind and user are counted separately.
    private static let mostWindows = 8_192

    private struct Key: Hashable {
        let kind: Kind
        let user: UInt32?
    }

    private struct Window {
        var end = Instant(nanoseconds: .min)
        var said = 0
        var heldBack = 0

        mutating func begin(at now: Instant) {
            guard now >= end else { return }
            end = now + .seconds(60)
            said = 0
        }
    }

    private var windows: [Key: Window] = [:]
    private var windowsOfAll: [Kind: Window] = [:]
    private var forgetsAgainAt = Instant(nanoseconds: .min)

    package init() {}

    /// Whether a message may be logged now: nil, it is held back; otherwise the number held back before it.
    package mutating func admit(_ kind: Kind, of user: UInt32? = nil, at now: Instant) -> Int? {
        var key = Key(kind: kind, user: user)
        if windows[key] == nil, windows.count >= Self.mostWindows {
            forgetWindows(at: now)
            // With this many users at a time, the others share one count.
            if windows.count >= Self.mostWindows { key = Key(kind: kind, user: nil) }
        }
        var window = windows[key] ?? Window()
        var ofAll = windowsOfAll[kind] ?? Window()
        defer {
            windows[key] = window
            windowsOfAll[kind] = ofAll
        }
        window.begin(at: now)
        ofAll.begin(at: now)
        let shared = window.said == 0 ? Self.perMinuteOfAll : Self.perMinuteOfAll / 2
        guard window.said < Self.perMinute, ofAll.said < shared else {
            window.heldBack += 1
            return nil
        }
        window.said += 1
        ofAll.said += 1
        // Includes the messages held back about users that have been forgotten.
        defer { (window.heldBack, ofAll.heldBack) = (0, 0) }
        return window.heldBack + ofAll.heldBack
    }

    /// Forgets users without a message for a minute; their held-back messages are still counted.
    private mutating func forgetWindows(at now: Instant) {
        // There may be nothing to forget, and the next message would search again.
        guard now >= forgetsAgainAt else { return }
        forgetsAgainAt = now + .seconds(60)
        for (key, window) in windows where window.end <= now {
            windowsOfAll[key.kind, default: Window()].heldBack += window.heldBack
            windows[key] = nil
        }
    }

    /// Messages held back and not reported yet.
    package var heldBack: [(kind: Kind, count: Int)] {
        var counts = windowsOfAll.mapValues(\.heldBack)
        for (key, window) in windows { counts[key.kind, default: 0] += window.heldBack }
        return Kind.allCases.compactMap { kind in
            counts[kind].flatMap { $0 > 0 ? (kind, $0) : nil }
        }
    }

    package mutating func log(
        _ kind: Kind, of user: UInt32? = nil, _ message: @autoclosure () -> String, _ level: Logger.Level,
        _ logger: Logger, at now: Instant
    ) {
        guard level >= logger.logLevel, let heldBack = admit(kind, of: user, at: now) else { return }
        let more = heldBack == 0 ? "" : " (\(Self.text(heldBack, kind)))"
        logger.log(level: level, "\(Escaping.escaped(message()))\(more)")
    }

    func logHeldBack(_ logger: Logger) {
        for (kind, count) in heldBack {
            logger.notice("\(Self.text(count, kind))")
        }
    }

    private static func text(_ heldBack: Int, _ kind: Kind) -> String {
        heldBack == 1
            ? "1 message about \(kind.rawValue) was held back"
            : "\(heldBack) messages about \(kind.rawValue) were held back"
    }
}

extension Supervisor {
    /// Logs something that others can cause as often as they like.
    ///
    /// - Parameter user: the user that caused it, if one did.
    func log(
        _ kind: LogLimiter.Kind, _ level: Logger.Level, of user: UInt32? = nil,
        _ message: @autoclosure () -> String
    ) {
        logLimiter.log(kind, of: user, message(), level, logger, at: now)
    }

    func logWhatWasHeldBack() {
        logLimiter.logHeldBack(logger)
    }
}
