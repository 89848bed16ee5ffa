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

    /// Has the descriptor count once, by the time that it is readable, ended or broken; then not before the next
    /// call. `collect` tells which it was by `mark`, which is not 0.
    package borrowing func watchOnce(_ member: CInt, mark: UInt64) throws(SystemError) {
        let events = EPOLLIN.rawValue | EPOLLRDHUP.rawValue | EPOLLONESHOT.rawValue
        do {
            try control(EPOLL_CTL_MOD, member, events, mark: mark)
        } catch {
            guard error.code == ENOENT else { throw error }
            try control(EPOLL_CTL_ADD, member, events, mark: mark)
        }
    }

    package enum Repetition: Sendable, Hashable {
        /// As `watchOnce`.
        case once
        /// Whenever there is more, but not for what there was already.
        case edges
    }

    /// Watches a descriptor that is new to the set. `EEXIST`: it is not.
    package borrowing func add(
        _ member: CInt, _ repetition: Repetition, mark: UInt64
    ) throws(SystemError) {
        let events = EPOLLIN.rawValue | EPOLLRDHUP.rawValue
        let mode = repetition == .once ? EPOLLONESHOT.rawValue : EPOLLET.rawValue
        try control(EPOLL_CTL_ADD, member, events | mode, mark: mark)
    }

    /// Has a descriptor with a mark count no more; an error or a hang-up may do so once.
    package borrowing func ignore(_ member: CInt, mark: UInt64) throws(SystemError) {
        try control(EPOLL_CTL_MOD, member, EPOLLET.rawValue, mark: mark)
    }

    /// What `watchOnce` has found: at most `limit` of them.
    ///
    /// - Parameter waits: until anything of the set is ready, what was added without a mark included; else it returns
    ///   at once.
    package borrowing func collect(
        limit: Int, waits: Bool = false, _ body: (_ mark: UInt64, _ readiness: Readiness) -> Void
    ) {
        let rawValue = descriptor.rawValue
        unsafe withUnsafeTemporaryAllocation(of: epoll_event.self, capacity: limit) { events in
            let count = unsafe epoll_wait(rawValue, events.baseAddress, CInt(limit), waits ? -1 : 0)
            for index in 0..<max(0, Int(count)) {
                let event = unsafe events[index]
                let mark = unsafe event.data.u64
                if mark != 0 { body(mark, unsafe Readiness(events: CInt(truncatingIfNeeded: event.events))) }
            }
        }
    }

    /// Must come before the member is closed: a duplicate of it elsewhere would keep it in the set.
    package borrowing func remove(_ member: CInt) throws(SystemError) {
        try control(EPOLL_CTL_DEL, member, 0)
    }

    private borrowing func control(
        _ operation: CInt, _ member: CInt, _ events: UInt32, mark: UInt64 = 0
    ) throws(SystemError) {
        var event = unsafe epoll_event()
        unsafe event.events = events
        unsafe event.data.u64 = mark
        let rawValue = descriptor.rawValue
        _ = try systemCall("epoll_ctl") { unsafe epoll_ctl(rawValue, operation, member, &event) }
    }
}
