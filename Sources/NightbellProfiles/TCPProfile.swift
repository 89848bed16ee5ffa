/// The kernel's own keep-alives, set for the time the owner sleeps. Nothing is sent or inspected here: every
/// byte is for the owner.
///
/// | what | standard |
/// | --- | --- |
/// | keep-alives, off unless asked for, two hours unless configured | RFC 9293 §3.8.4 |
/// | one lost probe must not end a connection | RFC 1122 §4.2.3.6 |
/// | the time for which sent data may stay unacknowledged | RFC 793 §3.8, RFC 5482 §1, `TCP_USER_TIMEOUT` |
/// | how long translators keep an idle connection | RFC 5382 §5, REQ-5 |
package struct TCPProfile: ProtocolProfile {
    private let settings: TCPSettings

    init(_ settings: TCPSettings) {
        self.settings = settings
    }

    var longestNoise: Int { 0 }
    var pinging: Pinging? { nil }
    var isAwaitingAnswer: Bool { false }

    mutating func begin(delegating delegated: DelegatedValues) {}

    mutating func inspect(
        _ bytes: Span<UInt8>, _ profileContext: ProfileContext, replies: inout [UInt8]
    ) -> Verdict {
        .significant(.message)
    }

    mutating func ping(again: Bool, _ profileContext: ProfileContext, into output: inout [UInt8]) -> Bool {
        false
    }
}

/// Values for socket options, as the kernel takes them.
package final class TCPSettings: Sendable {
    /// The kernel takes up to 32,767 s; translators need not bear longer ones.
    package static let idle = IntervalLimits(
        shortest: .seconds(1), standard: .minutes(15), longest: .translatedStream)

    /// `TCP_KEEPIDLE`: from the last traffic to the first probe.
    package let idleSeconds: Int32
    /// `TCP_KEEPINTVL`: between probes that are not answered.
    package let intervalSeconds: Int32
    /// `TCP_KEEPCNT`: the connection counts as dead after this many unanswered probes.
    package let probes: Int32
    /// `TCP_USER_TIMEOUT`: none, even if the owner has one. Linux compares it, as soon as one probe is
    /// unanswered, with the time since the last segment arrived, and lets it decide instead of the number of
    /// probes. That time has no limit when the owner falls asleep, so that with any value the first probe
    /// that is lost might be the last.
    package let userTimeoutMilliseconds: UInt32 = 0

    /// The time from the last segment until a dead connection is detected, if probes are sent that long. The
    /// kernel's timers may each be an eighth late.
    package var detection: Duration {
        .seconds(Int64(idleSeconds)) + .seconds(Int64(intervalSeconds) * Int64(probes))
    }

    /// - Parameters:
    ///   - interval: nil: 30 s.
    ///   - probes: nil: 4.
    package init(
        idle: Duration? = nil, interval: Duration? = nil, probes: Int? = nil
    ) throws(SettingsError) {
        let (interval, probes) = (interval ?? .seconds(30), probes ?? 4)
        let idle = try Self.idle.checked(idle)
        // The kernel's own limits: 32,767 s and 127 probes.
        guard (.seconds(1)...(.seconds(32_767))).contains(interval) else { throw .outOfRange("interval") }
        guard (1...127).contains(probes) else { throw .outOfRange("probes") }
        idleSeconds = Int32(idle.components.seconds)
        intervalSeconds = Int32(interval.components.seconds)
        self.probes = Int32(probes)
    }
}
