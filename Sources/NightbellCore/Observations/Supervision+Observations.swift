/// Observations: clients ask for them, and are woken when something happens to a subject.
///
/// An observation stays with its client while that has no process. The known state of each subject outlives
/// the supervisor, so that the next one finds what has happened meanwhile. A client is told of the latest
/// occurrence of each.
extension Supervision {
    /// The monitor of the machine observes no more objects of a kind.
    package static let mostPaths = 128
    /// Of one uid, for all kinds together. So many of each kind are kept for administrators.
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
        guard own.count < settings.quotas.observationsPerClient, hasRoom(for: subject, beside: own, client)
        else {
            return .refused(.tooManyObservations)
        }
        keepPushMemory(of: client, without: subject == .pushes ? [Observation(name: name, subject)] : own)
        var observation =
            subject == .pushes
            ? makePushObservation(name, of: client, replacing: &own) : Observation(name: name, subject)
        observation.known = observations.presence(of: subject).map { .presence($0) }
        own.append(observation)
        set(own, of: client)
        // Where the machine is may be known already.
        observations.look(atClientIn: client.slot, at: elapsed(at: now))
        return .done
    }

    /// A client that was declared and has not run yet cannot have asked, and its former processes may have: it
    /// is told of whatever comes for it.
    mutating func observeUnasked(_ subject: Subject, _ client: ClientID, at now: Instant) {
        guard clients[client.id].launches.neverSpoke, clients[client.id].isDeclared,
            !observations(of: client).contains(where: { $0.subject == subject })
        else { return }
        observe(subject, client, at: now)
    }

    /// Under the name that the client library gives it. One that must not have more observations has none.
    mutating func observe(_ subject: Subject, _ client: ClientID, at now: Instant) {
        guard let name = subject.usualName, name.utf8.count <= Observation.longestName else { return }
        _ = observe(name, subject, client, at: now)
    }

    mutating func stopObserving(_ name: String, _ client: ClientID) -> Answer {
        let left = observations(of: client).filter { $0.name != name }
        keepPushMemory(of: client, without: left)
        if left.count < observations(of: client).count { set(left, of: client) }
        return .done
    }

    func observations(of client: ClientID) -> [Observation] {
        observations.table.contains(client.slot) ? observations.table[client.slot] : []
    }

    /// - Parameter own: the client's observations that stay.
    private func hasRoom(for subject: Subject, beside own: [Observation], _ client: ClientID) -> Bool {
        let user = clients[client.id].user
        let replaced = observations(of: client).count - own.count
        let count = (users[user]?.observations ?? 0) - replaced
        guard count < settings.quotas.observationsPerUser else { return false }
        guard let kind = subject.pathKind else { return true }
        var (ownPaths, othersPaths, allPaths) = (0, 0, 0)
        for (path, slots) in observations.observers {
            let slots = slots.filter { $0 != client.slot || own.contains { $0.subject == path } }
            guard !slots.isEmpty else { continue }
            let observers = slots.compactMap { clients.id(inSlot: $0).map { clients[$0].user } }
            if observers.contains(user) {
                if path == subject { return true }
                ownPaths += 1
            }
            guard path.pathKind == kind else { continue }
            allPaths += 1
            if observers.contains(where: { $0 != user && !settings.isAdministrator($0) }) { othersPaths += 1 }
        }
        // Those of others count whether this is one of them or not: the answer does not tell.
        if settings.isAdministrator(user) {
            return ownPaths < Self.mostPathsOfUser && allPaths < Self.mostPaths
        }
        // Whatever the others have, there is something left for the next one: a third of the rest.
        return ownPaths < (Self.mostPaths - Self.mostPathsOfUser - othersPaths) / 3
    }

    private mutating func set(_ own: [Observation], of client: ClientID) {
        replaceObservations(of: client, with: own)
        recordObservations(of: client)
    }

    mutating func replaceObservations(of client: ClientID, with own: [Observation]) {
        let growth = own.count - observations(of: client).count
        users[clients[client.id].user]?.observations += growth
        let pushes = (own.contains { $0.subject == .pushes } ? 1 : 0)
        let formerPushes = (observations(of: client).contains { $0.subject == .pushes } ? 1 : 0)
        machine.wishes.pushes += pushes - formerPushes
        observations.replace(client.slot, with: own)
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
        guard !observations.unsettled.isEmpty else { return }
        for slot in observations.unsettled {
            observations.replaceWishes(slot, with: wishes(ofClientIn: slot))
        }
        observations.unsettled.removeAll(keepingCapacity: true)
        observations.updateDemand()
    }

    private func wishes(ofClientIn slot: UInt32) -> [Observations.Wish] {
        guard observations.table.contains(slot), let id = clients.id(inSlot: slot) else { return [] }
        let isToCome = clients[id].lifecycle.state == .terminating
        return observations.table[slot].compactMap { observation in
            guard isToCome || isWanted(observation.subject, ClientID(id)) else { return nil }
            return switch observation.subject {
            case .location(let service): .location(service.demand(settings.location))
            case .region(let region): .location(region.demand)
            case .bluetoothDevice, .characteristic, .accessory: .path(observation.subject)
            case .transfers, .pushes: nil
            }
        }
    }

    // MARK: What happens

    mutating func learnPosition(_ position: Position?, at now: Instant, into actions: inout ActionBuffer) {
        observations.position = position
        observations.forgetUnobserved()
        compareAllPositions(at: now, into: &actions)
        if let due = observations.movementDue { observations.look(at: due) }
    }

    mutating func learnBluetooth(
        _ devices: [String: Presence], at now: Instant, into actions: inout ActionBuffer
    ) {
        let before = observations.bluetooth
        observations.bluetooth = devices
        comparePresence(before, \.bluetooth, Subject.bluetoothDevice, at: now, into: &actions)
    }

    mutating func learnAccessories(
        _ accessories: [String: Presence], at now: Instant, into actions: inout ActionBuffer
    ) {
        let before = observations.accessories
        observations.accessories = accessories
        comparePresence(before, \.accessories, Subject.accessory, at: now, into: &actions)
    }

    /// Compares the devices that were known with those that are now.
    private mutating func comparePresence(
        _ before: [String: Presence], _ present: KeyPath<Observations, [String: Presence]>,
        _ subject: (String) -> Subject, at now: Instant, into actions: inout ActionBuffer
    ) {
        observations.forgetUnobserved()
        let changed = difference(before, observations[keyPath: present]).map(subject)
        compare(.presence, observers(of: changed), at: now, into: &actions)
    }

    private func difference(_ one: [String: Presence], _ other: [String: Presence]) -> [String] {
        one.keys.filter { other[$0] == nil } + other.keys.filter { other[$0] != one[$0] }
    }

    private func observers(of subjects: [Subject]) -> [UInt32] {
        subjects.reduce(into: Set<UInt32>()) { $0.formUnion(observations.observers[$1] ?? []) }.sorted()
    }

    mutating func learnValue(
        _ path: String, _ value: [UInt8], at now: Instant, into actions: inout ActionBuffer
    ) {
        let subject = Subject.characteristic(path)
        compare(.value(subject, value), observations.observers[subject] ?? [], at: now, into: &actions)
    }

    mutating func compareAllPositions(at now: Instant, into actions: inout ActionBuffer) {
        observations.movementDue = nil
        compare(.position, observations.table.slots, at: now, into: &actions)
    }

    /// The facts that are compared with what is known of each subject.
    enum Comparison {
        case position
        case presence
        /// A characteristic has notified.
        case value(Subject, [UInt8])
        case transfers(EndedTransfers)

        /// Whether it is remembered for a client that is not to be told at present: it is reported once.
        fileprivate var isRemembered: Bool {
            switch self {
            case .position, .presence, .value: false
            case .transfers: true
            }
        }
    }

    /// A new state of a subject, and what has happened to it.
    private struct Change {
        var known: Observation.Known?
        var occurrence: Occurrence?
    }

    /// Compares what is known of the wanted subjects of clients with the facts.
    mutating func compare(
        _ comparison: Comparison, _ slots: [UInt32], at now: Instant, into actions: inout ActionBuffer
    ) {
        if case .position = comparison, observations.position == nil { return }
        guard !isStopping else { return }
        for slot in slots {
            guard observations.table.contains(slot), let id = clients.id(inSlot: slot) else { continue }
            let client = ClientID(id)
            for index in observations.table[slot].indices {
                let observation = observations.table[slot][index]
                guard comparison.isRemembered || isWanted(observation.subject, client) else { continue }
                let change =
                    switch comparison {
                    case .position: movement(of: observation, at: elapsed(at: now))
                    case .presence: change(of: observation)
                    case .value(observation.subject, let value): Change(occurrence: .value(value))
                    case .value: Change?.none
                    case .transfers(let ended): end(ended, of: observation, client)
                    }
                guard let change else { continue }
                if let known = change.known { observations.table[slot][index].known = known }
                recordObservations(of: client)
                guard let occurrence = change.occurrence else { continue }
                note(occurrence, index, of: client, isSimulated: false, at: now, into: &actions)
                if case .transfers(let ended) = comparison, ended.mayWait { hold(index, of: client, at: now) }
                if mutated(.tellsOtherObservers), let other = clients.ids.first(where: { $0 != id }) {
                    wake(ClientID(other), observation.subject.reason, at: now, into: &actions)
                    suspendIfIdle(ClientID(other), at: now, into: &actions)
                }
            }
        }
    }

    private func end(
        _ ended: EndedTransfers, of observation: Observation, _ client: ClientID
    ) -> Change? {
        guard observation.subject == .transfers(session: ended.session) else { return nil }
        if case .finish(let known) = observation.known, known >= ended.number, !mutated(.repeatsTransfers) {
            return nil
        }
        let isForgotten = clients[client.id].lifecycle.isDormant && mutated(.forgetsTransfers)
        return Change(known: .finish(ended.number), occurrence: isForgotten ? nil : .finished)
    }

    /// A device of which nothing is reported is unknown, which is not absent.
    private func change(of observation: Observation) -> Change? {
        guard let presence = observations.presence(of: observation.subject) else {
            let isDevice = observation.subject.pathKind != nil && observation.known != nil
            return isDevice && mutated(.takesUnknownForAbsent)
                ? Change(known: .presence(.absent), occurrence: .disconnected) : nil
        }
        guard observation.known != .presence(presence) else { return nil }
        // Whether it was there before is not known.
        return Change(
            known: .presence(presence), occurrence: observation.known == nil ? nil : presence.occurrence)
    }

    /// A movement that is not old enough to be told is looked at again.
    private mutating func movement(of observation: Observation, at elapsed: Instant) -> Change? {
        guard let position = observations.position else { return nil }
        switch (observation.subject, observation.known) {
        case (.region(let region), let known):
            let wasInside: Bool? = if case .inside(let isInside) = known { isInside } else { nil }
            guard let isInside = region.contains(position, wasInside: wasInside), isInside != wasInside
            else { return nil }
            if wasInside == nil { return Change(known: .inside(isInside)) }
            return Change(known: .inside(isInside), occurrence: isInside ? .entered : .exited)
        case (.location(let service), .position(let before, let since)):
            guard service.isMoved(from: before, to: position, settings.location) else { return nil }
            let earliest = since + service.pause(settings.location)
            guard elapsed >= earliest else {
                observations.movementDue = earlier(observations.movementDue, earliest)
                return nil
            }
            return Change(known: .position(position, at: elapsed), occurrence: .moved(position))
        case (.location, _):
            return Change(known: .position(position, at: elapsed), occurrence: .moved(position))
        case (.bluetoothDevice, _), (.characteristic, _), (.accessory, _), (.transfers, _), (.pushes, _):
            return nil
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
        observations.look(atClientIn: client.slot, at: elapsed)
        let name = observations.table[client.slot][index].name
        actions.append(
            .trace(client, .observed(.init(name: name, occurrence: occurrence, isSimulated: isSimulated))))
    }
}
