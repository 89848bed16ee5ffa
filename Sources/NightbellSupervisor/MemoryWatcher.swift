import Descriptors
import EventLoop
import Logging
import MemoryPressure
import NightbellCore
import NightbellWire

/// The kernel's word that memory is short.
struct MemoryWatcher: ~Copyable {
    private let trigger: PressureTrigger
    private let watch: Watch

    private init(_ trigger: consuming PressureTrigger, _ loop: LoopExecutor) throws(LoopError) {
        let watch = try loop.watch(
            trigger.rawValue, .read, .persistent, token: WatchToken(.memoryPressure).rawValue)
        try watch.arm()
        self.trigger = trigger
        self.watch = watch
    }

    /// Nil if it is not to be watched, or cannot be: that is logged, and no reason not to start.
    static func begin(
        _ configuration: SupervisorConfiguration, _ loop: LoopExecutor, _ logger: Logger
    ) throws(LoopError) -> MemoryWatcher? {
        guard let wanted = configuration.memoryPressure else { return nil }
        let threshold = PressureTrigger.Threshold(
            wanted.isFull ? .full : .some, wanted.stall, in: wanted.window)
        let trigger: PressureTrigger
        do throws(PressureTrigger.Unavailable) {
            trigger = try PressureTrigger.set(path: wanted.file, threshold)
        } catch {
            logger.notice("clients are not ended when memory is short: \(error)")
            return nil
        }
        return try MemoryWatcher(trigger, loop)
    }

    func clear() { trigger.clear() }
}

extension Supervisor {
    /// Memory is short: tells the core how large those are that sleep.
    func relieveMemory() {
        switch memoryWatcher {
        case .some(let watcher): watcher.clear()
        case .none: break
        }
        do throws(SystemError) {
            try memoryRequest.clear()
        } catch {
            preconditionFailure("an eventfd of our own can be read: \(error)")
        }
        feed(.memoryPressure(sleeperSizes()))
    }

    /// Somebody says that memory is short.
    func relieveMemory(_ connection: Connection, _ request: UInt64) {
        guard isAdministrator(connection) else {
            let error = WireError(.permissionDenied, "this is for the supervisor's own user, and for root")
            return answer(connection, request, .error(error))
        }
        feed(.memoryPressure(sleeperSizes()))
        answer(connection, request, .done(WireDone()))
    }

    private func sleeperSizes() -> [ClientSize] {
        supervision.clientIDs.compactMap { client in
            guard supervision.state(of: client) == .suspended, let record = connection(of: client)?.client,
                let bytes = ProcFS.residentBytes(record.process.pid)
            else { return nil }
            return ClientSize(client, bytes: bytes)
        }
    }

    /// Who falls asleep is written to swap; who wakes is left alone.
    func pageOut(_ client: ClientID, _ before: ClientState, _ after: ClientState) {
        if before == .suspended { pageOut?.cancel(client.rawValue) }
        guard after == .suspended, let record = connection(of: client)?.client else { return }
        do throws(SystemError) {
            try pageOut?.begin(client.rawValue, record.process)
        } catch {
            log(.suspension, .notice, "\(record.identifier) is not written to swap: \(error)")
        }
    }
}
