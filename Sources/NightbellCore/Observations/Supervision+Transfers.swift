/// Transfers: the transfer processes make them and report their ends. The core wakes the client, and says when
/// discretionary ones may run.
extension Supervision {
    /// Whether transfers that can wait may run now. Unknown facts are no reason to wait. While no transfer
    /// waits it is no good moment: nothing is asked about the machine then, and the next transfer must not
    /// begin by what was known before.
    package var isGoodMomentForTransfers: Bool {
        guard hasDiscretionaryTransfers else { return false }
        let isOnline = machine.network?.isUp ?? true
        let isCheap = machine.network?.isMetered != true && machine.isOnBattery != true
        return isOnline && isCheap && !machine.isShort && !machine.isSleepImminent && !isStopping
    }

    /// Whether any user has transfers that wait for a good moment.
    package var hasDiscretionaryTransfers: Bool { !machine.discretionaryUsers.isEmpty }

    /// The transfer process reports the last end of a session again whenever it starts, until the client has
    /// taken the results.
    mutating func learnTransfers(
        _ ended: EndedTransfers, at now: Instant, into actions: inout ActionBuffer
    ) {
        guard let owner = owners[ended.client], owner.user == ended.user, let client = owner.client else {
            return
        }
        observeUnasked(.transfers(session: ended.session), client, at: now)
        compare(.transfers(ended), [client.slot], at: now, into: &actions)
    }

    // MARK: Ends that can wait

    /// A client that sleeps is told of this with the next wake of any client, or once its time is over.
    mutating func hold(_ index: Int, of client: ClientID, at now: Instant) {
        guard !mutated(.hurriesDiscretionaryTransfers) else { return }
        let until = elapsed(at: now) + settings.discretionary.patience
        observations.table[client.slot][index].latest?.heldUntil = until
        observations.held.insert(client.slot)
    }

    /// Whether the client need not be woken for this yet.
    func isHeld(_ observation: Observation, _ client: ClientID, at now: Instant) -> Bool {
        guard let until = observation.latest?.heldUntil, elapsed(at: now) < until else { return false }
        switch clients[client.id].lifecycle.stage {
        case .suspending, .suspended, .dormant: return true
        case .notRunning, .inactive, .active, .background, .terminating, .launching: return false
        }
    }

    /// The machine is awake for another client, or will be in a moment.
    mutating func tellHeld(at now: Instant) {
        guard !observations.held.isEmpty, !mutated(.holdsDiscretionaryTransfers) else { return }
        let elapsed = elapsed(at: now)
        guard !pendingWakes.isEmpty || runsKeepAlivesAlong || schedule.isDue(at: elapsed) else { return }
        for slot in observations.held.sorted() {
            guard observations.table.contains(slot), let id = clients.id(inSlot: slot) else { continue }
            for index in observations.table[slot].indices
            where observations.table[slot][index].latest?.heldUntil != nil {
                observations.table[slot][index].latest?.heldUntil = nil
                recordObservations(of: ClientID(id))
            }
            observations.look(atClientIn: slot, at: elapsed)
        }
        observations.held.removeAll(keepingCapacity: true)
    }

    // MARK: Issues

    /// The session in which the issues come to which manifests subscribe.
    package static let newsstand = "newsstand"

    /// A client with the mode `newsstand` is told of its issues whether it has asked for that or not: it may
    /// never have run.
    mutating func observeIssues(_ client: ClientID, at now: Instant) {
        guard clients[client.id].modes.contains(.newsstand) else { return }
        observe(.transfers(session: Self.newsstand), client, at: now)
    }
}
