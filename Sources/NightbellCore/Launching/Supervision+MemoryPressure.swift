/// Ends sleepers when memory is short.
extension Supervision {
    /// Terminates suspended clients that can be launched again, the largest first; those that would have to
    /// be launched again soon, because they lose reach, after all others. Unmodified programs are left alone:
    /// they could not save what they know.
    mutating func endLargestSleepers(
        _ sizes: [ClientSize], at now: Instant, into actions: inout ActionBuffer
    ) {
        guard !isStopping else { return }
        pressedUntil = now + settings.memoryPressure.pause
        if notesChanges { changes.hasPressure = true }
        let candidates = sizes.filter { size in
            guard clients.contains(size.client.id), clients[size.client.id].isLaunchable,
                !clients[size.client.id].isUnmodified || mutated(.endsUnmodified),
                case .suspended = clients[size.client.id].lifecycle.stage
            else { return false }
            return true
        }
        func rank(_ size: ClientSize) -> (Int, Int, UInt32) {
            (losesReach(size.client) ? 1 : 0, -size.bytes, size.client.slot)
        }
        var largest = candidates.sorted { rank($0) < rank($1) }
        if mutated(.endsSmallest) { largest.reverse() }
        for size in largest.prefix(max(0, settings.memoryPressure.endsAtOnce)) {
            guard case .suspended = clients[size.client.id].lifecycle.stage else { continue }
            count(.endedUnderPressure, of: size.client)
            noteEndOfSleep(size.client, at: now)
            kill(size.client, .memoryPressure, at: now, into: &actions)
            suspendIfIdle(size.client, at: now, into: &actions)
        }
    }
}
