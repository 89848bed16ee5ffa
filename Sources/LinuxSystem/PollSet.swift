import CLinux
import Glibc

/// A descriptor that is readable while any of several others is ready (`epoll(7)`, level-triggered), for
/// embedding in another event loop.
package struct PollSet: ~Copyable, Sendable {
    private let descriptor: OwnedDescriptor

    package init() throws(SystemError) {
        descriptor = OwnedDescriptor(
            adopting: try systemCall("epoll_create1") { epoll_create1(CInt(EPOLL_CLOEXEC)) })
    }

    package var rawValue: CInt { descriptor.rawValue }

    /// Adds a descriptor that counts while it is readable.
    package borrowing func add(_ member: CInt) throws(SystemError) {
        try control(EPOLL_CTL_ADD, member, EPOLLIN.rawValue)
    }

    /// Sets whether the descriptor also counts while it is writable.
    package borrowing func change(_ member: CInt, writable: Bool) throws(SystemError) {
        try control(EPOLL_CTL_MOD, member, EPOLLIN.rawValue | (writable ? EPOLLOUT.rawValue : 0))
    }

    /// Reports the descriptor once when it is readable, ended or broken; then not before the next call.
    /// `collect` identifies it by `mark`, which is not 0.
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
        /// Like `watchOnce`.
        case once
        /// On new events only, not on the present state.
        case edges
    }

    /// Adds a descriptor to the set. `EEXIST`: it is in the set already.
    package borrowing func add(
        _ member: CInt, _ repetition: Repetition, mark: UInt64
    ) throws(SystemError) {
        let events = EPOLLIN.rawValue | EPOLLRDHUP.rawValue
        let mode = repetition == .once ? EPOLLONESHOT.rawValue : EPOLLET.rawValue
        try control(EPOLL_CTL_ADD, member, events | mode, mark: mark)
    }

    /// Stops reporting a descriptor with a mark; an error or a hang-up may still be reported once.
    package borrowing func ignore(_ member: CInt, mark: UInt64) throws(SystemError) {
        try control(EPOLL_CTL_MOD, member, EPOLLET.rawValue, mark: mark)
    }

    /// The events found by `watchOnce`, at most `limit`.
    ///
    /// - Parameter waits: whether to block until any member is ready, those without a mark included;
    ///   otherwise it returns at once.
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

    /// Call it before the member is closed: a duplicate of it elsewhere would keep it in the set.
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
