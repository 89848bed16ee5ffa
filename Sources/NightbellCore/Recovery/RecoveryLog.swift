/// Where a supervisor persists what the next one needs.
///
/// The policy is here, as extensions: which change writes what, and in which order. A log only stores. There
/// are two: shared memory and the keeper's records, and the simulator's, which loses what a death can lose.
package protocol RecoveryLog {
    // MARK: Shared state, which outlives the supervisor at once

    /// Stores the state of a client, all of the row or nothing.
    mutating func store(_ row: ClientRow, _ statistics: ClientStatistics, of client: ClientID)
    /// Wakes up to this number were delivered, or are not to be delivered any more.
    mutating func storeToldWake(_ wakeID: UInt64, of client: ClientID)
    /// Stores the mark of the wake that has reported the end of a socket; 0: none has.
    mutating func storeEnd(_ mark: UInt32, of token: SocketToken)
    mutating func store(_ offload: RecoverySnapshot.Offload, of token: SocketToken)
    /// Stores the totals of the counters of clients that are gone.
    mutating func store(gone: ClientStatistics.CounterWords)
    /// Stores until when launches wait because memory is short.
    mutating func store(pressedUntil: Instant)
    /// Stores the client that may be frozen, and of which a message is being read; nil: there is none.
    mutating func store(messageBeingReadOf client: ClientID?)
    /// Stores the fingerprint of the network that is handled; 0: none.
    mutating func store(network: UInt64)
    /// Stores the totals of the pings of sockets that are gone.
    mutating func store(offloadsOfGone: OffloadTotals.Words)
    /// Removes the state of a client.
    mutating func clear(_ client: ClientID)

    // MARK: Records, which outlive the supervisor once they are flushed, in this order

    associatedtype ClientRecord: ClientRecoveryRecord
    associatedtype SocketRecord
    /// Replaces the record of a client, and the descriptors that are kept with it.
    mutating func put(_ record: ClientRecord, of client: ClientID)
    /// Replaces the record of a client, and leaves it its descriptors.
    mutating func update(_ record: ClientRecord, of client: ClientID)
    /// Removes the descriptors of the process that was made for a client.
    mutating func removeProcess(of client: ClientID)
    mutating func put(_ record: SocketRecord, of token: SocketToken)
    /// Replaces the record of a client's background tasks.
    mutating func put(_ tasks: [RecoverySnapshot.Task], of client: ClientID)
    mutating func put(_ owner: RecoverySnapshot.Owner)
    mutating func removeOwner(_ number: UInt64)
    mutating func put(_ fetch: RecoverySnapshot.Fetch)
    /// Removes the record of the fetches of an ownership, if there is one.
    mutating func removeFetch(_ number: UInt64)
    /// Replaces the record of a client's observations.
    mutating func put(_ observations: [Observation], of client: ClientID)
    mutating func put(_ notification: RecoverySnapshot.Notification)
    /// Removes the record of a notification, or of an event of one, if there is one.
    mutating func removeNotification(_ number: UInt64)
    /// Removes all records of a client, except those of its sockets.
    mutating func removeRecords(of client: ClientID)
    mutating func flush()
}

/// The record of a client. It says for the next supervisor which process the client has.
package protocol ClientRecoveryRecord {
    var presence: RecoverySnapshot.Presence { get set }
}

extension RecoveryLog {
    /// Writes the changes of the events just handled. If the supervisor dies before it has carried out their
    /// actions, the next one finishes or repeats these.
    mutating func apply(_ changes: ChangeSet, of supervision: borrowing Supervision) {
        if changes.hasPressure { store(pressedUntil: supervision.pressedUntil) }
        // Before the wake that tells of them: it is repeated with all that is known of it.
        for client in changes.observations where supervision.contains(client) {
            put(supervision.observationSnapshot(of: client), of: client)
        }
        for change in changes.notifications {
            if let notification = supervision.notificationSnapshot(change) {
                put(notification)
            } else {
                removeNotification(change.number)
            }
        }
        if !changes.observations.isEmpty || !changes.notifications.isEmpty { flush() }
        for client in changes.beginnings where supervision.contains(client) {
            storeToldWake(supervision.toldWakeID(of: client), of: client)
        }
        for client in changes.clients where supervision.contains(client) {
            store(supervision.row(of: client), supervision.statistics(of: client), of: client)
        }
        // After the clients that have yet to be told of it.
        if changes.hasNetwork { store(network: supervision.machine.handledNetwork ?? 0) }
        if changes.hasOffloadsOfGone { store(offloadsOfGone: supervision.offloadsOfGone) }
        for token in changes.offloads {
            if let offload = supervision.offloadSnapshot(of: token) { store(offload, of: token) }
        }
        for token in changes.ends {
            guard let owner = supervision.owner(of: token) else { continue }
            let isTold = supervision.condition(of: token)?.isPastEnd == true
            storeEnd(isTold ? SocketToken.mark(of: supervision.wakeID(of: owner)) : 0, of: token)
        }
        for client in changes.tasks where supervision.contains(client) {
            put(supervision.tasks(of: client), of: client)
        }
        for place in changes.fetches {
            if let fetch = supervision.fetchSnapshot(at: place) { put(fetch) }
        }
        for number in changes.endedOwnerships {
            removeOwner(number)
            removeFetch(number)
        }
        var isQuit = false
        for identifier in changes.ownerships {
            putOwner(of: identifier, supervision)
            isQuit = isQuit || supervision.owner(of: identifier)?.isQuit == true
        }
        // Forgetting its client begins in the shared state: without this the quit could be lost on the way.
        if isQuit { flush() }
    }

