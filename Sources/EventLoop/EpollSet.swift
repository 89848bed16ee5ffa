import CLinux
import Glibc
import LinuxSystem

/// A set of watched descriptors with all of its state in the kernel: an epoll set.
///
/// For parked sockets, of which there are thousands: a libevent event and its list take 160 bytes each, and
/// libevent leaves and enters its own epoll set for each one-shot event. Confined to the loop's thread.
@safe
package struct EpollSet: ~Copyable {
    package enum Mode: Sendable, Hashable {
        /// Reported once, when there is something to read, the end or an error; then not before it is armed
        /// again.
        case oneShot
        /// Reported when it is armed while a condition holds, and with each new arrival (`EPOLLET`).
        case edge
        /// As `edge`, and urgent data is reported as well (`EPOLLPRI`).
        case edgeWithUrgentData
    }

    private let descriptor: OwnedDescriptor
    private let found: UnsafeMutablePointer<epoll_event>

    /// The most events that one `collect` returns; if there are more, the set is still ready.
    private static let capacity: CInt = 1_024

    init() throws(SystemError) {
        descriptor = OwnedDescriptor(
            adopting: try systemCall("epoll_create1") { epoll_create1(CInt(EPOLL_CLOEXEC)) })
        unsafe found = .allocate(capacity: Int(Self.capacity))
    }

    deinit {
        unsafe found.deallocate()
    }

    /// Readable while the set has something to report.
    var rawValue: CInt { descriptor.rawValue }

    /// Whether it has something to report; that is not collected.
    package var isReady: Bool { !Poll.now(rawValue).isEmpty }

    /// Watches a descriptor, which stays the caller's. Conditions that already hold are reported, even when
    /// it is armed again.
    ///
    /// - Parameters:
    ///   - isMember: whether it was armed before, and not removed since.
    ///   - token: what its events carry.
    package borrowing func arm(
        _ member: CInt, _ mode: Mode, isMember: Bool, token: UInt64
    ) throws(LoopError) {
        var event = unsafe epoll_event()
        unsafe event.events = EPOLLIN.rawValue | EPOLLRDHUP.rawValue
        switch mode {
        case .oneShot: unsafe event.events |= EPOLLONESHOT.rawValue
        case .edge: unsafe event.events |= EPOLLET.rawValue
        case .edgeWithUrgentData: unsafe event.events |= EPOLLET.rawValue | EPOLLPRI.rawValue
        }
        unsafe event.data.u64 = token
        let operation = isMember ? EPOLL_CTL_MOD : EPOLL_CTL_ADD
        guard unsafe epoll_ctl(descriptor.rawValue, operation, member, &event) == 0 else {
            throw LoopError(code: .cannotArm, underlying: SystemError("epoll_ctl"))
        }
    }

    /// Stops watching a member. Call it before the member is closed: a duplicate elsewhere would keep it in
    /// the set. An event that was collected already is still delivered.
    package borrowing func remove(_ member: CInt) {
        _ = epoll_ctl(descriptor.rawValue, EPOLL_CTL_DEL, member, nil)
    }

    /// Collects events.
    ///
    /// - Parameters:
    ///   - milliseconds: how long to wait for an event; 0: not at all.
    ///   - limit: the most events to collect. The next call finds the rest, before it finds these again.
    /// - Returns: whether there may be more.
    borrowing func collect(
        into list: UnsafeMutablePointer<ReadyList>, milliseconds: CInt, atMost limit: Int
    ) throws(LoopError) -> Bool {
        let limit = min(CInt(clamping: limit), Self.capacity)
        let count = unsafe epoll_wait(descriptor.rawValue, found, limit, milliseconds)
        guard count >= 0 || errno == EINTR else {
            throw LoopError(code: .cannotRun, underlying: SystemError("epoll_wait"))
        }
        for index in 0..<max(0, Int(count)) { unsafe list.pointee.append(Ready(found[index])) }
        return count < 0 || count == limit
    }
}

extension Ready {
    @unsafe fileprivate init(_ event: epoll_event) {
        let what = unsafe event.events
        let failed = what & (EPOLLERR.rawValue | EPOLLHUP.rawValue) != 0
        unsafe self.init(
            token: event.data.u64, readable: failed || what & EPOLLIN.rawValue != 0,
            closed: what & EPOLLRDHUP.rawValue != 0, failed: failed,
            hasUrgentData: what & EPOLLPRI.rawValue != 0)
    }
}
