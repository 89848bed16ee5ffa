package import NightbellCore

/// What must hold in every world after every step. Each is derived from the rules, never from what the core
/// believes.
package enum Invariant: String, Sendable, CaseIterable {
    /// No significant byte, and no end of a connection, waits in a sleeping client's socket longer than
    /// `World.wakeBound`; whoever sleeps is told of everything that fired, exactly once.
    case wakeBound
    /// No keep-alive handler runs before its window or after its end, and everyone inside its window runs along
    /// when somebody is woken.
    case keepAlive
    /// Pings are dealt with for those who sleep and have vouched for their sockets, and for nobody else; in their
    /// windows; noise wakes nobody unless there is too much of it, and a missing answer does.
    case offload
    /// Every step has its budget, and is told it: nobody is stopped or ended before it is over, nobody goes on after
    /// it, whoever holds background tasks is warned in time, and every overrun is recorded.
    case budgets
    /// Nobody with a background task or playing media is suspended, and nobody without a reason stays awake.
    case assertions
    /// Nobody is frozen without being recorded as such, believed to be frozen while it runs, or told anything
    /// before it has been thawed.
    case frozen
    /// A released token names nothing any more, and nobody can use another's.
    case tokens
    /// Every counter says what happened; quotas hold; nothing leaks.
    case counters
    /// Every request is answered once, in its turn, to the one who asked, and as the rules have it: refused only for
    /// a reason that holds.
    case answers
    /// Too many wakes are noticed, and have the consequence that the client asked for.
    case wakeLimit
    /// Who has ended comes back when it must and not otherwise, with what it left, and without a storm.
    case launches
    /// A client that may be called is never without an armed socket, a timer or a pending launch; one that has nothing of
    /// these by its own doing is shown as such.
    case reach
    /// The supervisor leaves nobody asleep when it stops.
    case stop
    /// When a supervisor dies at any moment, the next one goes on: whoever was to be told is told, nothing is
    /// adopted, granted or refused twice, background tasks and their time go on, and nothing that was counted is
    /// forgotten.
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
        "\(invariant.rawValue): \(message) (step \(step), at \(Wording.time(at)))"
    }
}
