package import EventLoop
import Glibc
import LinuxSystem

/// The only thread of a process beside the supervisor: handlers of descriptors, and timers that share one
/// descriptor. With nothing due it sleeps in libevent without a timeout.
package final class HandlerLoop {
    private let executor: LoopExecutor
    private let timerDescriptor: TimerDescriptor
    private var timerWatch: DescriptorWatch?
    /// By token. Those of timers get the events of no descriptor.
    private var handlers: [UInt64: (Ready) -> Void] = [:]
    private var deadlines: [UInt64: Int64] = [:]
    private var lastToken: UInt64 = 0
    /// The instant to which the timer's descriptor is set.
    private var armedDeadline: Int64?
    /// Called after the events of a turn, before the loop sleeps again.
    package var onTurnEnd: () -> Void = {}
    /// The reason why the loop cannot go on.
    private var failure: SystemError?

    package init() throws(HandlerError) {
        do throws(LoopError) {
            executor = try LoopExecutor()
        } catch {
            throw HandlerError.loop(error)
        }
        do throws(SystemError) {
            timerDescriptor = try TimerDescriptor()
        } catch {
            throw HandlerError.system(error)
        }
        do throws(LoopError) {
            timerWatch = try DescriptorWatch(self, timerDescriptor.rawValue, .read) { [unowned self] _ in
                fireTimers()
            }
        } catch {
            throw HandlerError.loop(error)
        }
    }

    /// Runs until `stop`.
    package func run() throws(HandlerError) {
        finishTurn()
        do throws(LoopError) {
            try executor.run { () throws(LoopError) -> Bool in try turn() }
        } catch {
            throw HandlerError.loop(error)
        }
        if let failure { throw HandlerError.system(failure) }
    }

    private func turn() throws(LoopError) -> Bool {
        _ = try executor.dispatch(waits: executor.mayWait)
        executor.deliver { batch in
            // A handler may remove the watch of a later event.
            for ready in batch { handlers[ready.token]?(ready) }
        }
        finishTurn()
        return true
    }

    /// Ends `run` after the current turn.
    package func stop() { executor.stop() }

    private func finishTurn() {
        onTurnEnd()
        let next = deadlines.values.min()
        guard next != armedDeadline else { return }
        armedDeadline = next
        do throws(SystemError) {
            try timerDescriptor.set(absoluteNanoseconds: next)
        } catch {
            failure = error
            stop()
        }
    }

    private func fireTimers() {
        // Unread, it would be reported again at once.
        try? timerDescriptor.clear()
        armedDeadline = nil
        let now = BootClock.now()
        for (token, deadline) in deadlines where deadline <= now {
            deadlines[token] = nil
            handlers[token]?(Ready(token: token))
        }
    }

    // MARK: Handlers

    fileprivate func register(_ handler: @escaping (Ready) -> Void) -> UInt64 {
        lastToken += 1
        handlers[lastToken] = handler
        return lastToken
    }

    fileprivate func unregister(_ token: UInt64) {
        handlers[token] = nil
        deadlines[token] = nil
    }

    fileprivate func setDeadline(_ deadline: Int64?, _ token: UInt64) { deadlines[token] = deadline }

    fileprivate func deadline(_ token: UInt64) -> Int64? { deadlines[token] }

    fileprivate func watch(
        _ descriptor: CInt, _ interest: Interest, _ token: UInt64
    ) throws(LoopError) -> Watch {
        try executor.watch(descriptor, interest, .persistent, token: token)
    }
}

/// The interest in one descriptor, which stays the caller's and must outlive this.
package final class DescriptorWatch {
    private let loop: HandlerLoop
    private let token: UInt64
    private let watch: Watch
    private var isArmed = false

    /// Armed at once if `isArmed`.
    package init(
        _ loop: HandlerLoop, _ descriptor: CInt, _ interest: Interest, isArmed: Bool = true,
        _ handler: @escaping (Ready) -> Void
    ) throws(LoopError) {
        let token = loop.register(handler)
        do throws(LoopError) {
            watch = try loop.watch(descriptor, interest, token)
        } catch {
            loop.unregister(token)
            throw error
        }
        self.loop = loop
        self.token = token
        try setArmed(isArmed)
    }

    deinit { loop.unregister(token) }

    package func setArmed(_ isArmed: Bool) throws(LoopError) {
        guard isArmed != self.isArmed else { return }
        if isArmed { try watch.arm() } else { watch.disarm() }
        self.isArmed = isArmed
    }
}

/// A deadline with a handler. It fires once for each time that it is set.
package final class LoopTimer {
    private let loop: HandlerLoop
    private let token: UInt64

    package init(_ loop: HandlerLoop, _ handler: @escaping () -> Void) {
        self.loop = loop
        token = loop.register { _ in handler() }
    }

    deinit { loop.unregister(token) }

    /// The instant of `BootClock` at which it fires; nil: never.
    package var deadline: Int64? {
        get { loop.deadline(token) }
        set { loop.setDeadline(newValue, token) }
    }

    package func set(milliseconds: Int64) { deadline = BootClock.now() + milliseconds * 1_000_000 }
}
