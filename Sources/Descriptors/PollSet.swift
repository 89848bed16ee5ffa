import CLinux
import Glibc

/// A descriptor that is readable while any of several others is ready (`epoll(7)`, level-triggered), for those who
/// want to hand one descriptor to somebody else's event loop.
package struct PollSet: ~Copyable, Sendable {
    private let descriptor: OwnedDescriptor

    package init() throws(SystemError) {
        descriptor = OwnedDescriptor(
            adopting: try systemCall("epoll_create1") { epoll_create1(CInt(EPOLL_CLOEXEC)) })
    }

    package var rawValue: CInt { descriptor.rawValue }

    /// Adds a descriptor that counts while there is something to read from it.
    package borrowing func add(_ member: CInt) throws(SystemError) {
        try control(EPOLL_CTL_ADD, member, EPOLLIN.rawValue)
    }

    /// Has the descriptor also count while it can be written to, or no longer.
    package borrowing func change(_ member: CInt, writable: Bool) throws(SystemError) {
        try control(EPOLL_CTL_MOD, member, EPOLLIN.rawValue | (writable ? EPOLLOUT.rawValue : 0))
    }

    /// Must come before the member is closed: a duplicate of it elsewhere would keep it in the set.
    package borrowing func remove(_ member: CInt) throws(SystemError) {
        try control(EPOLL_CTL_DEL, member, 0)
    }

    private borrowing func control(
        _ operation: CInt, _ member: CInt, _ events: UInt32
    ) throws(SystemError) {
        var event = unsafe epoll_event()
        unsafe event.events = events
        let rawValue = descriptor.rawValue
        _ = try systemCall("epoll_ctl") { unsafe epoll_ctl(rawValue, operation, member, &event) }
    }
}
