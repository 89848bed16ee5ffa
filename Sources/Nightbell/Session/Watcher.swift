import LinuxSystem

/// One descriptor that is readable whenever the library has work: a poll set of the control socket, a timer
/// and an eventfd. It stays the same when the connection changes.
struct Watcher: ~Copyable, Sendable {
    private let members: PollSet
    private let timer: TimerDescriptor
    private let flag: EventDescriptor

    init() throws(SystemError) {
        // All or nothing: the compiler cannot undo half of it.
        let members = try PollSet()
        let timer = try TimerDescriptor()
        let flag = try EventDescriptor()
        try members.add(timer.rawValue)
        try members.add(flag.rawValue)
        self.members = members
        self.timer = timer
        self.flag = flag
    }

    var rawValue: CInt { members.rawValue }

    borrowing func add(_ descriptor: CInt) throws(SystemError) {
        try members.add(descriptor)
    }

    /// Also watches whether the descriptor is writable, or stops doing so.
    borrowing func change(_ descriptor: CInt, writable: Bool) {
        // The descriptor is in the set as long as there is a connection, so neither this nor the following
        // can fail.
        try? members.change(descriptor, writable: writable)
    }

    borrowing func remove(_ descriptor: CInt) {
        try? members.remove(descriptor)
    }

    /// Becomes readable once when this descriptor is readable; `collect` reports it. False: the descriptor is
    /// closed.
    borrowing func watchOnce(_ descriptor: CInt, mark: UInt64) -> Bool {
        do {
            try members.watchOnce(descriptor, mark: mark)
            return true
        } catch {
            return false
        }
    }

    borrowing func collect(limit: Int, _ body: (_ mark: UInt64, _ readiness: Readiness) -> Void) {
        members.collect(limit: limit, body)
    }

    /// Becomes readable at this time of `BootClock`; nil: no timer.
    borrowing func setTimer(_ deadline: Int64?) {
        try? timer.set(absoluteNanoseconds: deadline)
    }

    borrowing func raiseFlag() { try? flag.signal() }

    borrowing func lowerFlag() { _ = try? flag.clear() }

    /// Blocks until there is work.
    borrowing func wait() {
        _ = Poll.wait(members.rawValue, for: .readable, timeoutMilliseconds: -1)
    }
}
