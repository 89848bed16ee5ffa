/// One event of a watch or of the urgent set.
package struct Ready: Sendable, Hashable {
    /// The token of the watch. The watch may have been disarmed, or its descriptor closed, between the event
    /// and the turn: a slot that is used again must get another token.
    package var token: UInt64
    /// There is something to read, the end of input, or an error; or the signal was caught.
    package var readable: Bool
    /// The peer sends nothing more (`EPOLLRDHUP`). Only members of an ``EpollSet`` report it.
    package var closed: Bool
    package var writable: Bool
    /// An error or a hang-up (`EPOLLERR`, `EPOLLHUP`), which is readable as well. Only members of an
    /// ``EpollSet`` report it.
    package var failed: Bool
    /// There is unread urgent data (`EPOLLPRI`). Only members armed for it report it.
    package var hasUrgentData: Bool
    /// ``LoopExecutor/onUrgent`` has dealt with it before the turn.
    package internal(set) var wasHandledEarly = false

    package init(
        token: UInt64, readable: Bool = false, closed: Bool = false, writable: Bool = false,
        failed: Bool = false, hasUrgentData: Bool = false
    ) {
        self.token = token
        self.readable = readable
        self.closed = closed
        self.writable = writable
        self.failed = failed
        self.hasUrgentData = hasUrgentData
    }

    /// The event, and a later one of the same watch.
    package func union(_ later: Ready) -> Ready {
        Ready(
            token: token, readable: readable || later.readable, closed: closed || later.closed,
            writable: writable || later.writable, failed: failed || later.failed,
            hasUrgentData: hasUrgentData || later.hasUrgentData)
    }
}

/// The conditions that a watch waits for. The end of input is readable; errors and hang-ups are reported as
/// both.
package struct Interest: OptionSet, Sendable, Hashable {
    package let rawValue: UInt8
    package init(rawValue: UInt8) { self.rawValue = rawValue }

    package static let read = Interest(rawValue: 1 << 0)
    package static let write = Interest(rawValue: 1 << 1)
}

package enum WatchMode: Sendable, Hashable {
    /// The first event disarms it.
    case oneShot
    /// It stays armed until it is disarmed, and is reported in every turn in which its condition holds.
    case persistent
}
