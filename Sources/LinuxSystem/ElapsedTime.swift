/// Seconds that go on in every run of the machine, and stand still while it is off. Transfers and pushes are
/// aged by them: a jump of the clock on the wall ends nothing early.
package struct ElapsedTime: Hashable, Sendable {
    /// A moment, as it is stored.
    package struct Mark: Hashable, Sendable {
        /// The run of the machine.
        package var boot: String
        /// Since the start of that run, in seconds.
        package var uptime: Int64
        package var elapsed: Int64

        package init(boot: String, uptime: Int64, elapsed: Int64) {
            self.boot = boot
            self.uptime = uptime
            self.elapsed = elapsed
        }
    }

    private let boot: String
    /// At the start of this run.
    private let offset: Int64

    /// - Parameters:
    ///   - mark: the last one that was stored; nil: none was, and elapsed time begins.
    ///   - boot: of the present run.
    ///   - uptime: since the start of the present run, in seconds.
    package init(after mark: Mark?, boot: String, uptime: Int64) {
        self.boot = boot
        guard let mark else {
            offset = -uptime
            return
        }
        offset = mark.boot == boot ? mark.elapsed - mark.uptime : mark.elapsed
    }

    /// Goes on in the present run.
    package init(after mark: Mark?) throws(SystemError) {
        self.init(after: mark, boot: try BootClock.bootID(), uptime: Self.uptime)
    }

    package var now: Mark { mark(uptime: Self.uptime) }

    private static var uptime: Int64 { BootClock.now() / 1_000_000_000 }

    /// - Parameter uptime: since the start of the present run, in seconds.
    package func mark(uptime: Int64) -> Mark { Mark(boot: boot, uptime: uptime, elapsed: offset + uptime) }
}
