/// One event of a watch or of the urgent set.
package struct Ready: Sendable, Hashable {
    /// The token of the watch. The watch may have been disarmed, or its descriptor closed, between the event and the turn:
    /// a slot that is used again must get another token.
    package var token: UInt64
    /// There is something to read, the end of input, or an error; or the signal was caught.
    package var readable: Bool
    /// The peer sends nothing more (`EPOLLRDHUP`). Only members of an ``EpollSet`` report it.
    package var closed: Bool
    package var writable: Bool
    /// ``LoopExecutor/onUrgent`` has dealt with it before the turn.
    package internal(set) var wasHandledEarly = false

    package init(token: UInt64, readable: Bool = false, closed: Bool = false, writable: Bool = false) {
        self.token = token
        self.readable = readable
        self.closed = closed
        self.writable = writable
    }
}

/// The conditions that a watch waits for. The end of input is readable; errors and hang-ups are reported as both.
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
