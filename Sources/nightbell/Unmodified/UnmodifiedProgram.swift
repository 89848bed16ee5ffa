import CLinux
import Glibc
import Launching
import LinuxSystem
import Manifests
import Nightbell
import Presentation
import ProcessWaits
import Suspension
import SystemdUnits

/// Speaks for a program as it is: looks at it from outside, hands what it waits for to the supervisor when it
/// is idle, and wakes it for signals.
final class UnmodifiedProgram {
    /// How it has come to be spoken for.
    enum Origin {
        /// It was started for that: signals are passed on to it, and this process ends as it does.
        case child(GatedChild)
        /// It runs already, and runs on when this process ends.
        case adopted(Adoption)
    }

    struct Options {
        var identifier: String
        var socketPath: String
        var sleep = UnmodifiedOptions()
        var limits: [ResourceLimit] = []
        /// Whether the program is killed when this process ends: the supervisor, which has launched it, would
        /// launch another one.
        var endsWithUs = false

        var wakesForTimers: Bool { sleep.timers != .ignore }
    }

    enum State {
        /// Looked at: until when it is left alone, and the look to compare the next one with.
        case awake(nextLook: Int64, last: GroupLook?)
        /// The supervisor has been asked to suspend it; the look before that.
        case fallingAsleep(GroupLook)
        /// It is suspended; when its memory is to be written to swap.
        case asleep(pageOutAt: Int64?)
    }

    let options: Options
    private let origin: Origin
    let pid: pid_t
    /// systemd freezes and thaws the program; nil: the supervisor does.
    let unit: SystemdUnit?
    private let signals: SignalDescriptor
    let wakeSet: WakeSet
    /// Readable from the first event in the wake set until the program runs. The supervisor watches this instead of
    /// the set: whatever watches a set asks the drivers and servers of all its members, which may not answer.
    private let bell: EventDescriptor
    /// Whether the wake set is in the poll set.
    private var isListening = false
    /// Duplicates of its sockets with profiles, which the supervisor has while the program sleeps.
    private var parked: [ParkedSocket] = []
    private let inbox = ProgramInbox()
    let pollSet: PollSet
    var client: Client
    var group: ProgramGroup
    var waits: WaitMemory
    var state: State
    private var awakeSince: Int64
    private var asleepSince: Int64 = 0
    /// How many sleeps in a row were shorter than the time of idleness before them.
    private var shortSleeps = 0
    private var reason = ""
    private var isClosed = false
    /// Waits that sleeping prolongs, and when they are to end, in nanoseconds of `CLOCK_MONOTONIC`.
    var prolonged: [(thread: pid_t, call: BlockedCall, end: Int64)] = []
    /// Writes its memory to swap, if that is wanted.
    var memory: ProgramMemory?

    /// Starts a program, which waits for `run`.
    ///
    /// - Parameter arguments: the program and its arguments.
    /// - Throws: `NightbellError`, or `SystemError`.
    @unsafe static func start(
        _ options: Options, _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
    ) throws -> UnmodifiedProgram {
        var mask = sigset_t()
        unsafe pthread_sigmask(SIG_BLOCK, nil, &mask)
        // Blocked before there is a child that they could be about.
        let signals = try SignalDescriptor(Self.signals)
        let child = try unsafe GatedChild(arguments, mask: mask, endsWithUs: options.endsWithUs)
        do {
            for limit in options.limits { try limit.set(of: child.pid) }
            return try UnmodifiedProgram(options, .child(child), child.pid, signals)
        } catch {
            child.abandon()
            throw error
        }
    }

    /// Speaks for a program that runs.
    ///
    /// - Throws: `NightbellError`, `SystemError`, or `ProgramGroup.Failure` if some of it would run while the
    ///   rest sleeps.
    static func adopt(_ options: Options, _ adoption: Adoption) throws -> UnmodifiedProgram {
        let signals = try SignalDescriptor([SIGHUP, SIGINT, SIGQUIT, SIGTERM])
        let program = try UnmodifiedProgram(options, .adopted(adoption), adoption.pid, signals)
        guard adoption.unit == nil else { return program }
        do {
            try program.group.include(adoption.members)
            return program
        } catch {
            program.client.close()
            throw error
        }
    }

