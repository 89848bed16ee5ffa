import EventLoop
import LinuxSystem
import Logging
import NightbellCore
import NightbellWire
import Suspension

/// The kernel's notification that memory is short.
struct MemoryWatcher: ~Copyable {
    private let trigger: PressureTrigger
    private let watch: Watch
    /// Of the whole machine, and not of a cgroup.
    private let isOfMachine: Bool

    private init(
        _ trigger: consuming PressureTrigger, isOfMachine: Bool, _ loop: LoopExecutor
    ) throws(LoopError) {
        let watch = try loop.watch(
            trigger.rawValue, .read, .persistent, token: WatchToken(.memoryPressure).rawValue)
        try watch.arm()
        self.trigger = trigger
        self.watch = watch
        self.isOfMachine = isOfMachine
    }

    /// nil if memory pressure is not to be watched, or cannot be: that is logged, and no reason not to start.
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
        return try MemoryWatcher(
            trigger, isOfMachine: wanted.file == PressureTrigger.machineFile, loop)
    }

    func clear() { trigger.clear() }

    /// Processes that wait because of a limit of their own count in the machine's figure, too, and ending
    /// others does not help these. In a cgroup its own limit is the one that counts.
    var isMachineShort: Bool { !isOfMachine || AvailableMemory.isLow() }
}

extension Supervisor {
    /// Writes a client to swap when it falls asleep; does nothing when it wakes.
    func pageOut(_ client: ClientID, _ before: ClientState, _ after: ClientState) {
        if before == .suspended { memory.pageOut?.cancel(client.rawValue) }
        guard after == .suspended, let record = connection(of: client)?.client else { return }
        do throws(SystemError) {
            try memory.pageOut?.begin(client.rawValue, record.process)
        } catch {
            log(
                .suspension, .notice, of: supervision.user(of: client),
                "\(record.identifier) is not written to swap: \(error)")
        }
    }
}
