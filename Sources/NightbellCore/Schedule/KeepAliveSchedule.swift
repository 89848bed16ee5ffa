/// When a keep-alive handler is to run: from `earliest` to `latest`. It runs earlier only before the machine
/// sleeps, and a later run is counted as late.
package struct Window: Sendable, Equatable {
    package var earliest: Instant
    package var latest: Instant

    package init(earliest: Instant, latest: Instant) {
        self.earliest = earliest
        self.latest = latest
    }
}

/// The windows of all scheduled keep-alive handlers, at most one for each client; or those of the pings of
/// all sockets.
///
/// Many windows are served at one instant: the timer is set to the earliest end of any window (less a lead,
/// so that scheduling delay does not make it late), and every client inside its window by then runs too.
/// Stabbing intervals at the earliest end is optimal for the number of instants.
package struct KeepAliveSchedule: Sendable, Equatable {
    private var beginnings = DeadlineQueue()
    private var aims = DeadlineQueue()
    /// Applies to windows set from now on.
    package var lead: Duration

    package init(lead: Duration) {
        self.lead = lead
    }

    package var count: Int { aims.count }

    /// The next instant at which the timer must fire.
    package var nextDeadline: Instant? { aims.first?.instant }

    package func contains(_ slot: UInt32) -> Bool { aims[slot] != nil }

    /// Sets the window of a client, replacing an earlier one; `nil` removes it.
    package mutating func set(_ slot: UInt32, to window: Window?) {
        beginnings.set(slot, to: window?.earliest)
        aims.set(slot, to: window.map { max($0.earliest, $0.latest - lead) })
    }

    /// The window of a client, less the lead.
    package func window(_ slot: UInt32) -> Window? {
        guard let earliest = beginnings[slot], let latest = aims[slot] else { return nil }
        return Window(earliest: earliest, latest: latest)
    }

    /// Whether the timer is due for any client.
    package func isDue(at now: Instant) -> Bool {
        guard let aim = aims.first?.instant else { return false }
        return aim <= now
    }

    /// Whether any window has begun by then.
    package func hasBegun(by end: Instant) -> Bool { beginnings.first.map { $0.instant <= end } ?? false }

    /// Whether the window of this client has begun.
    package func hasBegun(_ slot: UInt32, at now: Instant) -> Bool {
        guard let beginning = beginnings[slot] else { return false }
        return beginning <= now
    }

    /// Removes and returns one client for which the timer would fire by then, the first one first.
    package mutating func popAimed(at end: Instant) -> UInt32? {
        guard let slot = aims.popDue(at: end) else { return nil }
        beginnings.set(slot, to: nil)
        return slot
    }

    /// Removes and returns one client inside its window, earliest beginning first.
    package mutating func popBegun(at now: Instant) -> UInt32? {
        guard let slot = beginnings.popDue(at: now) else { return nil }
        aims.set(slot, to: nil)
        return slot
    }
}
