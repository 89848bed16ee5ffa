import CLinux
import Glibc
package import LinuxSystem

/// An upgrade in progress.
struct Upgrade {
    enum Phase {
        /// The program is run only to check that it runs and can decode its configuration and the keeper's
        /// records; everything else goes on meanwhile.
        case preflight(ChildProcess)
        /// The worker was told to stop acting.
        case quiescing
        /// A worker of the new program decodes the records, and reports whether it could serve.
        case testing(WorkerProcess)
    }

    /// The time limit of each phase, in nanoseconds.
    static let patience: Int64 = 5_000_000_000

    var phase: Phase
    var deadline = RunningClock.now() + Upgrade.patience

    init(_ phase: Phase) {
        self.phase = phase
    }

    /// The descriptor to be polled in this phase.
    var process: CInt? {
        switch phase {
        case .preflight(let child): child.handle.rawValue
        case .quiescing: nil
        case .testing(let candidate): candidate.process.rawValue
        }
    }

    var candidate: WorkerProcess? {
        switch phase {
        case .preflight, .quiescing: nil
        case .testing(let candidate): candidate
        }
    }

    var isTesting: Bool { candidate != nil }
}

/// A process of which only the end matters.
final class ChildProcess {
    let handle: ProcessHandle

    init(_ handle: consuming ProcessHandle) {
        self.handle = handle
    }

    /// Its status as `waitpid` returns it, once it has ended.
    func reap() -> CInt? { Fork.reap(handle.pid) }
}

/// Replaces the program, first the worker, then the keeper, without clients noticing.
extension Keeper {
    /// Tries the program file that is on disk now.
    func beginUpgrade() {
        guard hasServed else { return upgradesOnceServed = true }
        upgradesOnceServed = false
        guard !isStopping, upgrade == nil else { return }
        upgrades += 1
        hooks.log(.notice, "upgrading to the program now at \(program.path)")
        closer.leaveToChild()
        do {
            let state = try image().map { image throws(SystemError) in
                try MemoryFile.create("nightbell-state", image).take()
            }
            defer { if let state { close(state) } }
            guard let pid = try Fork.split() else {
                Fork.unblockSignals()
                var arguments = program.arguments + ["--preflight"]
                if let state, let worker {
                    keepOpen(store.descriptors + [worker.channel.rawValue, state])
                    arguments += ["--keeper-state", "\(state)"]
                }
                _ = Fork.become(program.path, arguments)
                _exit(EX_OSERR)
            }
            upgrade = Upgrade(.preflight(ChildProcess(try ProcessHandle(opening: pid))))
        } catch {
            refuseUpgrade("cannot start it: \(error)")
        }
    }

    /// The upgrade's process may have reported or ended.
    func upgradeMoved() {
        switch upgrade?.phase {
        case .preflight(let child):
            guard let status = child.reap() else { return }
            guard status == 0 else {
                return abandonUpgrade("the new program does not start: \(Fork.text(of: status))")
            }
            quiesce()
        case .testing(let candidate):
            receive(from: candidate)
            if candidate.readyAt != nil { return finishUpgrade(candidate) }
            guard let status = candidate.reap() else { return }
            receive(from: candidate)
            let reason = candidate.failure?.text ?? Fork.text(of: status)
            abandonUpgrade("the new worker could not serve: \(reason)")
        case .quiescing, nil:
            break
        }
    }

    func checkUpgrade() {
        guard let upgrade, RunningClock.now() >= upgrade.deadline else { return }
        abandonUpgrade("it took more than five seconds")
    }

    private func quiesce() {
        upgrade = Upgrade(.quiescing)
        // Between two workers there is none to wait for.
        guard let worker else { return quiesced() }
        worker.send(.quiesce(upgrades))
    }

    /// The worker has stopped acting, and all its records are in the store.
    func quiesced() {
        guard case .quiescing = upgrade?.phase else { return }
        restartAt = nil
        do {
            try startCandidate()
        } catch {
            abandonUpgrade("cannot start it: \(error)")
        }
    }

    private func startCandidate() throws(SystemError) {
        closer.leaveToChild()
        let pair = try SeqPacketSocket.pair()
        try pair.separate { ours, theirs throws(SystemError) in
            let image = store.image(adding: [.init(key: .channel, descriptor: theirs.rawValue)])
            let state = try MemoryFile.create("nightbell-state", image)
            // As numbers: nothing closes them before the other program runs.
            let (channelNumber, stateNumber) = (theirs.rawValue, state.rawValue)
            guard let pid = try Fork.split() else {
                _ = theirs.takeDescriptor().take()
                _ = state.take()
                ours.takeDescriptor().close()
                keepOpen(store.descriptors + [channelNumber, stateNumber])
                _ = Fork.become(program.path, program.arguments + ["--worker-state", "\(stateNumber)"])
                _exit(EX_OSERR)
            }
            theirs.takeDescriptor().close()
            state.close()
            upgrade = Upgrade(.testing(WorkerProcess(try ProcessHandle(opening: pid), ours)))
        }
    }

