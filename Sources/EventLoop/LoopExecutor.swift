import CLibevent
import CLinux
import Descriptors
import Glibc
import Synchronization

/// One libevent loop on one thread, which is at the same time the serial executor of the actors that live there.
///
/// The thread waits in an epoll set of its own (``urgent``), in which what cannot wait for its turn is watched. Everything
/// else is in a second one (``set``), which is a member of the first, and libevent, which watches signals and the few, is
/// a member of that: it is asked when it has something to tell, and its callbacks do nothing but note it. Once per
/// turn `turn` is called with what is noted, and then the jobs that wait are run: the actor is entered once per turn,
/// not once per event, and no `Task` is made. With nothing due the thread sleeps in `epoll_wait` without a timeout.
///
/// The executor outlives its actors and its watches: both hold it.
///
/// Sendable: the inbox and `owner` are made for all threads. All else is confined to the loop's thread, or, while
/// the loop does not run, to the thread that makes the watches and calls `run` afterwards.
@safe
package final class LoopExecutor: SerialExecutor, @unchecked Sendable {
    private let base: OpaquePointer
    private let gathering: UnsafeMutablePointer<Gathering>
    private let inbox = Inbox()
    /// Readable when another thread put something into the inbox.
    private let bell: EventDescriptor
    /// For what `early` is for.
    package let urgent: WatchSet
    /// For all other descriptors of which there are many.
    package let set: WatchSet
    /// Whether `urgent` tells when something has happened in `set`: once, and then not before it is armed again.
    private var isSetArmed = false
    /// The thread inside `run`, 0 when there is none.
    private let owner = Atomic<UInt>(0)
    /// Empty between turns; kept for its capacity.
    private var jobs: [UnownedJob] = []

    private var crowd = Crowd()
    /// Since when turns were told of part of what is known, of `BootClock`; nil: the last one was told of all.
    private var behindSince: Int64?

    /// With so many events known, more are not waited for.
    private static let enough = 1_024
    /// A turn that is told of more would be so long that those who come meanwhile had to wait: these take some 1.5 ms.
    private static let portion = 64
    /// For how long turns may be told of part of what is known, in nanoseconds.
    private static let longestBehind: Int64 = 50_000_000

    package init() throws(LoopError) {
        do {
            bell = try EventDescriptor()
            urgent = try WatchSet()
            set = try WatchSet()
            try Self.requireDescriptors()
        } catch {
            throw LoopError(code: .cannotCreate, underlying: error)
        }
        guard let base = unsafe Self.makeBase() else {
            throw LoopError(code: .cannotCreate, underlying: SystemError("event_base_new_with_config"))
        }
        unsafe self.base = base
        unsafe gathering = .allocate(capacity: 1)
        unsafe gathering.initialize(to: Gathering())
        guard let descriptor = unsafe Self.descriptor(of: base, probe: bell.rawValue) else {
            throw LoopError(code: .cannotCreate, underlying: SystemError(code: EBADF, call: "epoll_ctl"))
        }
        try set.arm(descriptor, .persistent, isMember: false, token: WatchSet.libevent)
        try set.arm(bell.rawValue, .persistent, isMember: false, token: WatchSet.bell)
        try urgent.arm(set, isMember: false)
        isSetArmed = true
    }

    deinit {
        unsafe event_base_free(base)
        unsafe gathering.deinitialize(count: 1)
        unsafe gathering.deallocate()
    }

    /// A loop for one thread. The changelist would merge what duplicates of a descriptor need kept apart, and the
    /// environment can switch it on, so that is ignored.
    private static func makeBase() -> OpaquePointer? {
        guard let config = unsafe event_config_new() else { return nil }
        defer { unsafe event_config_free(config) }
        let flags = EVENT_BASE_FLAG_NOLOCK.rawValue | EVENT_BASE_FLAG_IGNORE_ENV.rawValue
        unsafe event_config_set_flag(config, CInt(flags))
        // epoll: it is to be a member of a set of the loop's own.
        unsafe event_config_require_features(config, CInt(EV_FEATURE_O1.rawValue))
        return unsafe event_base_new_with_config(config)
    }

    /// libevent ends the process when it cannot make its pair of sockets for signals. With epoll's, that is three.
    private static func requireDescriptors() throws(SystemError) {
        var spare = UniqueSlots<EventDescriptor>()
        for _ in 0..<3 { spare.append(try EventDescriptor()) }
    }

    /// The descriptor on which a loop waits. libevent does not tell: it is the one epoll set in which an event can be
    /// changed that the loop watches. In all others, and in what is none, that fails and changes nothing.
    private static func descriptor(of base: OpaquePointer, probe: CInt) -> CInt? {
        var event = unsafe CLibevent.event()
        return unsafe withUnsafeMutablePointer(to: &event) { event in
            unsafe event_assign(event, base, probe, CShort(EV_READ), { _, _, _ in }, nil)
            guard unsafe event_add(event, nil) == 0 else { return nil }
            defer { unsafe event_del(event) }
            let limit = sysconf(CInt(_SC_OPEN_MAX))
            return (0..<(limit < 0 ? CInt.max : CInt(clamping: limit))).first { candidate in
                var changed = unsafe epoll_event()
                return unsafe epoll_ctl(candidate, EPOLL_CTL_MOD, probe, &changed) == 0
            }
        }
    }

    // MARK: Running

    /// Runs the loop on the calling thread until `stop`, calling `turn` once per turn with what happened, if
    /// anything did. Jobs that were enqueued before it returns have run; later ones wait for another `run`.
    ///
    /// - Parameters:
    ///   - early: called with each event of ``urgent`` as soon as it is known. True: something was done that could not
    ///     wait, so there may be a crowd, and the loop looks for more such events before the turn. In a crowd, nobody's
    ///     `early` waits for another's turn.
    ///   - turn: called with what has happened since the last turn. If `early` has returned true for many, it is told of
    ///     a part of that first: then it is not whole, and there is nothing in it but the first of what is urgent. In a
    ///     whole one it knows of all for whom `early` was called; only then do jobs run.
    package func run(
        early: (_ ready: Ready) -> Bool = { _ in false }, turn: (_ batch: [Ready], _ isWhole: Bool) -> Void
    ) throws(LoopError) {
        let (isFree, _) = owner.compareExchange(
            expected: 0, desired: UInt(pthread_self()), ordering: .relaxed)
        precondition(isFree, "a loop runs once at a time")
        defer { owner.store(0, ordering: .relaxed) }
        while !inbox.isStopRequested {
            // The loop's own thread rings no bell, so jobs it left for this turn must be asked for.
            let isAll = try gather(early, mayWait: inbox.isEmpty)
            deliver(isAll, to: turn)
            guard isAll else { continue }
            ringOff()
            runJobs()
        }
        while inbox.hasJobs { runJobs() }
        inbox.forgetStop()
    }

    /// Waits for something to happen; looks for more while there is more that cannot wait, until there is enough.
    ///
    /// What else happens does not end the wait for a crowd: it would be those of it who were told already, answering, while
    /// others wait.
    ///
    /// - Returns: whether the turn is to be told of everything.
    private func gather(_ early: (_ ready: Ready) -> Bool, mayWait: Bool) throws(LoopError) -> Bool {
        if !isSetArmed {
            try urgent.arm(set, isMember: true)
            isSetArmed = true
        }
        // While others have been put off already, nobody waits for a crowd, nor while jobs do.
        let mayWait = unsafe mayWait && gathering.pointee.count == 0
        var timeout: CInt? = mayWait ? -1 : 0
        crowd.disperse()
        while let wait = timeout {
            timeout = nil
            let known = unsafe gathering.pointee.count
            // Edges come again and again: of those that are not taken, the kernel tells once.
            guard known < Self.enough else { break }
            let wasArmed = isSetArmed
            if try unsafe urgent.collect(into: gathering, milliseconds: wait, atMost: Self.enough - known) {
                isSetArmed = false
            }
            let isCrowd = dealEarly(from: known, early)
            let isOther = wasArmed && !isSetArmed
            guard mayWait, unsafe isOther || gathering.pointee.count > known else { break }
            let now = BootClock.now()
            if isCrowd { crowd.join(known: unsafe gathering.pointee.dealt, at: now) }
            timeout = crowd.wait(at: now)
        }
        guard !fallsBehind() else { return false }
        // Without room for what is urgent, it was not asked whether there is something else.
        guard unsafe !isSetArmed || gathering.pointee.count >= Self.enough else { return true }
        _ = try unsafe set.collect(into: gathering, milliseconds: 0, atMost: Self.portion)
        try askLibevent()
        return true
    }

    /// Calls `early` for what is new. True: something was done that could not wait.
    private func dealEarly(from first: Int, _ early: (_ ready: Ready) -> Bool) -> Bool {
        var isCrowd = false
        for index in first..<(unsafe gathering.pointee.count) where early(unsafe gathering.pointee[index]) {
            unsafe gathering.pointee.markDealt(index)
            isCrowd = true
        }
        return isCrowd
    }

    /// Whether there are more for whom `early` was called than the next turn is to be told of. Not for ever, however many come.
    private func fallsBehind() -> Bool {
        guard unsafe gathering.pointee.dealt > Self.portion else {
            behindSince = nil
            return false
        }
        let now = BootClock.now()
        let since = behindSince ?? now
        let mayBeBehind = now - since < Self.longestBehind
        behindSince = mayBeBehind ? since : nil
        return mayBeBehind
    }

    private func askLibevent() throws(LoopError) {
        guard unsafe gathering.pointee.isLibeventReady else { return }
        unsafe gathering.pointee.isLibeventReady = false
        guard unsafe event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0 else {
            throw LoopError(code: .cannotRun, underlying: SystemError("event_base_loop"))
        }
    }

    /// Ends `run` after the turn it is in, whole or not, and the jobs that wait. From any thread; before `run` it ends the next
    /// one at once. Of what the turn was not told yet, the next `run` tells.
    package func stop() {
        if inbox.requestStop() { ring() }
    }

    private func runJobs() {
        inbox.take(into: &jobs)
        let executor = unsafe asUnownedSerialExecutor()
        for job in jobs { unsafe job.runSynchronously(on: executor) }
        jobs.removeAll(keepingCapacity: true)
    }

    private func deliver(_ isAll: Bool, to turn: (_ batch: [Ready], _ isWhole: Bool) -> Void) {
        guard unsafe gathering.pointee.count > 0 else { return }
        let batch = unsafe gathering.pointee.take(atMost: isAll ? .max : Self.portion)
        turn(batch, isAll)
        unsafe gathering.pointee.recycle(batch)
    }

    // MARK: The executor

    package func enqueue(_ job: consuming ExecutorJob) {
        if inbox.append(UnownedJob(job)) { ring() }
    }

    package func isIsolatingCurrentContext() -> Bool? { isOnLoop }

    package func checkIsolated() {
        precondition(isOnLoop, "this is not the thread of the event loop")
    }

    /// Whether the caller is on the thread inside `run`. Only that thread could have stored its own identity, so
    /// no ordering is needed.
    private var isOnLoop: Bool { owner.load(ordering: .relaxed) == UInt(pthread_self()) }

    private func ring() {
        // The next turn of our own thread looks into the inbox before it waits.
        if isOnLoop { return }
        do {
            try bell.signal()
        } catch {
            preconditionFailure("the loop cannot be woken: \(error)")
        }
    }

    private func ringOff() {
        guard unsafe gathering.pointee.bellRang else { return }
        unsafe gathering.pointee.bellRang = false
        do {
            try bell.clear()
        } catch {
            preconditionFailure("the loop's bell is broken: \(error)")
        }
    }

    // MARK: Watches

    /// A watch for a descriptor, which stays the caller's and must stay open until the watch is disarmed or gone.
    /// It is not armed yet. Several watches may share a descriptor.
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
        return try makeWatch(descriptor, what, token: token)
    }

    /// A watch that reports a signal as readable; not armed yet. One loop of a process can watch signals.
    package func watchSignal(_ number: CInt, token: UInt64) throws(LoopError) -> Watch {
        try makeWatch(number, EV_SIGNAL | EV_PERSIST, token: token)
    }

    private func makeWatch(_ subject: CInt, _ what: CInt, token: UInt64) throws(LoopError) -> Watch {
        let record = UnsafeMutablePointer<WatchRecord>.allocate(capacity: 1)
        unsafe record.initialize(to: WatchRecord(token: token, gathering: gathering))
        let result = unsafe event_assign(
            &record.pointee.event, base, subject, CShort(what), gatherEvent, record)
        guard result == 0 else {
            unsafe record.deallocate()
            throw LoopError(code: .cannotWatch, underlying: SystemError(code: EINVAL, call: "event_assign"))
        }
        return unsafe Watch(record: record, loop: self)
    }
}