    private init(
        _ options: Options, _ origin: Origin, _ pid: pid_t, _ signals: consuming SignalDescriptor
    ) throws {
        self.options = options
        self.origin = origin
        self.pid = pid
        unit = if case .adopted(let adoption) = origin { adoption.unit } else { nil }
        self.signals = signals
        wakeSet = try WakeSet(
            SocketProfiles(options.sleep.profiles), defersConnections: options.sleep.firstByte)
        pollSet = try PollSet()
        bell = try EventDescriptor()
        guard let startTime = ProcFS.startTime(pid) else {
            throw SystemError(code: ESRCH, call: "read /proc/\(pid)/stat")
        }
        var configuration = Client.Configuration(
            identifier: options.identifier, modes: [], socketPath: options.socketPath)
        configuration.driver = .manual
        configuration.program = .init(processID: pid, startTime: startTime)
        configuration.program?.isSuspendedBySystemd = unit != nil
        client = try Client(configuration, handlers: inbox.handlers)
        _ = try client.handOver(bell.rawValue, as: .device, name: "all that it waits for")
        try client.enterForeground()
        try pollSet.add(client.fileDescriptor)
        try pollSet.add(self.signals.rawValue)
        if case .adopted(let adoption) = origin { try pollSet.add(adoption.process.rawValue) }
        if let unit { try pollSet.add(unit.descriptor) }
        group = Self.group(pid, unit)
        let now = RunningClock.now()
        awakeSince = now
        waits = WaitMemory(start: now)
        state = .awake(nextLook: now, last: nil)
    }

    private static let signals = [
        SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGCHLD, SIGCONT, SIGTSTP, SIGWINCH,
    ]

    /// How it is suspended: `cgroup`, `signal` or `none`.
    var suspensionMethod: String { client.suspensionMethod }

    /// Runs the program to its end, or until it is given back.
    ///
    /// - Returns: its exit code; of an adopted one 0.
    func run(_ name: String) -> Int32 {
        if client.suspensionMethod == "none" {
            complain("\(name) never sleeps: this supervisor cannot suspend it, see nightbell doctor")
        }
        if options.sleep.pageOut != nil { prepareMemory(name) }
        switch origin {
        case .child(let child):
            // The program's pipes end with the program, and are not held open here.
            detachStandardStreams()
            if let code = child.letRun() { complain("\(name): \(SystemError.message(for: code))") }
        case .adopted: break
        }
        while true {
            if let code = serve() { return code }
            _ = Poll.wait(pollSet.rawValue, for: .readable, timeoutMilliseconds: timeout)
        }
    }

    private func detachStandardStreams() {
        guard let null = try? OwnedDescriptor(opening: "/dev/null", O_RDWR) else { return }
        for stream in [STDIN_FILENO, STDOUT_FILENO] { _ = dup2(null.rawValue, stream) }
    }

    private var timeout: CInt {
        guard let due else { return -1 }
        return CInt(clamping: max(0, (due - RunningClock.now() + 999_999) / 1_000_000))
    }

    /// When something is to be done, if nothing happens before.
    private var due: Int64? {
        switch state {
        case .awake(let nextLook, _): nextLook
        case .fallingAsleep: nil
        case .asleep(let pageOutAt): pageOutAt
        }
    }

    /// - Returns: the exit code once it has ended, or is given back.
    private func serve() -> Int32? {
        var hasChildren = false
        while let signal = nextSignal() {
            switch origin {
            case .child where signal.number == SIGCHLD: hasChildren = true
            case .child: pass(signal.number, signal.isKernels)
            case .adopted: return giveBack()
            }
        }
        if let code = exitCode(hasChildren) {
            giveUpWakeSources()
            // systemd would not start it again.
            unit?.release()
            client.close()
            return code
        }
        processPending()
        if isClosed, case .adopted = origin { return 1 }
        for event in inbox.takeAll() { handle(event) }
        for event in unit?.takeEvents() ?? [] { handle(event) }
        ringIfReady()
        if let pagedOut = memory?.finish() { client.reportPagedOut(pagedOut) }
        guard let due, RunningClock.now() >= due else { return nil }
        switch state {
        case .awake(_, let last): look(after: last)
        case .asleep: writeToSwap()
        case .fallingAsleep: break
        }
        return nil
    }

