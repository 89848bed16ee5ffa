import NightbellCore

/// Many keep-alive windows, which expire one after the other and are inserted again.
package final class Timers {
    private var schedule = KeepAliveSchedule(lead: .milliseconds(250))
    private var random: UInt64 = 1

    private static let minutes: Int64 = 60_000_000_000

    package init(count: Int) {
        for slot in 0..<UInt32(count) { insert(slot, after: Instant(nanoseconds: 0)) }
    }

    /// A window that ends 10 to 30 minutes later.
    private func insert(_ slot: UInt32, after now: Instant) {
        random ^= random << 13
        random ^= random >> 7
        random ^= random << 17
        let latest = now.nanoseconds + 10 * Self.minutes + Int64(random % UInt64(20 * Self.minutes))
        let window = Window(
            earliest: Instant(nanoseconds: latest - Self.minutes), latest: Instant(nanoseconds: latest))
        schedule.set(slot, to: window)
    }

    /// Removes the next window that is due, and inserts it again.
    package func cycle() {
        guard let deadline = schedule.nextDeadline, let slot = schedule.popBegun(at: deadline) else {
            preconditionFailure("a timer is lost")
        }
        insert(slot, after: deadline)
    }
}
