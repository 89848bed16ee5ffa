import Descriptors

/// One descriptor that is readable whenever the library has something to do: a set of the control socket, a timer
/// and a flag. It stays the same when the connection changes.
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

    /// Also watches whether it can be written to, or no longer.
    borrowing func change(_ descriptor: CInt, writable: Bool) {
        // It is in the set as long as there is a connection: nothing can fail, here and in what follows.
        try? members.change(descriptor, writable: writable)
    }

    borrowing func remove(_ descriptor: CInt) {
        try? members.remove(descriptor)
    }

    /// Becomes readable once when there is something to read from this descriptor; `collect` tells of it. False: it
    /// is closed.
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

    /// Becomes readable at this time of `BootClock`; nil: does not by itself.
    borrowing func setTimer(_ deadline: Int64?) {
        try? timer.set(absoluteNanoseconds: deadline)
    }

    borrowing func raiseFlag() { try? flag.signal() }

    borrowing func lowerFlag() { try? flag.clear() }

    /// Blocks until there is something to do.
    borrowing func wait() {
        _ = Poll.wait(members.rawValue, for: .readable, timeoutMilliseconds: -1)
    }
}
