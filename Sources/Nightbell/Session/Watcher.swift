import Descriptors
import Glibc

/// One descriptor that is readable whenever the library has something to do: an epoll set of the control
/// socket, a timer and a flag. It stays the same when the connection changes.
struct Watcher: ~Copyable, Sendable {
    private let epoll: OwnedDescriptor
    private let timer: TimerDescriptor
    private let flag: EventDescriptor

    init() throws(NightbellError) {
        do {
            epoll = OwnedDescriptor(
                adopting: try systemCall("epoll_create1") { epoll_create1(CInt(EPOLL_CLOEXEC.rawValue)) })
            timer = try TimerDescriptor()
            flag = try EventDescriptor()
            try Self.control(epoll.rawValue, EPOLL_CTL_ADD, timer.rawValue, EPOLLIN.rawValue)
            try Self.control(epoll.rawValue, EPOLL_CTL_ADD, flag.rawValue, EPOLLIN.rawValue)
        } catch {
            throw NightbellError(.system, error.description, errorNumber: error.code)
        }
    }

    var rawValue: CInt { epoll.rawValue }

    borrowing func add(_ descriptor: CInt) throws(NightbellError) {
        do {
            try Self.control(epoll.rawValue, EPOLL_CTL_ADD, descriptor, EPOLLIN.rawValue)
        } catch {
            throw NightbellError(.system, error.description, errorNumber: error.code)
        }
    }

    /// Also watches whether it can be written to, or no longer.
    borrowing func change(_ descriptor: CInt, writable: Bool) {
        let events = EPOLLIN.rawValue | (writable ? EPOLLOUT.rawValue : 0)
        // It is in the set as long as there is a connection: nothing else can fail.
        try? Self.control(epoll.rawValue, EPOLL_CTL_MOD, descriptor, events)
    }

    borrowing func remove(_ descriptor: CInt) {
        try? Self.control(epoll.rawValue, EPOLL_CTL_DEL, descriptor, 0)
    }

    /// Becomes readable at this time of `BootClock`; nil: does not by itself.
    borrowing func setTimer(_ deadline: Int64?) {
        try? timer.set(absoluteNanoseconds: deadline)
    }

    borrowing func raiseFlag() { try? flag.signal() }

    borrowing func lowerFlag() { try? flag.clear() }

    /// Blocks until there is something to do.
    borrowing func wait() {
        _ = Poll.wait(epoll.rawValue, for: .readable, timeoutMilliseconds: -1)
    }

    private static func control(
        _ epoll: CInt, _ operation: CInt, _ descriptor: CInt, _ events: UInt32
    ) throws(SystemError) {
        var event = epoll_event()
        event.events = events
        _ = try systemCall("epoll_ctl") { unsafe epoll_ctl(epoll, operation, descriptor, &event) }
    }
}
