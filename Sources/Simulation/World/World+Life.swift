import NightbellCore

/// The life of the supervisor.
extension World {
    mutating func stopSupervisor() {
        emit(.stop)
        endOfLife = steps + 1 + random.below(30)
    }

    /// All clients leave, and another supervisor starts with empty state.
    mutating func endLife() {
        let left = clients.filter { $0.execution != .running && !$0.isKilled && $0.execution != .absent }
        for client in left { violate(.stop, "\(client.name) is left asleep") }
        events.removeAll(keepingCapacity: true)
        for client in clients { events.append(.gone(client.id)) }
        turn()
        require(.counters, core.socketCount == 0 && socketCount == 0, "sockets are left")
        require(
            .counters, core.usage.allSatisfy { $0.usage.clients == 0 && $0.usage.sockets == 0 },
            "usage is left")
        require(.replay, replay == core, "the same events gave another state")
        coverage.lives += 1
        totals += core.counters
        core = Supervision(settings: settings, mutation: mutation)
        core.notesChanges = true
        core.handle(.machineSlept(total: slept), at: now, into: &actions)
        replay = core
        held = Held()
        log = SimulatedRecoveryLog()
        machine = SimulatedMachine()
        adoptedFor.removeAll()
        expected = Counters()
        clientsBySlot.removeAll()
        socketsBySlot.removeAll()
        generations.removeAll()
        formerTokens.removeAll()
        owners.removeAll()
        identifiersGivenUp = 0
        traffic.removeAll()
        registrations.removeAll()
        pressedUntil = Self.unpressed
        queue.removeAll()
        endOfLife = nil
    }
}
