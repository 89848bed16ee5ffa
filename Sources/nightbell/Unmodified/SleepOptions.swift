import ArgumentParser
import Manifests

/// The options of how a program sleeps that knows nothing of Nightbell.
struct SleepOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            """
            Whether its timers wake it: exact; coalesce=60s, together and at most so much too late; or ignore.
            """, valueName: "policy"))
    var timers: TimerPolicy?

    @Option(
        help: ArgumentHelp(
            "How long it must be idle before it is suspended, such as 500ms or 2s (1s).", valueName: "time"))
    var idle: IdleTime?

    @Option(
        help: ArgumentHelp(
            "How long it must have slept before its memory is written to swap, such as 30s.",
            valueName: "time"))
    var pageOut: IdleTime?

    @Flag(
        help: """
            Connections to its TCP ports wake it with their first byte, and not before: connections that say nothing for \
            a minute, such as those of port scanners, do not.
            """)
    var firstByte = false

    @Option(
        name: .customLong("profile"),
        help: ArgumentHelp(
            """
            The protocol of its unencrypted connections to a port, such as irc:6667, or irc for the usual one: pings \
            are answered while it sleeps. May be given several times. One of \
            \(PortProfile.Name.allCases.map(\.rawValue).joined(separator: ", ")).
            """, valueName: "name[:port]"),
        transform: { text in
            do throws(PortProfile.Problem) {
                return try PortProfile(text)
            } catch {
                throw ValidationError("\(error)")
            }
        })
    var profiles: [PortProfile] = []

    /// From 100 ms to an hour.
    struct IdleTime: ExpressibleByArgument {
        let duration: Duration

        init?(argument: String) {
            guard let duration = UnmodifiedOptions.time(argument) else { return nil }
            self.duration = duration
        }
    }

    /// Whether one of them was given.
    var isGiven: Bool {
        timers != nil || idle != nil || pageOut != nil || firstByte || !profiles.isEmpty
    }

    /// With the defaults for those that were not given.
    var values: UnmodifiedOptions {
        var values = UnmodifiedOptions()
        if let timers { values.timers = timers }
        if let idle { values.idle = idle.duration }
        values.pageOut = pageOut?.duration
        values.firstByte = firstByte
        values.profiles = profiles
        return values
    }
}
