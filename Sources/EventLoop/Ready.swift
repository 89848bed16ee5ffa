/// What a loop turn found out about one watch.
package struct Ready: Sendable, Hashable {
    /// What the watch was made with. The watch may have been disarmed, or its descriptor closed, between the
    /// event and the turn: who uses a slot again gives it another token.
    package var token: UInt64
    /// There is something to read, the end, or an error; or the signal was caught.
    package var readable: Bool
    /// The peer will send no more (`EPOLLRDHUP`). Never without interest in it.
    package var closed: Bool
    package var writable: Bool

    package init(token: UInt64, readable: Bool = false, closed: Bool = false, writable: Bool = false) {
        self.token = token
        self.readable = readable
        self.closed = closed
        self.writable = writable
    }
}

/// What a watch waits for. Errors and hang-ups are reported as readable and writable, to those interested in
/// either; `closed` alone would not see them, and the loop would spin.
package struct Interest: OptionSet, Sendable, Hashable {
    package let rawValue: UInt8
    package init(rawValue: UInt8) { self.rawValue = rawValue }

    package static let read = Interest(rawValue: 1 << 0)
    package static let write = Interest(rawValue: 1 << 1)
    package static let closed = Interest(rawValue: 1 << 2)
    /// `read` and `closed`, for thousands in a row: a literal of both is put together by generic code.
    package static let readOrClosed = Interest(rawValue: 1 << 0 | 1 << 2)
}

package enum WatchMode: Sendable, Hashable {
    /// Disarmed by its first event.
    case oneShot
    /// Armed until it is disarmed; reported in every turn in which its condition holds.
    case persistent
    /// Armed until it is disarmed; reported when it is armed while its condition holds, and whenever there is more
    /// of it (`EPOLLET`). All watches of one descriptor are of this kind, or none is.
    case edge
}
