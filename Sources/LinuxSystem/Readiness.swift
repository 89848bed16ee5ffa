import CLinux
import Glibc

/// The conditions of a descriptor. Inlinable, because they are tested for each event.
@usableFromInline package struct Readiness: OptionSet, Sendable, Hashable {
    @usableFromInline package let rawValue: UInt8
    @inlinable package init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Data or the end of the stream can be read.
    @inlinable package static var readable: Readiness { Readiness(rawValue: 1 << 0) }
    /// The peer will send no more; there may be bytes before the end.
    @inlinable package static var peerClosed: Readiness { Readiness(rawValue: 1 << 1) }
    /// Both directions are closed.
    @inlinable package static var hangUp: Readiness { Readiness(rawValue: 1 << 2) }
    /// An error is pending. Polling does not consume it.
    @inlinable package static var error: Readiness { Readiness(rawValue: 1 << 3) }
    @inlinable package static var writable: Readiness { Readiness(rawValue: 1 << 4) }
    /// Not an open descriptor.
    @inlinable package static var invalid: Readiness { Readiness(rawValue: 1 << 5) }

    /// The conditions that most callers need.
    package static let usual: Readiness = [.readable, .peerClosed, .writable]
}

/// `poll(2)` for one descriptor.
package enum Poll {
    /// The conditions of the descriptor at this moment. Never blocks and changes nothing.
    package static func now(_ descriptor: CInt) -> Readiness {
        wait(descriptor, timeoutMilliseconds: 0)
    }

    /// The conditions of several descriptors, with one system call.
    package static func now(_ descriptors: [CInt]) -> [Readiness] {
        let events = events(of: .usual)
        var entries = descriptors.map { pollfd(fd: $0, events: events, revents: 0) }
        while unsafe poll(&entries, nfds_t(entries.count), 0) == -1 {
            // The process has lowered its limit of descriptors below their number.
            if errno == EINVAL { return descriptors.map { now($0) } }
            precondition(errno == EINTR || errno == ENOMEM, "poll: errno \(errno)")
        }
        return entries.map { readiness(of: $0.revents) }
    }

    /// Waits until a condition of `interest` (or a hang-up or error, which always count) holds, or until the
    /// timeout; -1 waits without a limit. Empty after a timeout.
    package static func wait(
        _ descriptor: CInt, for interest: Readiness = .usual, timeoutMilliseconds: CInt
    ) -> Readiness {
        var entry = pollfd(fd: descriptor, events: events(of: interest), revents: 0)
        let deadline =
            timeoutMilliseconds > 0 ? BootClock.now() + Int64(timeoutMilliseconds) * 1_000_000 : 0
        var remaining = timeoutMilliseconds
        while unsafe poll(&entry, 1, remaining) == -1 {
            // Only an interruption is possible: the arguments are valid and there is one entry.
            precondition(errno == EINTR || errno == ENOMEM, "poll: errno \(errno)")
            if timeoutMilliseconds > 0 {
                remaining = CInt(max(0, (deadline - BootClock.now() + 999_999) / 1_000_000))
            }
        }
        return readiness(of: entry.revents)
    }

    private static func events(of interest: Readiness) -> CShort {
        var events: CInt = 0
        if interest.contains(.readable) { events |= POLLIN }
        if interest.contains(.peerClosed) { events |= CLINUX_POLLRDHUP }
        if interest.contains(.writable) { events |= POLLOUT }
        return CShort(events)
    }

    private static func readiness(of events: CShort) -> Readiness {
        Readiness(events: CInt(events))
    }
}

extension Readiness {
    /// The bits of `poll(2)`, which are those of `epoll(7)`.
    init(events: CInt) {
        var readiness: Readiness = []
        if events & POLLIN != 0 { readiness.insert(.readable) }
        if events & CLINUX_POLLRDHUP != 0 { readiness.insert(.peerClosed) }
        if events & POLLHUP != 0 { readiness.insert(.hangUp) }
        if events & POLLERR != 0 { readiness.insert(.error) }
        if events & POLLOUT != 0 { readiness.insert(.writable) }
        if events & POLLNVAL != 0 { readiness.insert(.invalid) }
        self = readiness
    }
}
