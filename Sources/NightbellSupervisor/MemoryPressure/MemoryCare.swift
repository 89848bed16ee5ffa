import CLinux
import EventLoop
import Logging
import NightbellCore
import Suspension

/// The memory of clients, which may be short, and the supervisor's own, which it gives back.
struct MemoryCare: ~Copyable {
    var watcher: MemoryWatcher?
    /// Writes sleepers to swap, if configured and if there is any.
    let pageOut: PageOut?
    /// The survey of the sleepers' memory, while it is under way.
    var survey: SizeSurvey?
    /// Connections and sockets closed since memory was last given back.
    var departures = 0
    /// Memory used by recovery has not been given back yet.
    var hasRecovered = false

    init(_ configuration: SupervisorConfiguration, _ loop: LoopExecutor, _ logger: Logger) throws(LoopError) {
        watcher = try MemoryWatcher.begin(configuration, loop, logger)
        pageOut = configuration.pagesOut && PageOut.hasSwap ? PageOut() : nil
        if configuration.pagesOut, pageOut == nil {
            logger.notice("sleepers are not written to swap: there is none")
        }
    }
}

/// Returns memory to the kernel when many clients have left, or when recovery is done.
extension Supervisor {
    /// With fewer departures the walk through the heap is not worth it.
    private static let worthwhile = 16

    /// The allocator keeps freed memory between blocks in use, and tables keep their capacity. Giving it back
    /// takes some ten microseconds, once as many connections and sockets have gone as a fixed share of those
    /// there are now: clients may have gone without their sockets.
    func giveMemoryBack() {
        let population = connections.count + ask { $0.socketCount }
        let isMuchTakenOver = memory.hasRecovered && population >= Self.worthwhile
        guard memory.departures >= max(Self.worthwhile, population / 64) || isMuchTakenOver else { return }
        memory.hasRecovered = false
        memory.departures = 0
        supervision.giveMemoryBack()
        parked.giveMemoryBack()
        clinux_release_free_memory()
    }
}
