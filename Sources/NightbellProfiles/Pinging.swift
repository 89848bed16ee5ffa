/// The schedule of a profile's pings, and the time for their answers.
package struct Pinging: Sendable, Equatable {
    /// A ping is sent this long after the one before, not earlier …
    package var earliest: Duration
    /// … and not later.
    package var latest: Duration
    /// The time for the answer; after it the connection counts as lost, which is a wake reason of its own.
    /// Nil: no answer is expected.
    package var answerWithin: Duration?
    /// How a ping that may get lost is repeated until its answer arrives.
    package var repetition: Repetition?

    /// - Parameter latest: the window is its last fifth (RFC 5626 §4.4 asks for 80 to 100 %).
    init(latest: Duration, answerWithin: Duration?, repetition: Repetition? = nil) {
        self.latest = latest
        earliest = latest * 4 / 5
        self.answerWithin = answerWithin
        self.repetition = repetition
    }

    /// Repetitions of a ping, each after twice the time of the one before.
    package struct Repetition: Sendable, Equatable {
        /// From the ping to its first repetition.
        package var first: Duration
        /// The limit of repetitions.
        package var count: Int
    }
}

/// The time between two pings that a profile accepts.
package struct IntervalLimits: Sendable, Hashable {
    package var shortest: Duration
    package var standard: Duration
    package var longest: Duration

    /// The interval, or the standard one for nil.
    func checked(_ interval: Duration?) throws(SettingsError) -> Duration {
        let interval = interval ?? standard
        guard (shortest...longest).contains(interval) else { throw .intervalOutOfRange(interval, self) }
        return interval
    }
}

extension Duration {
    /// The time for an answer, or the standard one for nil. An answer is awaited for an hour at most, because
    /// no other ping is sent until then.
    static func answerTime(_ time: Duration?, standard: Duration) throws(SettingsError) -> Duration {
        let time = time ?? standard
        guard time > .zero, time <= .minutes(60) else { throw .outOfRange("answerWithin") }
        return time
    }

    static func minutes(_ minutes: Int) -> Duration { .seconds(60 * minutes) }

    /// Address translators must keep an idle TCP connection for at least 2 hours and 4 minutes
    /// (RFC 5382 §5, REQ-5). Many keep it for less.
    static let translatedStream: Duration = .minutes(124)
    /// They must keep a UDP mapping for at least 2 minutes (RFC 4787 §4.3, REQ-5). Many keep it for 30 s.
    static let translatedDatagrams: Duration = .minutes(2)
}

/// An error in the settings of a profile.
package enum SettingsError: Error, Hashable {
    case intervalOutOfRange(Duration, IntervalLimits)
    /// The named setting has characters that would break the protocol's messages, or none at all.
    case illegalText(String)
    /// The named setting exceeds the limit in bytes.
    case tooLong(String, limit: Int)
    /// The named setting has too many entries.
    case tooMany(String, limit: Int)
    /// One pattern is a prefix of another: the match would depend on how much has arrived.
    case ambiguousPatterns
    /// The named setting is out of its range.
    case outOfRange(String)
    case transportNotSupported(Transport)
}

extension SettingsError: CustomStringConvertible {
    package var description: String {
        switch self {
        case .intervalOutOfRange(let interval, let limits):
            "an interval of \(interval) is not between \(limits.shortest) and \(limits.longest)"
        case .illegalText(let name): "\(name) is empty or has characters that it must not have"
        case .tooLong(let name, let limit): "\(name) has more than \(limit) bytes"
        case .tooMany(let name, let limit): "more than \(limit) \(name)"
        case .ambiguousPatterns: "one pattern is the beginning of another"
        case .outOfRange(let name): "\(name) is out of range"
        case .transportNotSupported(.stream): "not for streams"
        case .transportNotSupported(.datagram): "not for datagrams"
        }
    }
}