    private func ringIfReady() {
        guard isListening, !Poll.now(wakeSet.rawValue).isEmpty else { return }
        stopListening()
        do {
            try bell.signal()
        } catch {
            wake()
        }
    }

    private func stopListening() {
        guard isListening else { return }
        isListening = false
        try? pollSet.remove(wakeSet.rawValue)
    }

    /// nil: it has not ended.
    private func exitCode(_ hasChildren: Bool) -> Int32? {
        switch origin {
        case .child(let child): hasChildren ? child.exitCode() : nil
        case .adopted(let adoption): adoption.process.hasExited ? 0 : nil
        }
    }

    /// The program goes on by itself, awake.
    private func giveBack() -> Int32 {
        let wasAsleep = isAsleep
        wake()
        // The supervisor has thawed it, if it could.
        if wasAsleep { letRun() }
        client.close()
        return 0
    }

    private func processPending() {
        guard !isClosed else { return }
        do {
            try client.processPending()
        } catch {
            // Its connection has ended for good: it would report that for ever.
            isClosed = true
            try? pollSet.remove(client.fileDescriptor)
            complain("\(options.identifier) sleeps no more: \(error)")
            letRun()
            giveUpWakeSources()
            state = .awake(nextLook: .max, last: nil)
        }
    }

    // MARK: Signals

    private func nextSignal() -> (number: CInt, isKernels: Bool)? {
        do {
            return try signals.nextWithSource()
        } catch {
            return nil
        }
    }

    /// A frozen program gets a signal only once it runs.
    private func pass(_ signal: CInt, _ isKernels: Bool) {
        let wasAsleep = isAsleep
        wake()
        // The keys of a terminal reach all processes in its foreground.
        let hasIt = isKernels && getpgid(pid) == getpgrp()
        if !hasIt { ProgramSignal.send(signal, to: pid, toFirstThread: wasAsleep) }
        if signal == SIGTSTP { raise(SIGSTOP) }
    }

    // MARK: Sleep and wake

    private func handle(_ event: ProgramInbox.Event) {
        switch event {
        case .suspended:
            guard case .fallingAsleep(let look) = state, freezeUnit() else { return }
            // An event between the look and the freeze has either made a descriptor ready, for which the supervisor
            // wakes it as for any later one, or changed a wait.
            guard look.isFrozen(group) || !Poll.now(wakeSet.rawValue).isEmpty else { return wake() }
            let after = memory?.mayWrite == true ? options.sleep.pageOut : nil
            state = .asleep(pageOutAt: after.map { RunningClock.now() + $0.nanoseconds })
        case .cancelled, .woken:
            wake()
        case .disconnected:
            // Its supervisor may be gone, and then nothing else would thaw it.
            letRun()
            wake()
        case .reconnected:
            group = Self.group(pid, unit)
            includeAgain()
            if let memory { client.reportPagedOut(memory.state) }
            wake()
        case .toTerminate:
            unit?.thaw()
            kill(pid, SIGTERM)
        }
    }

    /// The next supervisor knows only the first process and its descendants.
    private func includeAgain() {
        guard case .adopted(let adoption) = origin, unit == nil else { return }
        do {
            try group.include(adoption.members)
        } catch {
            complain("\(options.identifier): \(error.reason)")
        }
    }

    private var isAsleep: Bool {
        if case .awake = state { false } else { true }
    }

    /// The program runs, or is to run, and is looked at from the beginning.
    func wake() {
        let now = RunningClock.now()
        if isAsleep {
            unit?.thaw()
            memory?.cancel()
            // The supervisor has thawed it already if it was woken.
            try? client.enterForeground()
            giveUpWakeSources()
            for wait in prolonged { Self.end(wait.call, of: wait.thread, at: wait.end) }
            let isShort = now - asleepSince < options.sleep.idle.nanoseconds
            shortSleeps = isShort ? min(shortSleeps + 1, 5) : 0
        }
        guard !isClosed else { return }
        awakeSince = now
        state = .awake(nextLook: now + (options.sleep.idle.nanoseconds << Int64(shortSleeps)) / 4, last: nil)
    }

