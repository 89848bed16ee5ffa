/// Observations: clients ask for them, and are woken when something happens to a subject.
///
/// An observation stays with its client while that has no process. The known state of each subject outlives the supervisor, so
/// that the next one finds what has happened meanwhile. A client is told of the latest occurrence of each.
extension Supervision {
    /// The monitor of the machine observes no more objects of a kind.
    private static let mostPaths = 128
    /// A uid's share of these, for all kinds together, so that none uses up the places of the others.
    private static let mostPathsOfUser = 32

    // MARK: Requests

    mutating func observe(_ name: String, _ subject: Subject, _ client: ClientID, at now: Instant) -> Answer {
        guard clients[client.id].modes.contains(subject.mode) || mutated(.observesUndeclared) else {
            return .refused(.modeRequired(subject.mode))
        }
        var own = observations(of: client)
        if let index = own.firstIndex(where: { $0.name == name }) {
            // It asks again, as each new process does.
            if own[index].subject == subject { return .done }
            own.remove(at: index)
        }
        guard own.count < settings.quotas.observationsPerClient, hasRoom(for: subject, named: name, client)
        else {
            return .refused(.tooManyObservations)
        }
        var observation = Observation(name: name, subject)
        observation.known = observations.presence(of: subject).map { .presence($0) }
        own.append(observation)
        set(own, of: client)
        // Where the machine is may be known already.
        observations.look(at: elapsed(at: now))
        return .done
    }

    mutating func stopObserving(_ name: String, _ client: ClientID) -> Answer {
        let left = observations(of: client).filter { $0.name != name }
        if left.count < observations(of: client).count { set(left, of: client) }
        return .done
    }

    func observations(of client: ClientID) -> [Observation] {
        observations.table.contains(client.slot) ? observations.table[client.slot] : []
    }

    private func hasRoom(for subject: Subject, named name: String, _ client: ClientID) -> Bool {
        let user = clients[client.id].user
        var (count, ownPaths, allPaths) = (0, Set<Subject>(), Set<Subject>())
        for slot in observations.table.slots {
            guard let id = clients.id(inSlot: slot) else { continue }
            let isOwn = clients[id].user == user
            // One of the same name is replaced.
            for observation in observations.table[slot]
            where ClientID(id) != client || observation.name != name {
                if isOwn { count += 1 }
                guard let kind = observation.subject.pathKind else { continue }
                if isOwn { ownPaths.insert(observation.subject) }
                if kind == subject.pathKind { allPaths.insert(observation.subject) }
            }
        }
        guard count < settings.quotas.observationsPerUser else { return false }
        guard subject.pathKind != nil, !ownPaths.contains(subject) else { return true }
        // Those of others count whether this is one of them or not: the answer does not tell.
        return ownPaths.count < Self.mostPathsOfUser && allPaths.count < Self.mostPaths
    }

    private mutating func set(_ own: [Observation], of client: ClientID) {
        if own.isEmpty {
            observations.table.remove(client.slot)
        } else {
            observations.table.insert(own, at: client.slot)
        }
        observations.isDemandStale = true
        recordObservations(of: client)
    }

    /// Ends the observations that the client must not have.
    mutating func endObservations(of client: ClientID, unless isKept: (Subject) -> Bool) {
        guard observations.table.contains(client.slot) else { return }
        let own = observations.table[client.slot]
        let kept = own.filter { isKept($0.subject) }
        if kept.count < own.count { set(kept, of: client) }
    }

    // MARK: Which are wanted

    /// Whether a client is to be told of a subject in its present state.
    func isWanted(_ subject: Subject, _ client: ClientID) -> Bool {
        if case .location(let service) = subject, service.kind == .foreground {
            switch clients[client.id].lifecycle.stage {
            case .inactive, .active: return true
            case .background, .suspending, .suspended: return mutated(.observesInBackground)
            case .notRunning, .terminating, .dormant, .launching: return false
            }
        }
        switch clients[client.id].lifecycle.stage {
        case .inactive, .active, .background, .suspending, .suspended, .launching: return true
        case .dormant: return launches(for: subject, client)
        case .notRunning, .terminating: return false
        }
    }

    private func launches(for subject: Subject, _ client: ClientID) -> Bool {
        guard clients[client.id].isLaunchable, subject.launches else { return false }
        return !isQuit(client) || subject.mode == .location
    }

    /// Whether its user has quit a client that is kept for its location services.
    func isQuit(_ client: ClientID) -> Bool { owners[place: clients[client.id].owner]?.isQuit ?? false }

    /// Whether a client has to be launched again when something happens.
    func hasLaunchingObservations(_ client: ClientID) -> Bool {
        observations(of: client).contains { $0.subject.launches } && !mutated(.forgetsObservers)
    }

    /// Whether a client stays after its user has quit it, because it is launched when the machine has moved.
    func staysForLocation(_ client: ClientID) -> Bool {
        clients[client.id].isLaunchable && !isStopping
            && observations(of: client).contains { $0.subject.mode == .location && $0.subject.launches }
    }

    /// The things to be observed at present.
    package var observationDemand: ObservationDemand {
        isStopping ? ObservationDemand() : observations.demand
    }

