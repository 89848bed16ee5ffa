import CLinux
import NightbellCore

/// What many clients needed, given back when most of them have left; what it took to take them over, at once.
extension Supervisor {
    /// Fewer than this are not worth the walk through the heap.
    private static let worthwhile = 512

    /// The allocator keeps what was freed between what is still in use. Returning it takes a millisecond or two, once
    /// the number of connections, or that of sockets, has fallen to a quarter of what it was: clients may have gone
    /// without their sockets.
    func giveMemoryBack() {
        let population = (connections: connections.count, sockets: supervision.socketCount)
        peakPopulation.connections = max(peakPopulation.connections, population.connections)
        peakPopulation.sockets = max(peakPopulation.sockets, population.sockets)
        let haveMostLeft =
            Self.haveMostLeft(population.connections, of: peakPopulation.connections)
            || Self.haveMostLeft(population.sockets, of: peakPopulation.sockets)
        let isMuchTakenOver = hasTakenOver && population.connections + population.sockets >= Self.worthwhile
        guard haveMostLeft || isMuchTakenOver else { return }
        hasTakenOver = false
        supervision.giveMemoryBack()
        parked.giveMemoryBack()
        clinux_release_free_memory()
        peakPopulation = population
    }

    private static func haveMostLeft(_ count: Int, of peak: Int) -> Bool {
        peak >= worthwhile && count < peak / 4
    }
}