    /// Has a wait that sleeping has prolonged end when it would have ended.
    private static func end(_ call: BlockedCall, of thread: pid_t, at end: Int64) {
        guard let (address, unit) = call.prolongedTimeout else { return }
        // It fails if the wait has ended.
        _ = unsafe clinux_end_wait_at(thread, call.number, call.arguments, address, unit.rawValue, end)
    }

    private static let longestPause: Int64 = 30_000_000_000

    /// Looks at the program, and puts it to sleep if nothing has happened in it since the last look.
    private func look(after last: GroupLook?) {
        let now = RunningClock.now()
        let idle = options.sleep.idle.nanoseconds
        do {
            let look = try GroupLook(group)
            var resolved = look
            waits.take(&resolved.processes, at: look.at)
            if let obstacle = resolved.obstacle { return stayAwake(obstacle) }
            guard let last else { return state = .awake(nextLook: now + idle, last: look) }
            if let change = look.change(since: last, ignoresTicks: options.sleep.timers != .exact) {
                return stayAwake(after: change)
            }
            try sleep(look, resolved)
        } catch let failure as ProgramGroup.Failure {
            stayAwake(failure.reason)
        } catch let obstacle as WakeSet.Obstacle {
            giveUpWakeSources()
            stayAwake(obstacle.reason)
        } catch {
            giveUpWakeSources()
            stayAwake("the supervisor refuses: \(error)")
        }
    }

    private func stayAwake(after change: GroupLook.Change) {
        guard let rate = change.ticksPerSecond else { return stayAwake("thread \(change.thread) runs") }
        let often = rate <= 1 ? "once a second" : "\(rate) times a second"
        stayAwake("thread \(change.thread) wakes up by itself, up to \(often)")
    }

    /// The next pair of looks comes the later, the longer the program has been awake.
    func stayAwake(_ reason: String) {
        if reason != self.reason { client.reportAwake(reason) }
        self.reason = reason
        let now = RunningClock.now()
        let pause = max(options.sleep.idle.nanoseconds, min((now - awakeSince) / 4, Self.longestPause))
        state = .awake(nextLook: now + pause, last: nil)
    }

    /// - Throws: `WakeSet.Obstacle`, or the supervisor's `NightbellError`.
    private func sleep(_ look: GroupLook, _ resolved: GroupLook) throws {
        if options.wakesForTimers, try addTimers(resolved) { return }
        try wakeSet.add(resolved, first: pid, refusesTimeouts: options.wakesForTimers)
        try park(wakeSet.takeProfiled())
        try pollSet.add(wakeSet.rawValue)
        isListening = true
        try client.enterBackground()
        reason = ""
        asleepSince = RunningClock.now()
        state = .fallingAsleep(look)
    }

    /// Has the supervisor answer pings on sockets while the program sleeps.
    ///
    /// - Parameter sockets: duplicates.
    /// - Throws: the reason why one of them is refused.
    private func park(_ sockets: [WakeSet.ProfiledSocket]) throws(NightbellError) {
        guard !sockets.isEmpty else { return }
        var refusal: NightbellError?
        do {
            let results = try client.handOver(
                sockets.map {
                    .init(
                        $0.descriptor, as: .voip, name: $0.profile.description, profile: $0.profile.profile)
                })
            for (socket, result) in zip(sockets, results) {
                do {
                    parked.append(try result.get())
                } catch {
                    close(socket.descriptor)
                    refusal = error
                }
            }
        } catch {
            for socket in sockets { close(socket.descriptor) }
            throw error
        }
        if let refusal { throw refusal }
    }

    /// The program itself waits for all of it again.
    private func giveUpWakeSources() {
        for socket in parked {
            // Without a supervisor it is only forgotten.
            try? client.release(socket)
            close(socket.descriptor)
        }
        parked.removeAll()
        stopListening()
        wakeSet.clear()
        _ = try? bell.clear()
    }
}

extension Duration {
    var nanoseconds: Int64 {
        components.seconds * 1_000_000_000 + components.attoseconds / 1_000_000_000
    }
}
