import Glibc
package import LinuxSystem

/// The process that must not die, and therefore does next to nothing: it holds descriptors and records, and
/// starts another worker when one has died. It reads the records that workers write through, and nothing that
/// a client wrote.
///
/// It has one thread, so that a worker can be a plain `fork` of it: the worker has every descriptor and every
/// record already, starts within a millisecond, and is the same program even if the file on disk has changed.
package final class Keeper {
    /// Functions that the program supplies.
    package struct Hooks {
        package enum Level: Sendable { case info, notice, warning, error }

        package var log: (Level, String) -> Void
        /// Called when a worker serves for the first time.
        package var ready: () -> Void
        package var stopping: () -> Void
        /// Reads the configuration again, for later workers.
        package var reload: () -> Void
        /// Called when workers die one after the other, or none can be had: thaws all processes that they
        /// have stopped.
        package var thawAll: () -> Void
        /// Called in a worker's own process before that has threads.
        package var prepareWorker: () -> Void
        /// The body of a worker, called in its process after that; returns its exit code.
        package var work: (consuming WorkerStartup) -> Int32

        package init(
            log: @escaping (Level, String) -> Void, ready: @escaping () -> Void,
            stopping: @escaping () -> Void, reload: @escaping () -> Void = {},
            thawAll: @escaping () -> Void, prepareWorker: @escaping () -> Void = {},
            work: @escaping (consuming WorkerStartup) -> Int32
        ) {
            self.log = log
            self.ready = ready
            self.stopping = stopping
            self.reload = reload
            self.thawAll = thawAll
            self.prepareWorker = prepareWorker
            self.work = work
        }
    }

    /// How to execute the program that replaces this one.
    package struct Program: Sendable {
        package var path: String
        /// The program's name first, without arguments added by an earlier replacement.
        package var arguments: [String]

        package init(path: String, arguments: [String]) {
            self.path = path
            self.arguments = arguments
        }
    }

    let hooks: Hooks
    let program: Program
    var policy: RestartPolicy
    /// How long a worker that was told to end may take to deliver its last messages.
    private static let stopping: Int64 = 10_000_000_000

    var store: RecordStore
    let signals: SignalDescriptor
    var packet = PacketBuffer(capacity: ChannelPacket.capacity)
    var closer = BackgroundCloser()
    var worker: WorkerProcess?
    /// Workers that have been replaced while the kernel was still closing what they had open.
    private var exiting: [WorkerProcess] = []
    var upgrade: Upgrade?
    /// When the next worker is to be started.
    var restartAt: Int64?
    private var stopDeadline: Int64?
    /// A worker has died before it had stopped, and this is the second one that was told to.
    private var hasStoppedAgain = false
    /// The number of attempted upgrades: an answer may belong to an earlier one.
    var upgrades: UInt64 = 0
    /// An upgrade was requested before a worker served.
    var upgradesOnceServed = false
    /// The configuration is to be read again once the upgrade in progress has succeeded or failed.
    var reloadsAfterUpgrade = false
    /// A worker has served.
    var hasServed = false
    private var startedWorkers = 0
    private var exitCode: Int32?
    /// Why there is no worker, if none ever served.
    package private(set) var failure: String?
    /// The error if none could be started.
    package private(set) var obstacle: SystemError?

    var isStopping: Bool { stopDeadline != nil }

    /// - Parameter store: contains the listener, the lock, the shared state and the place record.
    package init(
        _ store: consuming RecordStore, policy: RestartPolicy, program: Program, hooks: Hooks
    ) throws(SystemError) {
        self.store = store
        self.policy = policy
        self.program = program
        self.hooks = hooks
        signals = try SignalDescriptor([SIGTERM, SIGINT, SIGHUP, SIGUSR2])
        // The parent may have ignored it: then the kernel would not keep the workers' exit statuses.
        signal(SIGCHLD, SIG_DFL)
    }

    /// Continues from the state of the program that this process ran before.
    package convenience init(
        resuming state: consuming ProgramState, policy: RestartPolicy, program: Program, hooks: Hooks
    ) throws(SystemError) {
        let worker = try state.receiveWorker()
        try self.init(state.takeStore(), policy: policy, program: program, hooks: hooks)
        self.worker = worker
        hasServed = true
    }

    /// Runs until it is told to stop, or until no worker can be started. Returns the exit code.
    package func run() -> Int32 {
        if worker == nil { startWorker() }
        while exitCode == nil {
            wait()
            if let restartAt, RunningClock.now() >= restartAt { startWorker() }
            if let stopDeadline, RunningClock.now() >= stopDeadline { worker?.kill() }
            checkUpgrade()
            closer.leaveIfDue()
        }
        // To close them here would take as long as their makers like.
        closer.leaveToChild()
        return exitCode ?? 0
    }

    // MARK: Waiting

    private func wait() {
        var entries = [pollfd(fd: signals.rawValue, events: CShort(POLLIN), revents: 0)]
        let own = [worker?.audible, worker?.process.rawValue, upgrade?.process, upgrade?.candidate?.audible]
        for descriptor in own + exiting.map({ $0.process.rawValue }) {
            // The kernel ignores negative descriptors.
            entries.append(pollfd(fd: descriptor ?? -1, events: CShort(POLLIN), revents: 0))
        }
        guard unsafe poll(&entries, nfds_t(entries.count), timeout) > 0 else { return }
        closer.reap()
        if entries[0].revents != 0 { takeSignals() }
        // A dead worker's last messages are read before its death is handled.
        if let worker, entries[1].revents != 0 {
            receive(from: worker)
            replaceIfExiting(worker)
        }
        if let worker, entries[2].revents != 0 { ended(worker) }
        if entries[3].revents != 0 || entries[4].revents != 0 { upgradeMoved() }
        if !exiting.isEmpty { reapExiting() }
    }

    /// Milliseconds until the next deadline; -1: there is none.
    private var timeout: CInt {
        var due = min(restartAt ?? .max, upgrade?.deadline ?? .max, closer.due ?? .max)
        // A killed worker ends by itself.
        if let stopDeadline, stopDeadline > RunningClock.now() { due = min(due, stopDeadline) }
        guard due < .max else { return -1 }
        return CInt(clamping: max(0, due - RunningClock.now() + 999_999) / 1_000_000)
    }

    private func takeSignals() {
        while let signal = (try? signals.next()) ?? nil {
            switch signal {
            case SIGHUP: beginReload()
            case SIGUSR2: beginUpgrade()
            default: beginStop()
            }
        }
    }

    /// The worker reads first, so that problems are reported once; between two workers the keeper reads.
    func beginReload() {
        guard !isStopping else { return }
        // A worker that may be replaced stands still.
        guard upgrade == nil else { return reloadsAfterUpgrade = true }
        reloadsAfterUpgrade = false
        guard let worker else { return hooks.reload() }
        worker.send(.reload)
    }

    // MARK: Workers

    private func startWorker() {
        restartAt = nil
        closer.leaveToChild()
        do {
            let pair = try SeqPacketSocket.pair()
            startedWorkers += 1
            try pair.separate { ours, theirs throws(SystemError) in
                guard let pid = try Fork.split() else {
                    // Otherwise it would never see the end of the keeper.
                    ours.takeDescriptor().close()
                    live(theirs)
                }
                theirs.takeDescriptor().close()
                worker = WorkerProcess(try ProcessHandle(opening: pid), ours)
            }
        } catch {
            guard hasServed else {
                obstacle = error
                return exitCode = EX_OSERR
            }
            hooks.log(.error, "cannot start a worker: \(error)")
            restartAt = RunningClock.now() + 1_000_000_000
        }
    }

    /// The body of a worker, in the child.
    private func live(_ channel: consuming SeqPacketSocket) -> Never {
        var inherited = RecordStore()
        swap(&inherited, &store)
        // A worker does not need them.
        packet = PacketBuffer(capacity: 1)
        close(signals.rawValue)
        closer.closeInherited()
        var startup: WorkerStartup? = WorkerStartup(
            store: inherited, link: KeeperLink(channel), isFirst: !hasServed, mustWait: false)
        FaultInjection.armFromEnvironment(isFirst: startedWorkers == 1)
        hooks.prepareWorker()
        // The Swift runtime remembers the number of a thread for its locks, and the one that has forked has
        // the keeper's here: a lock that it holds while another thread waits for it is never released.
        let code = Thread.runToEnd {
            guard let startup = startup.take() else { return EX_SOFTWARE }
            return hooks.work(startup)
        }
        exit(code ?? EX_OSERR)
    }

    /// Handles a worker's messages. A worker that sends invalid ones is broken.
    func receive(from worker: WorkerProcess) {
        while true {
            do {
                let reception = try worker.channel.receive(into: &packet)
                if reception == .end { worker.isSilent = true }
                guard case .packet(_, let truncated, let controlTruncated) = reception else { return }
                guard !truncated, !controlTruncated else { throw ChannelError.wrongDescriptors }
                for item in try ChannelPacket.items(in: packet.bytes) {
                    let rest = try store.apply(item, &packet) { closer.close($0) }
                    if let rest { handle(rest, from: worker) }
                }
                guard packet.descriptorCount == 0 else { throw ChannelError.wrongDescriptors }
            } catch {
                hooks.log(.error, "worker \(worker.process.pid) sends invalid packets: ended: \(error)")
                worker.isSilent = true
                return worker.kill()
            }
        }
    }

    private func handle(_ item: ChannelItem, from worker: WorkerProcess) {
        switch item {
        case .ready:
            worker.readyAt = RunningClock.now()
            guard upgrade?.candidate !== worker, !hasServed else { return }
            hasServed = true
            hooks.ready()
            if upgradesOnceServed { beginUpgrade() }
        case .failed(let code, let text): worker.failure = (code, text)
        case .quiesced(let number): if number == upgrades { quiesced() }
        case .upgradeWanted: beginUpgrade()
        case .reloaded: hooks.reload()
        case .put, .update, .remove, .stop, .reload, .quiesce, .act, .cancelUpgrade:
            break  // not sent by workers
        }
    }

    private func ended(_ worker: WorkerProcess) {
        guard let status = worker.end() else { return }
        // After another has been started.
        defer { _ = worker.reap() }
        receive(from: worker)
        self.worker = nil
        if isStopping {
            guard status != 0 else { return exitCode = 0 }
            hooks.log(.error, "the worker ended by \(Fork.text(of: status)) while stopping")
            return stopWithoutWorker()
        }
        if !hasServed, let (code, text) = worker.failure {
            failure = text
            exitCode = code
            return
        }
        if upgrade?.isTesting == true { return }  // The candidate replaces it, or another worker does.
        if case .quiescing = upgrade?.phase { return quiesced() }
        logEnd(of: worker, status)
        if !replace(worker), !hasServed {
            failure = "the worker ended by \(Fork.text(of: status)) before it served, repeatedly"
            exitCode = EX_SOFTWARE
        }
    }

    /// Replaces a worker that executes no code any more, though its process has not ended: with thousands of
    /// sockets the kernel closes other descriptors for milliseconds after the channel.
    private func replaceIfExiting(_ worker: WorkerProcess) {
        guard worker.isSilent, hasServed, !isStopping, upgrade == nil, ProcFS.isExiting(worker.process.pid)
        else { return }
        self.worker = nil
        exiting.append(worker)
        replace(worker)
    }

    private func reapExiting() {
        exiting.removeAll { worker in
            guard let status = worker.reap() else { return false }
            logEnd(of: worker, status)
            return true
        }
    }

    private func logEnd(of worker: WorkerProcess, _ status: CInt) {
        let reason = worker.failure.map { " (\($0.text))" } ?? ""
        let end = Fork.text(of: status) + reason
        hooks.log(.error, "the worker, pid \(worker.process.pid), ended by \(end): another takes its place")
    }

    /// - Returns: whether there will be another worker.
    @discardableResult
    private func replace(_ worker: WorkerProcess) -> Bool {
        let verdict = policy.recordDeath(servedFor: worker.readyAt.map { RunningClock.now() - $0 })
        if verdict.thaws, !hasServed { return false }
        if verdict.thaws {
            hooks.log(.error, "workers end one after the other: thawing all clients")
            hooks.thawAll()
        }
        if verdict.pause == 0 {
            startWorker()
        } else {
            restartAt = RunningClock.now() + verdict.pause
        }
        return true
    }

    // MARK: The end

    private func beginStop() {
        guard !isStopping else { return }
        hooks.stopping()
        abandonUpgrade("the supervisor is stopping")
        restartAt = nil
        stopDeadline = RunningClock.now() + Self.stopping
        if let worker { worker.send(.stop) } else { stopWithoutWorker() }
    }

    /// Only a worker can tell clients of the stop, and end programs that it has launched: one more is started
    /// to stop. If that dies as well, or there is no time left for it, the clients are only thawed.
    private func stopWithoutWorker() {
        if hasServed, !hasStoppedAgain, let stopDeadline, RunningClock.now() < stopDeadline {
            hasStoppedAgain = true
            startWorker()
            if let worker { return worker.send(.stop) }
        }
        hooks.thawAll()
        exitCode = 0
    }
}
