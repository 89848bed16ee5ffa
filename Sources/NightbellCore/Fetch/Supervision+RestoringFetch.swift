/// Fetches survive the supervisor's process.
extension RecoverySnapshot {
    /// The record of a client's fetches. It belongs to the ownership of the identifier.
    package struct Fetch: Sendable, Equatable {
        package var ownership: UInt64
        package var state: FetchState
        /// The fetch that is going on.
        package var run: Supervision.FetchRun?

        package init(ownership: UInt64, state: FetchState, run: Supervision.FetchRun? = nil) {
            self.ownership = ownership
            self.state = state
            self.run = run
        }
    }
}

extension Supervision {
    /// The record that another supervisor needs to continue a client's fetches.
    package func fetchSnapshot(at place: UInt32) -> RecoverySnapshot.Fetch? {
        guard let state = fetches.state(at: place), let owner = owners[place: place] else { return nil }
        let run = owner.client.flatMap { isFetching($0) ? fetchRuns[$0.slot] : nil }
        return RecoverySnapshot.Fetch(ownership: owner.number, state: state, run: run)
    }

    /// The identifier of a record's client, and its user.
    package func owner(at place: UInt32) -> (identifier: ClientIdentifier, user: UserID)? {
        owners[place: place].map { (owners.identifier(at: place), $0.user) }
    }

    /// Restores what is known of the fetches of an identifier that has an owner. Call it before the first
    /// event.
    package mutating func remember(_ state: FetchState, of identifier: ClientIdentifier) {
        guard let place = owners.place(of: identifier) else { return }
        fetches.restore(state, at: place)
        changes.fetches.append(place)
    }

    /// - Returns: the fetches that were going on, by the slot of their client.
    mutating func restoreFetches(_ old: [RecoverySnapshot.Fetch]) -> [UInt32: FetchRun] {
        guard !old.isEmpty, !mutated(.restoresWithoutFetches) else { return [:] }
        var places: [UInt64: UInt32] = [:]
        for identifier in owners.keys {
            guard let place = owners.place(of: identifier), let owner = owners[place: place] else { continue }
            places[owner.number] = place
        }
        var runs: [UInt32: FetchRun] = [:]
        for fetch in old {
            guard let place = places[fetch.ownership] else { continue }
            if let client = owners[place: place]?.client {
                runs[client.slot] = fetch.run
            }
            fetches.restore(fetch.state, at: place)
        }
        return runs
    }

    /// Continues the fetch of a client that runs. If the client may not have been told of it, its time starts
    /// again.
    mutating func resumeFetch(_ old: RecoverySnapshot.Client, _ run: FetchRun?, at now: Instant) {
        let client = old.id
        switch clients[client.id].lifecycle.stage {
        case .inactive, .active, .background:
            if var run, run.wakeID <= clients[client.id].lastWakeID {
                if run.wakeID > old.toldWakeID {
                    // The wake that is repeated is the last one.
                    run = FetchRun(
                        wakeID: clients[client.id].lastWakeID, began: now,
                        until: now + settings.budgets.fetch)
                    clients[client.id].lastWakeReasons.insert(.fetch)
                }
                fetchRuns.insert(run, at: client.slot)
                fetches.resume(clients[client.id].owner, of: clients[client.id].user)
            } else if clients[client.id].lastWakeID > old.toldWakeID,
                clients[client.id].lastWakeReasons.contains(.fetch)
            {
                // The record was lost with the previous supervisor.
                beginFetch(client, at: now)
            }
        case .notRunning, .suspending, .suspended, .terminating, .dormant, .launching:
            break  // it is over
        }
    }
}