    /// Records the owner of an identifier, unless the record of its client implies it.
    private mutating func putOwner(of identifier: ClientIdentifier, _ supervision: borrowing Supervision) {
        let owner = supervision.owner(of: identifier)
        guard let owner, !supervision.mutated(.persistsNoOwners) else { return }
        if owner.givenUp != 0 || owner.isQuit { put(owner) }
    }

    /// Call it before each message of a client is read, which removes the message from the queue that would
    /// outlive the supervisor: a client that may be frozen cannot repeat it.
    ///
    /// - Returns: whether the client may be frozen. Then call `finishReading` once what follows from the
    ///   message is recorded, or done.
    package mutating func beginReading(from client: ClientID, of supervision: borrowing Supervision) -> Bool {
        guard supervision.mayBeFrozen(client) else { return false }
        if !supervision.mutated(.persistsNoReading) { store(messageBeingReadOf: client) }
        return true
    }

    package mutating func finishReading() { store(messageBeingReadOf: nil) }

    /// Records an adopted socket before its owner gets an answer.
    package mutating func adopt(_ token: SocketToken, _ record: SocketRecord) {
        // Another socket may have had the slot.
        storeEnd(0, of: token)
        put(record, of: token)
    }

    /// Records that a client has no process any more.
    package mutating func makeDormant(_ client: ClientID, _ record: ClientRecord) {
        put(record.with(.absent), of: client)
        removeProcess(of: client)
    }

    /// Records the process that was made for a client before its program may run.
    package mutating func launch(_ client: ClientID, _ record: ClientRecord) {
        put(record.with(.launched), of: client)
        flush()
    }

    /// Records that a process has its Welcome, or will read it. A client that may not have been welcomed, by
    /// its record, is told again why it was launched: so this comes before any other wake.
    package mutating func confirmWelcome(_ client: ClientID, _ record: ClientRecord) {
        update(record.with(.registered), of: client)
    }

    /// Records a client before its process is welcomed.
    ///
    /// - Parameter canRepeat: the process was launched, is known by the connection that was made for it, and
    ///   can repeat its Hello.
    package mutating func admit(
        _ client: ClientID, _ record: ClientRecord, canRepeat: Bool = false,
        of supervision: borrowing Supervision
    ) {
        admit(client, record.with(canRepeat ? .welcomed : .registered), supervision)
    }

    /// Records a client that was declared, and has no process yet.
    package mutating func declare(
        _ client: ClientID, _ record: ClientRecord, of supervision: borrowing Supervision
    ) {
        admit(client, record.with(.absent), supervision)
    }

    private mutating func admit(
        _ client: ClientID, _ record: ClientRecord, _ supervision: borrowing Supervision
    ) {
        put(record, of: client)
        // After the record that implies it.
        let owner = supervision.identifier(of: client).flatMap { supervision.owner(of: $0) }
        if let owner, owner.givenUp == 0, !owner.isQuit { removeOwner(owner.number) }
        flush()
    }

    /// Forgets a client, after its process, if it has one, is thawed for good.
    package mutating func forget(
        _ client: ClientID, _ identifier: ClientIdentifier, of supervision: borrowing Supervision
    ) {
        store(gone: supervision.statisticsOfGone)
        clear(client)
        // Before the record that implies it is removed.
        putOwner(of: identifier, supervision)
        removeRecords(of: client)
    }

    /// Finishes `forget` for clients that have lost their state and not their record: the supervisor died in
    /// between.
    ///
    /// - Returns: these clients, which are no longer in the snapshot.
    @discardableResult
    package mutating func finishForgetting(_ snapshot: inout RecoverySnapshot) -> Set<ClientID> {
        let forgotten = snapshot.clients.filter { $0.state == nil }
        for client in forgotten {
            let identifier = client.registration.identifier
            let latest = snapshot.owners.map(\.givenUp).max() ?? 0
            var owner =
                snapshot.owners.first { $0.identifier == identifier }
                ?? RecoverySnapshot.Owner(
                    identifier: identifier, user: client.registration.user, number: client.ownership,
                    givenUp: 0, isQuit: false)
            // It is recorded as in use, if it was quit.
            if owner.givenUp == 0 {
                owner.givenUp = latest + 1
                snapshot.owners.removeAll { $0.identifier == identifier }
                snapshot.owners.append(owner)
                put(owner)
            }
            removeRecords(of: client.id)
        }
        snapshot.clients.removeAll { $0.state == nil }
        return Set(forgotten.map(\.id))
    }
}

extension ClientRecoveryRecord {
    fileprivate func with(_ presence: RecoverySnapshot.Presence) -> Self {
        var record = self
        record.presence = presence
        return record
    }
}
