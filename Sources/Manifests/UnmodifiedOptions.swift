/// How a program sleeps that knows nothing of Nightbell: the options of `nightbell run --unmodified`.
package struct UnmodifiedOptions: Sendable, Hashable {
    package var timers = TimerPolicy.exact
    /// How long it must have been idle to be put to sleep.
    package var idle = Duration.seconds(1)
    /// How long it must have slept for its memory to be written to swap; nil: it stays.
    package var pageOut: Duration?
    /// Whether connections to its TCP ports wake it with their first byte, and not before.
    package var firstByte = false
    /// The protocols of its connections, by port.
    package var profiles: [PortProfile] = []

    package init() {}

    /// The range of `idle` and `pageOut`.
    package static let times: ClosedRange<Duration> = .milliseconds(100) ... .seconds(3_600)

    /// The format of `idle` and `pageOut`. Nil if the text is no duration, or out of range.
    package static func time(_ text: String) -> Duration? {
        DurationText.parse(text).flatMap { times.contains($0) ? $0 : nil }
    }

    /// The options that differ from the defaults, for a command line.
    var arguments: [String] {
        let defaults = Self()
        var arguments: [String] = []
        if timers != defaults.timers { arguments += ["--timers", timers.description] }
        if idle != defaults.idle { arguments += ["--idle", DurationText.format(idle)] }
        if let pageOut { arguments += ["--page-out", DurationText.format(pageOut)] }
        if firstByte { arguments.append("--first-byte") }
        for profile in profiles { arguments += ["--profile", profile.description] }
        return arguments
    }
}

/// Whether the ends of a sleeping program's waits wake it.
package enum TimerPolicy: Sendable, Hashable, CustomStringConvertible {
    /// Each of them, in time.
    case exact
    /// Each of them, together with others, and at most so much too late.
    case coalesce(Duration)
    /// None of them.
    case ignore

    /// Parses `exact`, `ignore`, or `coalesce=` and a duration from 1 ms to a day. Nil if the text is none of
    /// these.
    package init?(_ text: String) {
        switch text {
        case "exact": self = .exact
        case "ignore": self = .ignore
        default:
            let prefix = "coalesce="
            guard text.hasPrefix(prefix),
                let most = DurationText.parse(String(text.dropFirst(prefix.count))),
                (.milliseconds(1) ... .seconds(86_400)).contains(most)
            else { return nil }
            self = .coalesce(most)
        }
    }

    package var description: String {
        switch self {
        case .exact: "exact"
        case .ignore: "ignore"
        case .coalesce(let most): "coalesce=\(DurationText.format(most))"
        }
    }
}
