/// Ends sleepers when memory is short.
extension Supervision {
    /// Whether the kernel has said so a short time ago: launches for which nothing waits, and fetches, are
    /// put off, though no longer than for one pause.
    package func isMemoryShort(at now: Instant) -> Bool { now < pressedUntil }

    /// Terminates suspended clients that can be launched again, the largest first; those that would have to
    /// be launched again soon, because they lose reach, after all others. Unmodified programs are left alone:
    /// they could not save what they know.
    mutating func endLargestSleepers(
        _ sizes: [ClientSize], at now: Instant, into actions: inout ActionBuffer
    ) {
        guard !isStopping else { return }
        // Those that wait for memory have their turn after each pause, even if the pressure goes on: the first
        // turn after its end.
        let pause = settings.memoryPressure.pause
        if now >= pressedUntil + pause || mutated(.waitsForMemoryForEver) {
            pressedUntil = now + pause
            if notesChanges { changes.hasPressure = true }
        }
        let candidates = sizes.compactMap { size -> (client: ClientID, rank: (Int, Int, UInt32))? in
            guard clients.contains(size.client.id), clients[size.client.id].isLaunchable,
                !clients[size.client.id].isUnmodified || mutated(.endsUnmodified),
                case .suspended = clients[size.client.id].lifecycle.stage
            else { return nil }
            return (size.client, (losesReach(size.client) ? 1 : 0, -size.bytes, size.client.slot))
        }
        var largest = candidates.sorted { $0.rank < $1.rank }
        if mutated(.endsSmallest) { largest.reverse() }
        for (client, rank) in largest.prefix(max(0, settings.memoryPressure.endsAtOnce)) {
            guard case .suspended = clients[client.id].lifecycle.stage else { continue }
            count(.endedUnderPressure, of: client)
            bytesOfEnded += UInt64(-rank.1)
            noteEndOfSleep(client, at: now)
            kill(client, .memoryPressure, at: now, into: &actions)
            suspendIfIdle(client, at: now, into: &actions)
        }
    }
}