    private func finishUpgrade(_ candidate: WorkerProcess) {
        upgrade = nil
        if let worker {
            worker.kill()
            Fork.await(worker.process.pid)
        }
        worker = candidate
        candidate.send(.act)
        if reloadsAfterUpgrade { beginReload() }
        hooks.log(.notice, "the new worker serves, pid \(candidate.process.pid)")
        becomeNewProgram(candidate)
    }

    /// The old program stays: its worker goes on, or another is started.
    func abandonUpgrade(_ reason: String) {
        guard let upgrade else { return }
        self.upgrade = nil
        switch upgrade.phase {
        case .preflight(let child):
            try? child.handle.signal(SIGKILL)
            Fork.await(child.handle.pid)
        case .quiescing:
            break
        case .testing(let candidate):
            candidate.kill()
            Fork.await(candidate.process.pid)
        }
        refuseUpgrade(reason)
        if worker == nil, !isStopping, restartAt == nil { restartAt = RunningClock.now() }
        if reloadsAfterUpgrade { beginReload() }
    }

    private func refuseUpgrade(_ reason: String) {
        hooks.log(.error, "no upgrade: \(reason)")
        worker?.send(.cancelUpgrade(String(reason.prefix(500))))
    }

    // MARK: The keeper itself

    /// Executes the new program in this process: the pid, the descriptors and the worker stay.
    private func becomeNewProgram(_ worker: WorkerProcess) {
        guard let image = image() else { return }
        closer.leaveToChild()
        do {
            let state = try MemoryFile.create("nightbell-state", image).take()
            let descriptors = store.descriptors + [worker.channel.rawValue, state]
            keepOpen(descriptors)
            let error = Fork.become(program.path, program.arguments + ["--keeper-state", "\(state)"])
            for descriptor in descriptors { _ = clinux_set_close_on_exec(descriptor, 1) }
            OwnedDescriptor(adopting: state).close()
            throw error
        } catch {
            hooks.log(.error, "the keeper stays what it is: \(error)")
        }
    }

    /// The state for the next keeper; nil: there is no worker.
    private func image() -> [UInt8]? {
        guard let worker else { return nil }
        var details: [UInt8] = []
        details.append(number: UInt64(UInt32(bitPattern: worker.process.pid)), bytes: 8)
        details.append(number: UInt64(bitPattern: worker.readyAt ?? 0), bytes: 8)
        return store.image(adding: [
            .init(key: .channel, descriptor: worker.channel.rawValue), .init(key: .worker, record: details),
        ])
    }

    private func keepOpen(_ descriptors: [CInt]) {
        for descriptor in descriptors { _ = clinux_set_close_on_exec(descriptor, 0) }
    }
}

extension RecordKey {
    /// The channel to the worker, or to the keeper; exists only across `execve`.
    static let channel = RecordKey(kind: 0, id: 16)
    /// The worker's pid and the time since which it serves; exists only across `execve`.
    static let worker = RecordKey(kind: 0, id: 17)
}

/// The state that one program leaves to the next across execve.
package struct ProgramState: ~Copyable {
    var store: RecordStore

    /// Reads the file that `--worker-state` or `--keeper-state` names, and closes it.
    package init(reading descriptor: CInt) throws(SystemError) {
        let file = OwnedDescriptor(adopting: descriptor)
        guard let store = RecordStore(image: try MemoryFile.read(file.rawValue)) else {
            throw SystemError(code: EPROTO, call: "state of the program before")
        }
        for descriptor in store.descriptors { _ = clinux_set_close_on_exec(descriptor, 1) }
        self.store = store
    }

    /// Whether the program that reads this could go on as the keeper. Changes nothing.
    package consuming func tryKeeping() throws(SystemError) {
        var store = takeStore()
        _ = try Self.receiveChannel(&store)
        _ = try Self.receiveDetails(&store)
    }

    /// The inputs of a new worker, which must wait until it is told to act.
    package consuming func startup() throws(SystemError) -> WorkerStartup {
        let channel = try Self.receiveChannel(&store)
        return WorkerStartup(
            store: store, link: KeeperLink(channel), isFirst: false, mustWait: true)
    }

    /// The worker that already serves.
    mutating func receiveWorker() throws(SystemError) -> WorkerProcess {
        let channel = try Self.receiveChannel(&store)
        let details = try Self.receiveDetails(&store)
        let pid = pid_t(truncatingIfNeeded: details[0..<8].number)
        let worker = WorkerProcess(try ProcessHandle(opening: pid), channel)
        worker.readyAt = Int64(bitPattern: details[8..<16].number)
        return worker
    }

    consuming func takeStore() -> RecordStore { store }

    private static func receiveDetails(
        _ store: inout RecordStore
    ) throws(SystemError) -> ArraySlice<UInt8> {
        guard let details = store.record(.worker), details.count == 16 else {
            throw SystemError(code: EPROTO, call: "state of the program before")
        }
        _ = store.removeValue(for: .worker)
        return details[...]
    }

    private static func receiveChannel(_ store: inout RecordStore) throws(SystemError) -> SeqPacketSocket {
        switch store.removeValue(for: .channel) {
        case .some(let kept):
            if let descriptor = kept.takeDescriptor() { return SeqPacketSocket(adopting: descriptor) }
        case .none: break
        }
        throw SystemError(code: EPROTO, call: "state of the program before")
    }
}
