package import NightbellCore

/// The properties that hold in every world after every step. Each is derived from the rules, never from the
/// state of the core.
package enum Invariant: String, Sendable, CaseIterable {
    /// No significant byte, and no end of a connection, waits in a sleeping client's socket longer than
    /// `World.wakeBound`; a sleeping client is told of everything that fired, exactly once.
    case wakeBound
    /// No keep-alive handler runs before its window or after its end, and every client inside its window runs
    /// along with any wake.
    case keepAlive
    /// Pings are handled only for clients that sleep and have vouched for their sockets, and in their
    /// windows; noise wakes no client unless there is too much of it, and a missing answer does.
    case offload
    /// Every step has its budget, and the client is told it: no client is stopped or ended before it is over,
    /// none runs on after it, a client with background tasks is warned in time, and every overrun is
    /// recorded.
    case budgets
    /// No client with a background task or playing media is suspended, and no client stays awake without a
    /// reason.
    case assertions
    /// No client is stopped without being recorded as such, recorded as stopped while it runs, or sent a
    /// message before it has been thawed.
    case frozen
    /// A released token names nothing any more, and no client can use a token of another.
    case tokens
    /// Every counter equals the number of events; quotas hold; nothing leaks.
    case counters
    /// Every request is answered once, in order, to its sender, and by the rules: it is refused only for a
    /// valid reason.
    case answers
    /// Another network is told once to each client that wants to know, with all sockets that cannot work; a
    /// socket with an address that is gone is told to any client.
    case network
    /// Media counts as playing while its best witness says so, ends in time, and is observed only while it
    /// can matter.
    case media
    /// Too many wakes are detected, and have the consequence that the client asked for.
    case wakeLimit
    /// An ended client is launched again when it must be and not otherwise, with its saved state and sockets,
    /// and without a storm.
    case launches
    /// A client that may be called is never without an armed socket, a timer or a pending launch; one that
    /// gave all of them up itself is shown as out of reach.
    case reach
    /// No client is fetched before its floor, in the foreground or without a network, suspended while it
    /// fetches, or left to go on after its time. (`FetchLife`)
    case fetches
    /// Each occurrence is told to the client that observes its subject, once, and to no other.
    /// (`ObservationLife`)
    case observations
    /// A client is told of the pushes that wait for it, no more often and no sooner than it may be, again if it
    /// has failed, and never in vain; it is not suspended while it handles them, nor left to go on after its
    /// time. (`PushLife`)
    case pushes
    /// No notification is shown before its time, after it was cancelled, or while its client is in the
    /// foreground; none is lost, and of too many the soonest stay. (`NotificationLife`)
    case notifications
    /// A supervisor that stops leaves no client asleep.
    case stop
    /// A supervisor may die at any moment; the next one sends every pending wake, adopts, grants or refuses
    /// nothing twice, continues background tasks and their time, and loses no count.
    case restart
    /// The same events give the same actions and the same state.
    case replay
}

/// An invariant that did not hold.
package struct Violation: Sendable, Equatable, CustomStringConvertible {
    package var invariant: Invariant
    package var step: Int
    package var at: Instant
    package var message: String

    package var description: String {
        "\(invariant.rawValue): \(message) (step \(step), at \(TraceFormat.time(at)))"
    }
}
