/// Something that the edge does wrong: the mistakes outside the core that the simulator must find as well. (Those
/// inside it are `Mutation`s.)
package enum Fault: String, Sendable, CaseIterable {
    /// A socket is not watched although the core asked for it.
    case armForgotten
    /// A client is not thawed.
    case thawForgotten
    /// A client is told of its wake before it is thawed.
    case thawAfterWake
    /// A socket fires and the core does not hear of it.
    case firingLost
    /// The timer comes a second late.
    case timerLate
    /// A process is reported frozen and runs on.
    case freezeInvented
    /// The message that tells of a wake gets lost.
    case wakeLost
    /// A released socket stays open.
    case closeForgotten
    /// A message is taken for another client's.
    case senderMistaken
    /// One event is left out when the events are fed again.
    case replayIncomplete
}
