/// Telling clients of what has happened to the subjects of their observations.
extension Supervision {
    /// Ends a turn: finds movements that are old enough to be told, and wakes the clients that have something
    /// to be told.
    mutating func runObservations(at now: Instant, into actions: inout ActionBuffer) {
        defer { updateDemand() }
        tellHeld(at: now)
        tellChanged(at: now, into: &actions)
        guard !observations.held.isEmpty else { return }
        // One of these may have been the first to be woken.
        tellHeld(at: now)
        tellChanged(at: now, into: &actions)
    }

    private mutating func tellChanged(at now: Instant, into actions: inout ActionBuffer) {
        let elapsed = elapsed(at: now)
        guard let due = observations.due, due <= elapsed else { return }
        let changed = observations.takeChanged()
        if let due = observations.movementDue, due <= elapsed {
            compareAllPositions(at: now, into: &actions)
        } else {
            compare(.position, changed.sorted(), at: now, into: &actions)
        }
        compare(.presence, changed.sorted(), at: now, into: &actions)
        for slot in changed.union(observations.takeChanged()).sorted() {
            tell(slot, at: now, into: &actions)
        }
        if let due = observations.movementDue { observations.look(at: due) }
    }

    private mutating func tell(_ slot: UInt32, at now: Instant, into actions: inout ActionBuffer) {
        guard observations.table.contains(slot), let id = clients.id(inSlot: slot) else { return }
        let client = ClientID(id)
        catchUp(client, at: now, into: &actions)
        let reasons = reasonsToTell(client, at: now)
        guard !reasons.isEmpty, !mutated(.forgetsOccurrences) else { return }
        if clients[id].pendingWake == .repeated {
            // A client that knows that wake ignores it.
            return observations.look(atClientIn: slot, at: elapsed(at: now))
        }
        if clients[id].lifecycle.isDormant { setQuit(false, owners.identifier(at: clients[id].owner)) }
        wake(client, reasons, at: now, into: &actions)
        suspendIfIdle(client, at: now, into: &actions)
    }

    /// The reasons that the client's observations may give. Pushes that were waiting may have gone.
    func observedReasons(of client: ClientID) -> WakeReasons {
        observations(of: client).reduce(into: []) { reasons, observation in
            let telling = observation.telling
            guard observation.subject != .pushes || telling.isDue || telling.isRepeating else { return }
            reasons.formUnion(observation.subject.reason)
        }
    }

    private mutating func reasonsToTell(_ client: ClientID, at now: Instant) -> WakeReasons {
        var reasons: WakeReasons = []
        for observation in observations(of: client)
        where observation.telling.isDue && isWanted(observation.subject, client) {
            if let obstacle = pushObstacle(observation, client, at: now) {
                // A launch that has yet to begin was decided at a better moment.
                if clients[client.id].lifecycle.isDormant, !mutated(.launchesForPastMoments) {
                    withdrawLaunchForPushes(client)
                }
                if let until = obstacle.until { observations.look(atClientIn: client.slot, at: until) }
                continue
            }
            if let until = observation.latest?.heldUntil, isHeld(observation, client, at: now) {
                observations.look(atClientIn: client.slot, at: until)
                continue
            }
            reasons.formUnion(observation.subject.reason)
        }
        return reasons
    }

    /// The occurrences of which a wake tells.
    ///
    /// - Returns: a range of `ActionBuffer.observed`, and the reasons that go with these.
    mutating func takeOccurrences(
        of client: ClientID, isRepeated: Bool, at now: Instant, into actions: inout ActionBuffer
    ) -> (Range<Int>, WakeReasons) {
        let start = actions.observed.count
        var reasons: WakeReasons = []
        guard observations.table.contains(client.slot) else { return (start..<start, reasons) }
        let told = Observation.Telling.told(clients[client.id].lastWakeID)
        for (index, observation) in observations.table[client.slot].enumerated() {
            guard isRepeated ? observation.telling.isRepeating : observation.telling.isDue,
                isWanted(observation.subject, client), let latest = observation.latest,
                isRepeated || mayTellAlong(observation, at: now)
            else { continue }
            observations.table[client.slot][index].telling = told
            if observation.subject == .pushes { beginPush(index, of: client, at: now) }
            reasons.formUnion(observation.subject.reason)
            actions.observed.append(
                ObservedOccurrence(
                    name: observation.name, occurrence: latest.occurrence, isSimulated: latest.isSimulated))
        }
        if actions.observed.count > start { recordObservations(of: client) }
        return (start..<actions.observed.count, reasons)
    }

    /// The client has no process any more, or another one.
    mutating func lookAtObservations(of client: ClientID, at now: Instant) {
        guard observations.table.contains(client.slot) else { return }
        observations.unsettled.insert(client.slot)
        observations.look(atClientIn: client.slot, at: elapsed(at: now))
    }

