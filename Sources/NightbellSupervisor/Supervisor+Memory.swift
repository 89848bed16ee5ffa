import CLinux
import NightbellCore

/// What many clients needed, given back when most of them have left.
extension Supervisor {
    /// Fewer than this are not worth the walk through the heap.
    private static let worthwhile = 1_024

    /// The allocator keeps what was freed between what is still in use. Returning it takes a millisecond or two, once
    /// the number of connections and sockets has fallen to a quarter of what it was.
    func giveMemoryBack() {
        let population = connections.count + supervision.socketCount
        peakPopulation = max(peakPopulation, population)
        guard peakPopulation >= Self.worthwhile, population < peakPopulation / 4 else { return }
        clinux_release_free_memory()
        peakPopulation = population
    }
}
