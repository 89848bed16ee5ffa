/// A mistake outside the core, in the edge, that the simulator must find as well. (A mistake in the core is a
/// `Mutation`.)
package enum Fault: String, Sendable, CaseIterable {
    /// A socket is not watched although the core asked for it.
    case armForgotten
    /// A client is not thawed.
    case thawForgotten
    /// A client is told of its wake before it is thawed.
    case thawAfterWake
    /// A socket fires and the core gets no event.
    case firingLost
    /// The timer comes a second late.
    case timerLate
    /// A process is reported frozen and runs on.
    case freezeInvented
    /// The message of a wake is lost.
    case wakeLost
    /// A released socket stays open.
    case closeForgotten
    /// A message is taken for another client's.
    case senderMistaken
    /// One event is left out of the replay.
    case replayIncomplete
}
