import CLinux
import NightbellCore

/// What many clients needed, given back when many have left; what it took to take them over, at once.
extension Supervisor {
    /// Fewer than this are not worth the walk through the heap.
    private static let worthwhile = 16

    /// The allocator keeps what was freed between what is still in use, and tables keep their room. Giving it back takes
    /// some ten microseconds, once a part of as many connections and sockets have gone as there are now: clients may have
    /// gone without their sockets.
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
