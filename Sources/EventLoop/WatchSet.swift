import CLinux
import Descriptors
import Glibc

/// Descriptors that are watched with nothing kept for each but what the kernel keeps: an epoll set.
///
/// For what there are thousands of: of each, libevent would keep an event and a list of events (160 bytes), and leave
/// its own epoll set and enter it again for each event that is reported once. Confined to the loop's thread.
@safe
package struct WatchSet: ~Copyable {
    package enum Mode: Sendable, Hashable {
        /// Reported once, by the time that there is something to read, the end or an error; then not before it is armed
        /// again.
        case oneShot
        /// Reported when it is armed while there is something, and whenever there is more of it (`EPOLLET`).
        case edge
        /// Reported in every turn in which there is something.
        case persistent
    }

    private let descriptor: OwnedDescriptor
    private let found: UnsafeMutablePointer<epoll_event>

    /// Asked for at once at most; if there are more, the set is still ready.
    private static let capacity: CInt = 1_024
    /// Tokens of the loop's own members. Nobody else's may have them.
    static let bell = UInt64.max
    static let libevent = UInt64.max - 1
    private static let otherSet = UInt64.max - 2

    init() throws(SystemError) {
        descriptor = OwnedDescriptor(
            adopting: try systemCall("epoll_create1") { epoll_create1(CInt(EPOLL_CLOEXEC)) })
        unsafe found = .allocate(capacity: Int(Self.capacity))
    }

    deinit {
        unsafe found.deallocate()
    }

    /// Watches a descriptor, which stays the caller's. What is true already counts, also of one that is armed.
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
        case .persistent: break
        }
        unsafe event.data.u64 = token
        let operation = isMember ? EPOLL_CTL_MOD : EPOLL_CTL_ADD
        guard unsafe epoll_ctl(descriptor.rawValue, operation, member, &event) == 0 else {
            throw LoopError(code: .cannotArm, underlying: SystemError("epoll_ctl"))
        }
    }

    /// Watches another set, once: `collect` tells.
    borrowing func arm(_ other: borrowing WatchSet, isMember: Bool) throws(LoopError) {
        try arm(other.descriptor.rawValue, .oneShot, isMember: isMember, token: Self.otherSet)
    }

    /// Ceases to watch a member. Before it is closed: a duplicate of it elsewhere would keep it in the set. An event
    /// already gathered is still delivered.
    package borrowing func remove(_ member: CInt) {
        _ = epoll_ctl(descriptor.rawValue, EPOLL_CTL_DEL, member, nil)
    }

    /// Takes what has happened.
    ///
    /// - Parameters:
    ///   - milliseconds: waits for so long, or until something has, or a signal was caught; -1: without end.
    ///   - limit: takes no more. What is left is found by the next call, before what this one took is found again.
    /// - Returns: whether something has happened in the other set that is watched.
    borrowing func collect(
        into gathering: UnsafeMutablePointer<Gathering>, milliseconds: CInt, atMost limit: Int = .max
    ) throws(LoopError) -> Bool {
        let limit = min(CInt(clamping: limit), Self.capacity)
        let count = unsafe epoll_wait(descriptor.rawValue, found, limit, milliseconds)
        guard count >= 0 || errno == EINTR else {
            throw LoopError(code: .cannotRun, underlying: SystemError("epoll_wait"))
        }
        var isOtherReady = false
        for index in 0..<max(0, Int(count)) {
            switch unsafe found[index].data.u64 {
            case Self.bell: unsafe gathering.pointee.bellRang = true
            case Self.libevent: unsafe gathering.pointee.isLibeventReady = true
            case Self.otherSet: isOtherReady = true
            default: unsafe gathering.pointee.append(Ready(found[index]))
            }
        }
        return isOtherReady
    }
}

extension Ready {
    @unsafe fileprivate init(_ event: epoll_event) {
        let what = unsafe event.events
        unsafe self.init(
            token: event.data.u64,
            readable: what & (EPOLLIN.rawValue | EPOLLERR.rawValue | EPOLLHUP.rawValue) != 0,
            closed: what & EPOLLRDHUP.rawValue != 0)
    }
}

/// A watch of a descriptor in the loop's set; letting go of it ends it. Used on the loop's thread only.
package struct SetWatch: ~Copyable {
    private let loop: LoopExecutor
    private let token: UInt64
    private let descriptor: CInt
    private let mode: WatchSet.Mode
    /// Whether it was armed, and not disarmed since. One that is reported once stays in the set when it was.
    package private(set) var isArmed = false

    /// Not armed yet. The descriptor stays the caller's and must stay open until the watch is disarmed or gone.
    package init(_ descriptor: CInt, _ mode: WatchSet.Mode, token: UInt64, loop: LoopExecutor) {
        self.loop = loop
        self.token = token
        self.descriptor = descriptor
        self.mode = mode
    }

    deinit {
        if isArmed { loop.set.remove(descriptor) }
    }

    /// Starts to watch. What is true already counts: unread input is reported in the next turn.
    package mutating func arm() throws(LoopError) {
        try loop.set.arm(descriptor, mode, isMember: isArmed, token: token)
        isArmed = true
    }

    /// Stops watching. An event already gathered is still delivered.
    package mutating func disarm() {
        if isArmed { loop.set.remove(descriptor) }
        isArmed = false
    }
}