    /// The process that may have been told of them has ended.
    mutating func tellNextProcess(of client: ClientID) {
        guard observations.table.contains(client.slot) else { return }
        for index in observations.table[client.slot].indices
        where observations.table[client.slot][index].telling.isRepeating {
            observations.table[client.slot][index].telling = .pending
            recordObservations(of: client)
        }
    }

    /// Occurrences from before its user quit the client are no reason to launch it.
    mutating func dropOccurrences(of client: ClientID) {
        guard observations.table.contains(client.slot) else { return }
        for index in observations.table[client.slot].indices {
            observations.table[client.slot][index].telling = .told(0)
            observations.table[client.slot][index].push.run = nil
        }
        recordObservations(of: client)
    }

    // MARK: On request

    /// Acts as if this had happened.
    mutating func simulate(
        _ occurrence: Occurrence, _ name: String, _ client: ClientID, _ key: RequestKey, at now: Instant,
        into actions: inout ActionBuffer
    ) {
        actions.append(
            .commandAnswer(simulate(occurrence, name, client, at: now, into: &actions), key))
    }

    private mutating func simulate(
        _ occurrence: Occurrence, _ name: String, _ client: ClientID, at now: Instant,
        into actions: inout ActionBuffer
    ) -> Refusal? {
        guard clients.contains(client.id) else { return .noSuchClient }
        guard !isStopping else { return .shuttingDown }
        let own = observations(of: client)
        guard let index = own.firstIndex(where: { $0.name == name && $0.subject.permits(occurrence) })
        else { return .noSuchObservation }
        guard isWanted(own[index].subject, client) else {
            return .illegalState(clients[client.id].lifecycle.state)
        }
        // One that has happened, and that the client has yet to be told, must not be lost.
        if own[index].telling.isDue, own[index].latest?.isSimulated == false {
            return .illegalState(clients[client.id].lifecycle.state)
        }
        note(occurrence, index, of: client, isSimulated: true, at: now, into: &actions)
        return nil
    }

    // MARK: Recovery

    /// The record that another supervisor needs to continue a client's observations.
    package func observationSnapshot(of client: ClientID) -> [Observation] {
        observations(of: client).map { observation in
            var observation = observation
            // Whether that wake was told is for the next one to find out again.
            if case .repeating(let wakeID) = observation.telling { observation.telling = .told(wakeID) }
            return observation
        }
    }

    /// Call it once the client's wakes are as they were, or are being repeated.
    mutating func restoreObservations(_ old: RecoverySnapshot.Client, at now: Instant) {
        guard !old.observations.isEmpty, !mutated(.restoresWithoutObservations) else { return }
        let client = old.id
        let own = old.observations.map { observation in
            var observation = observation
            if case .told(let wakeID) = observation.telling, wakeID > old.toldWakeID {
                // The wake may have been told; if it was not decided either, the occurrence has another one.
                let isRepeated =
                    clients[client.id].pendingWake != nil || clients[client.id].launches.mayHaveBeenTold
                observation.telling = isRepeated ? .repeating(wakeID) : .pending
            }
            if mutated(.restoresUnknownObservations) { observation.known = nil }
            return restoredPush(observation, of: client, toldWakeID: old.toldWakeID)
        }
        replaceObservations(of: client, with: own)
        if clients[client.id].lifecycle.isDormant,
            own.contains(where: { $0.subject == .pushes && !$0.telling.isDue })
        {
            // The push service says again what waits.
            withdrawLaunchForPushes(client)
        }
        if own.contains(where: { $0.latest?.heldUntil != nil }) { observations.held.insert(client.slot) }
        observations.look(atClientIn: client.slot, at: elapsed(at: now))
    }
}

extension LocationService {
    func isMoved(from before: Position, to position: Position, _ settings: Settings.Location) -> Bool {
        let distance = position.distance(to: before)
        return switch kind {
        // An uncertain position is no movement.
        case .significantChange:
            distance >= Double(settings.significantDistance) && distance > position.accuracy
        case .continuous, .foreground: distance >= Double(self.distance) && position != before
        }
    }

    /// The shortest time between two reports.
    func pause(_ settings: Settings.Location) -> Duration {
        switch kind {
        case .significantChange: settings.significantInterval
        case .continuous, .foreground: .zero
        }
    }

    func demand(_ settings: Settings.Location) -> ObservationDemand.Location {
        switch kind {
        case .significantChange: .init(accuracy: 5, distance: UInt32(settings.significantDistance / 2))
        case .continuous, .foreground: .init(accuracy: accuracy, distance: distance)
        }
    }
}

extension Region {
    /// Precise enough for its edge.
    var demand: ObservationDemand.Location {
        .init(accuracy: radius < 500 ? 8 : radius < 5_000 ? 6 : 5, distance: UInt32(min(margin, radius) / 2))
    }
}
