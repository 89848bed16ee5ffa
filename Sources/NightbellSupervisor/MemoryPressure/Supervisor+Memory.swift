import CLinux
import NightbellCore

/// Returns memory to the kernel when many clients have left, or when recovery is done.
extension Supervisor {
    /// With fewer departures the walk through the heap is not worth it.
    private static let worthwhile = 16

    /// The allocator keeps freed memory between blocks in use, and tables keep their capacity. Giving it back
    /// takes some ten microseconds, once as many connections and sockets have gone as a fixed share of those
    /// there are now: clients may have gone without their sockets.
    func giveMemoryBack() {
        let population = connections.count + supervision.socketCount
        let isMuchTakenOver = hasTakenOver && population >= Self.worthwhile
        guard departures >= max(Self.worthwhile, population / 64) || isMuchTakenOver else { return }
        hasTakenOver = false
        departures = 0
        supervision.giveMemoryBack()
        parked.giveMemoryBack()
        clinux_release_free_memory()
    }
}
