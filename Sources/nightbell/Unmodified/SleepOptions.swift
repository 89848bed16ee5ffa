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

    /// From 100 ms to an hour.
    struct IdleTime: ExpressibleByArgument {
        let duration: Duration

        init?(argument: String) {
            guard let duration = UnmodifiedOptions.time(argument) else { return nil }
            self.duration = duration
        }
    }

    /// With the defaults for those that were not given.
    var values: UnmodifiedOptions {
        var values = UnmodifiedOptions()
        if let timers { values.timers = timers }
        if let idle { values.idle = idle.duration }
        values.pageOut = pageOut?.duration
        values.firstByte = firstByte
        return values
    }
}
