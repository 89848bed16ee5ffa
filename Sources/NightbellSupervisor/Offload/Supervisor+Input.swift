import EventLoop
import LinuxSystem
import NightbellCore

/// Handles the input of sockets with a profile that arrives together in one pass: the core's changes are
/// persisted once.
extension Supervisor {
    /// A turn inspects the input of this many sockets, for at most this long beside the first ones, before it
    /// serves connections. The rest waits for its users' turns.
    static let inspectionsAtOnce = 256
    /// In nanoseconds.
    private static let timeForInput: Int64 = 200_000

    /// Whether there is nothing to do in this turn but to inspect input of sockets with a profile.
    func isInput(_ batch: [Ready]) -> Bool {
        guard hasBegun, !loop.hasWork, batch.count <= Self.inspectionsAtOnce,
            case .running = phase, upgrade.quiesceOrder == nil,
            !timer.isDue(at: now.advanced(byNanoseconds: clocks.nanosecondsSlept))
        else { return false }
        // A closure of this actor would check each time that it is on the actor's thread.
        for ready in batch where WatchToken(rawValue: ready.token).kind != .offloadedSocket { return false }
        return true
    }

    /// The usual turn while clients sleep and their peers send pings: it needs none of the rest of a turn.
    ///
    /// - Returns: whether anything else was found, so that the turn goes on.
    func handleInput(_ batch: [Ready]) -> Bool {
        guard handleInputs(batch), backlog.isEmpty, followUps.isEmpty else { return true }
        timer.bringForward(to: elapsed(ask { $0.nextDeadline }))
        return false
    }

    /// Inspects the input of sockets with a profile; what has no time any more waits for its user's turn.
    ///
    /// - Returns: whether it was noise, and changes nothing for the owners.
    func handleInputs(_ batch: [Ready]) -> Bool {
        var isNoise = true
        var end: Int64?
        for (index, ready) in batch.enumerated() {
            if index % 16 == 15 {
                let time = BootClock.now()
                if let end, time > end {
                    for ready in batch[index...] { handle(ready) }
                    break
                }
                end = end ?? time + Self.timeForInput
            }
            guard let socket = parked.token(for: WatchToken(rawValue: ready.token)) else { continue }
            if !offloadedSocketFired(socket, ready) { isNoise = false }
            // It may be a wake.
            if !buffer.actions.isEmpty { flush() }
        }
        persist()
        return isNoise
    }
}
