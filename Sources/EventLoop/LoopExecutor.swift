import CLibevent
import CLinux
import Glibc
import LinuxSystem
import Synchronization

/// One libevent loop on one thread, which is also the serial executor of the actors that live there.
///
/// Parked sockets are members of an epoll set of their own (``urgent``), which libevent watches as its most
/// urgent event; everything else is a libevent event (``Watch``). Callbacks record events; that of the urgent
/// set also calls ``onUrgent``. A turn of `run` gathers with ``dispatch(waits:)`` and
/// ``collectUrgent(waiting:atMost:)``, delivers the events as one batch, and then runs the queued jobs: the
/// actor is entered once per turn, not once per event, and no `Task` is made. With nothing due the thread
/// sleeps in libevent without a timeout.
///
/// The executor outlives its actors and its watches: both hold it.
///
/// Sendable: the inbox and `owner` are made for all threads. All else is confined to the loop's thread, or,
/// while the loop does not run, to the thread that makes the watches and calls `run` afterwards.
@safe
package final class LoopExecutor: SerialExecutor, @unchecked Sendable {
    let base: OpaquePointer
    private let list: UnsafeMutablePointer<ReadyList>
    private let inbox = Inbox()
    /// Readable when another thread put something into the inbox.
    private let wakeupEvent: EventDescriptor
    /// The parked sockets, which must be handled before a turn begins.
    package let urgent: EpollSet
    /// Called with each urgent event as soon as it is collected, before the turn. True: it was handled, see
    /// ``Ready/wasHandledEarly``.
    package var onUrgent: (_ ready: Ready) -> Bool = { _ in false }
    /// libevent's events for `wakeupEvent` and `urgent`.
    private let ownEvents: UnsafeMutablePointer<event>
    /// Whether an event of the urgent set ends the current pass of libevent.
    private var stopsAtUrgent = true
    /// Whether the current pass has collected events of the urgent set.
    private var hasCollected = false
    /// Whether the next turn begins at once, also without an event.
    package var hasWork = false
    /// Events that are not urgent, of the current pass.
    private var reported = 0
    /// Why the urgent set could not be collected in the current pass.
    private var urgentFailure: LoopError?
    /// The thread inside `run`, 0 when there is none.
    private let owner = Atomic<UInt>(0)
    /// Empty between turns; kept for its capacity.
    private var jobs: [UnownedJob] = []

    /// One pass of libevent reports at most this many events that are not urgent; the rest stays queued in
    /// libevent. A turn with more of them would take some 1.5 ms, and wakes would wait for it.
    private static let portion = 64

    package init() throws(LoopError) {
        do {
            wakeupEvent = try EventDescriptor()
            urgent = try EpollSet()
            try Self.requireDescriptors()
        } catch {
            throw LoopError(code: .cannotCreate, underlying: error)
        }
        guard let base = unsafe Self.makeBase() else {
            throw LoopError(code: .cannotCreate, underlying: SystemError("event_base_new_with_config"))
        }
        unsafe self.base = base
        unsafe list = .allocate(capacity: 1)
        unsafe list.initialize(to: ReadyList())
        unsafe ownEvents = .allocate(capacity: 2)
        unsafe ownEvents.initialize(repeating: event(), count: 2)
        try unsafe watchOwn(ownEvents, wakeupEvent.rawValue, EV_READ, priority: 1) { _, _, loop in
            unsafe LoopExecutor.from(loop).list.pointee.isWakeupSignalled = true
        }
        // Reported with each new event in it: otherwise the kernel would look into it once more after each
        // collection.
        try unsafe watchOwn(ownEvents + 1, urgent.rawValue, EV_READ | EV_ET, priority: 0) { _, _, loop in
            unsafe LoopExecutor.from(loop).reportUrgent()
        }
    }

    deinit {
        for index in 0..<2 { unsafe event_del(ownEvents + index) }
        unsafe ownEvents.deallocate()
        unsafe event_base_free(base)
        unsafe list.deinitialize(count: 1)
        unsafe list.deallocate()
    }

    /// A loop for one thread, with two priorities. The environment is ignored, because it can switch on the
    /// changelist, which would merge operations on duplicates that must stay separate.
    private static func makeBase() -> OpaquePointer? {
        guard let config = unsafe event_config_new() else { return nil }
        defer { unsafe event_config_free(config) }
        // Its timers are not used, so it needs no time.
        let flags =
            EVENT_BASE_FLAG_NOLOCK.rawValue | EVENT_BASE_FLAG_IGNORE_ENV.rawValue
            | EVENT_BASE_FLAG_NO_CACHE_TIME.rawValue
        unsafe event_config_set_flag(config, CInt(flags))
        // epoll: it can watch another epoll set, and its cost does not depend on the number of descriptors.
        unsafe event_config_require_features(config, CInt(EV_FEATURE_O1.rawValue))
        let base = unsafe event_base_new_with_config(config)
        if let base = unsafe base { unsafe event_base_priority_init(base, 2) }
        return unsafe base
    }

    /// libevent ends the process when it cannot make its pair of sockets for signals. With epoll's, that is
    /// three.
    private static func requireDescriptors(_ count: Int = 3) throws(SystemError) {
        guard count > 0 else { return }
        let spare = try EventDescriptor()
        try requireDescriptors(count - 1)
        withExtendedLifetime(spare) {}
    }

    @unsafe private func watchOwn(
        _ event: UnsafeMutablePointer<event>, _ descriptor: CInt, _ what: CInt, priority: CInt,
        _ callback: event_callback_fn
    ) throws(LoopError) {
        let context = unsafe Unmanaged.passUnretained(self).toOpaque()
        let what = CShort(what | EV_PERSIST)
        guard unsafe event_assign(event, base, descriptor, what, callback, context) == 0,
            unsafe event_priority_set(event, priority) == 0, unsafe event_add(event, nil) == 0
        else { throw LoopError(code: .cannotCreate, underlying: SystemError("event_add")) }
    }

    @unsafe private static func from(_ context: UnsafeMutableRawPointer?) -> LoopExecutor {
        guard let context = unsafe context else { preconditionFailure("libevent lost an argument") }
        return unsafe Unmanaged<LoopExecutor>.fromOpaque(context).takeUnretainedValue()
    }

    // MARK: Running

    /// Runs the loop on the calling thread until `stop`, calling `turn` again and again. Jobs that were
    /// enqueued before it returns have run; later ones wait for another `run`.
    ///
    /// - Parameter turn: gathers events, and delivers them. False: there is more to deliver before jobs may
    ///   run.
    package func run(turn: () throws(LoopError) -> Bool) throws(LoopError) {
        try own { () throws(LoopError) in try runTurns(turn) }
    }

    /// Makes the calling thread the loop's while `body` runs. In it, an actor can be entered once for all
    /// turns: entering it takes some hundred instructions.
    package func own(_ body: () throws(LoopError) -> Void) throws(LoopError) {
        let (isFree, _) = owner.compareExchange(
            expected: 0, desired: UInt(pthread_self()), ordering: .relaxed)
        precondition(isFree, "a loop runs once at a time")
        defer { owner.store(0, ordering: .relaxed) }
        try body()
    }

    /// As `run`, inside of `own`.
    package func runTurns(_ turn: () throws(LoopError) -> Bool) throws(LoopError) {
        precondition(isOnLoop, "the thread is not the loop's")
        while !inbox.isStopRequested {
            guard try turn() else { continue }
            drainWakeup()
            runJobs()
        }
        while inbox.hasJobs { runJobs() }
        inbox.forgetStop()
    }

    /// The number of events gathered and not delivered yet.
    package var readyCount: Int { unsafe list.pointee.count }

    /// The number of events in the list that were handled early.
    package var handledEarlyCount: Int { unsafe list.pointee.handledEarly }

    /// Whether a turn may wait for an event: no gathered event, no job and no other work is pending. The
    /// loop's own thread signals no wakeup, so jobs that it has left for this turn must be checked for.
    package var mayWait: Bool {
        unsafe list.pointee.count == 0 && !list.pointee.isUrgentReady && !hasWork && inbox.isEmpty
    }

    /// One pass of libevent.
    ///
    /// - Parameter waits: blocks until there is an event. If an urgent socket is ready, the pass collects the
    ///   urgent events, and leaves others to the next pass.
    /// - Returns: whether the urgent set was ready. Unless `waits`, its events are still to be collected.
    package func dispatch(waits: Bool) throws(LoopError) -> Bool {
        stopsAtUrgent = waits
        hasCollected = false
        reported = 0
        setUrgentPriority()
        let flags = waits ? EVLOOP_ONCE : EVLOOP_ONCE | EVLOOP_NONBLOCK
        guard unsafe event_base_loop(base, flags) >= 0 else {
            throw LoopError(code: .cannotRun, underlying: SystemError("event_base_loop"))
        }
        if let failure = urgentFailure {
            urgentFailure = nil
            throw failure
        }
        return unsafe waits ? hasCollected : list.pointee.isUrgentReady
    }

    /// Whether libevent has found more events than it has reported.
    package var hasUnreported: Bool {
        unsafe event_base_get_num_events(base, CUnsignedInt(EVENT_BASE_COUNT_ACTIVE)) > 0
    }

    /// Collects the events of urgent sockets, and calls ``onUrgent`` with each.
    ///
    /// - Parameters:
    ///   - milliseconds: how long to wait for an event.
    ///   - limit: the most events to collect.
    /// - Returns: whether one of them was handled early.
    package func collectUrgent(
        waiting milliseconds: CInt, atMost limit: Int
    ) throws(LoopError) -> Bool {
        let first = unsafe list.pointee.count
        // The set is not reported for events that it has had before.
        unsafe list.pointee.isUrgentReady = true
        unsafe list.pointee.isUrgentReady =
            try urgent.collect(into: list, milliseconds: milliseconds, atMost: limit)
        var wasHandledEarly = false
        for index in first..<(unsafe list.pointee.count) where onUrgent(unsafe list.pointee[index]) {
            unsafe list.pointee.markHandledEarly(index)
            wasHandledEarly = true
        }
        return wasHandledEarly
    }

    /// Delivers the oldest gathered events, if there are any, or if there is work.
    package func deliver(atMost limit: Int = .max, to turn: (_ batch: [Ready]) -> Void) {
        guard unsafe list.pointee.count > 0 || hasWork else { return }
        let batch = unsafe list.pointee.removeFirst(atMost: limit)
        turn(batch)
        unsafe list.pointee.recycle(batch)
    }

    /// A watch's event.
    func report(_ ready: Ready) {
        unsafe list.pointee.append(ready)
        reported += 1
        if reported >= Self.portion { unsafe event_base_loopbreak(base) }
    }

    /// The urgent set is ready. In a pass that waits, its events are collected here: until the callback
    /// returns and libevent has left its loop, a sleeper would wait for code that the processor has to fetch
    /// first.
    private func reportUrgent() {
        guard !stopsAtUrgent else {
            do throws(LoopError) {
                _ = try collectUrgent(waiting: 0, atMost: .max)
            } catch {
                urgentFailure = error
            }
            hasCollected = true
            _ = unsafe event_base_loopbreak(base)
            return
        }
        unsafe list.pointee.isUrgentReady = true
        setUrgentPriority()
    }

    /// In a pass that does not wait, the urgent set stays ready until the pass is over: libevent would report
    /// it again and again before anything less urgent, and so has to take it for one of the others. It is not
    /// removed meanwhile: when an epoll set is added to another one, the kernel walks through all its
    /// members.
    private func setUrgentPriority() {
        // Fails, with no effect, if an earlier pass was ended before its callback was called.
        _ = unsafe event_priority_set(ownEvents + 1, stopsAtUrgent ? 0 : 1)
    }

    /// Ends `run` after the current turn, whole or not, and the queued jobs. Can be called from any thread;
    /// before `run` it ends the next one at once. Undelivered events are delivered by the next `run`.
    package func stop() {
        if inbox.requestStop() { signalWakeup() }
    }

    private func runJobs() {
        inbox.drain(into: &jobs)
        let executor = unsafe asUnownedSerialExecutor()
        for job in jobs { unsafe job.runSynchronously(on: executor) }
        jobs.removeAll(keepingCapacity: true)
    }

    // MARK: The executor

    package func enqueue(_ job: consuming ExecutorJob) {
        if inbox.append(UnownedJob(job)) { signalWakeup() }
    }

    package func isIsolatingCurrentContext() -> Bool? { isOnLoop }

    package func checkIsolated() {
        precondition(isOnLoop, "this is not the thread of the event loop")
    }

    /// Whether the caller is on the thread inside `run`. Only that thread could have stored its own identity,
    /// so no ordering is needed.
    private var isOnLoop: Bool { owner.load(ordering: .relaxed) == UInt(pthread_self()) }

    private func signalWakeup() {
        // The next turn of our own thread looks into the inbox before it waits.
        if isOnLoop { return }
        do {
            try wakeupEvent.signal()
        } catch {
            preconditionFailure("the loop cannot be woken: \(error)")
        }
    }

    private func drainWakeup() {
        guard unsafe list.pointee.isWakeupSignalled else { return }
        unsafe list.pointee.isWakeupSignalled = false
        do {
            try wakeupEvent.clear()
        } catch {
            preconditionFailure("the loop's wakeup event is broken: \(error)")
        }
    }

    // MARK: Watches

    /// A watch for a descriptor, which stays the caller's and must stay open until the watch is disarmed or
    /// gone. It is not armed yet. Several watches may share a descriptor.
    package func watch(
        _ descriptor: CInt, _ interest: Interest, _ mode: WatchMode, token: UInt64
    ) throws(LoopError) -> Watch {
        var what: CInt
        switch mode {
        case .oneShot: what = 0
        case .persistent: what = EV_PERSIST
        }
        if interest.contains(.read) { what |= EV_READ }
        if interest.contains(.write) { what |= EV_WRITE }
        return try Watch(descriptor, what, token: token, loop: self)
    }

    /// A watch that reports a signal as readable; not armed yet. One loop of a process can watch signals.
    package func watchSignal(_ number: CInt, token: UInt64) throws(LoopError) -> Watch {
        try Watch(number, EV_SIGNAL | EV_PERSIST, token: token, loop: self)
    }
}
