import CLinux
import NightbellCore

/// What many clients needed, given back when most of them have left; what it took to take them over, at once.
extension Supervisor {
    /// Fewer than this are not worth the walk through the heap.
    private static let worthwhile = 1_024

    /// The allocator keeps what was freed between what is still in use. Returning it takes a millisecond or two, once
    /// the number of connections and sockets has fallen to a quarter of what it was.
    func giveMemoryBack() {
        let population = connections.count + supervision.socketCount
        peakPopulation = max(peakPopulation, population)
        let haveMostLeft = peakPopulation >= Self.worthwhile && population < peakPopulation / 4
        guard haveMostLeft || hasTakenOver && population >= Self.worthwhile else { return }
        hasTakenOver = false
        clinux_release_free_memory()
        peakPopulation = population
    }
}
