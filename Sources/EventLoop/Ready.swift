/// What a loop turn found out about one watch.
package struct Ready: Sendable, Hashable {
    /// What the watch was made with. The watch may have been disarmed, or its descriptor closed, between the
    /// event and the turn: who uses a slot again gives it another token.
    package var token: UInt64
    /// There is something to read, the end, or an error; or the signal was caught.
    package var readable: Bool
    /// The peer will send no more (`EPOLLRDHUP`). Only told of what is watched in the loop's ``WatchSet``.
    package var closed: Bool
    package var writable: Bool
    /// The loop's `early` has dealt with it before the turn.
    package internal(set) var isDealt = false

    package init(token: UInt64, readable: Bool = false, closed: Bool = false, writable: Bool = false) {
        self.token = token
        self.readable = readable
        self.closed = closed
        self.writable = writable
    }
}

/// What a watch of libevent's waits for. The end of input is readable; errors and hang-ups are reported as both.
package struct Interest: OptionSet, Sendable, Hashable {
    package let rawValue: UInt8
    package init(rawValue: UInt8) { self.rawValue = rawValue }

    package static let read = Interest(rawValue: 1 << 0)
    package static let write = Interest(rawValue: 1 << 1)
}

package enum WatchMode: Sendable, Hashable {
    /// Disarmed by its first event.
    case oneShot
    /// Armed until it is disarmed; reported in every turn in which its condition holds.
    case persistent
}