    /// Finds out what has to be observed, if that may have changed. The end of a turn does it as well.
    package mutating func updateDemand() {
        guard observations.isDemandStale else { return }
        observations.isDemandStale = false
        var demand = ObservationDemand()
        var (devices, characteristics, accessories) = (Set<String>(), Set<String>(), Set<String>())
        for slot in observations.table.slots {
            guard let id = clients.id(inSlot: slot) else { continue }
            for observation in observations.table[slot] {
                let isToCome = clients[id].lifecycle.state == .terminating
                guard isToCome || isWanted(observation.subject, ClientID(id)) else { continue }
                switch observation.subject {
                case .location(let service): demand.add(service.demand(settings.location))
                case .region(let region): demand.add(region.demand)
                case .bluetoothDevice(let path): devices.insert(path)
                case .characteristic(let path): characteristics.insert(path)
                case .accessory(let name): accessories.insert(name)
                }
            }
        }
        demand.bluetoothDevices = devices.sorted()
        demand.characteristics = characteristics.sorted()
        demand.accessories = accessories.sorted()
        demand.revision = observations.demand.revision
        guard demand != observations.demand else { return }
        demand.revision += 1
        observations.demand = demand
        observations.forgetUnobserved()
    }

    // MARK: What happens

    mutating func learnPosition(_ position: Position?, at now: Instant, into actions: inout ActionBuffer) {
        observations.position = position
        observations.forgetUnobserved()
        if let due = comparePosition(at: now, into: &actions) { observations.look(at: due) }
    }

    /// A device of which nothing is reported is unknown, which is not absent.
    mutating func comparePresence(at now: Instant, into actions: inout ActionBuffer) {
        compare(at: now, into: &actions) { observation, supervision in
            guard let presence = supervision.observations.presence(of: observation.subject) else {
                let isDevice = observation.subject.mode != .location && observation.known != nil
                return isDevice && supervision.mutated(.takesUnknownForAbsent)
                    ? (.presence(.absent), .disconnected) : nil
            }
            guard observation.known != .presence(presence) else { return nil }
            // Whether it was there before is not known.
            return (.presence(presence), observation.known == nil ? nil : presence.occurrence)
        }
    }

    mutating func learnValue(
        _ path: String, _ value: [UInt8], at now: Instant, into actions: inout ActionBuffer
    ) {
        compare(at: now, into: &actions) { observation, _ in
            observation.subject == .characteristic(path) ? (nil, .value(value)) : nil
        }
    }

    /// - Returns: when to compare again, in elapsed time: a movement is not old enough to be told.
    mutating func comparePosition(at now: Instant, into actions: inout ActionBuffer) -> Instant? {
        guard let position = observations.position else { return nil }
        let elapsed = elapsed(at: now)
        var due: Instant?
        compare(at: now, into: &actions) { observation, supervision in
            switch (observation.subject, observation.known) {
            case (.region(let region), let known):
                let wasInside: Bool? = if case .inside(let isInside) = known { isInside } else { nil }
                guard let isInside = region.contains(position, wasInside: wasInside),
                    isInside != wasInside
                else { return nil }
                if wasInside == nil { return (.inside(isInside), nil) }
                return (.inside(isInside), isInside ? .entered : .exited)
            case (.location(let service), .position(let before, let since)):
                guard service.isMoved(from: before, to: position, supervision.settings.location) else {
                    return nil
                }
                let earliest = since + service.pause(supervision.settings.location)
                guard elapsed >= earliest else {
                    due = earlier(due, earliest)
                    return nil
                }
                return (.position(position, at: elapsed), .moved(position))
            case (.location, _):
                return (.position(position, at: elapsed), .moved(position))
            case (.bluetoothDevice, _), (.characteristic, _), (.accessory, _):
                return nil
            }
        }
        return due
    }

    /// Compares what is known of each wanted subject with the facts. `change` returns nil if that is the same.
    private mutating func compare(
        at now: Instant, into actions: inout ActionBuffer,
        _ change: (Observation, Supervision) -> (known: Observation.Known?, Occurrence?)?
    ) {
        guard !isStopping, !observations.isEmpty else { return }
        for slot in observations.table.slots {
            guard let id = clients.id(inSlot: slot) else { continue }
            let client = ClientID(id)
            for (index, observation) in observations(of: client).enumerated()
            where isWanted(observation.subject, client) {
                guard let (known, occurrence) = change(observation, self) else { continue }
                if let known { observations.table[slot][index].known = known }
                recordObservations(of: client)
                guard let occurrence else { continue }
                note(occurrence, index, of: client, isSimulated: false, at: now, into: &actions)
                if mutated(.tellsOtherObservers), let other = clients.ids.first(where: { $0 != id }) {
                    wake(ClientID(other), observation.subject.reason, at: now, into: &actions)
                    settle(ClientID(other), at: now, into: &actions)
                }
            }
        }
    }

    /// Something has happened to the subject of an observation: its client is told at the end of the turn.
    mutating func note(
        _ occurrence: Occurrence, _ index: Int, of client: ClientID, isSimulated: Bool, at now: Instant,
        into actions: inout ActionBuffer
    ) {
        let elapsed = elapsed(at: now)
        observations.table[client.slot][index].latest = .init(
            occurrence, at: elapsed, isSimulated: isSimulated)
        observations.table[client.slot][index].telling = .pending
        recordObservations(of: client)
        observations.look(at: elapsed)
        let name = observations.table[client.slot][index].name
        actions.append(
            .trace(client, .observed(.init(name: name, occurrence: occurrence, isSimulated: isSimulated))))
    }
}
