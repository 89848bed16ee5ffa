import NightbellCore

/// Persists what the next worker needs: the core's changes go through `RecoveryLog.apply` to `Journal`.
extension Supervisor {
    /// Persists the changes of the events just handled, before their actions are carried out.
    func persist() {
        let identifiers = ask { $0.changedOwnerships }
        if !identifiers.isEmpty {
            rememberOwnership(identifiers)
            cancelTransfers(ofQuit: identifiers)
            tellSubscriptions(ofClients: identifiers)
        }
        noteChangedFetches()
        noteChangedNotifications()
        guard var journal else { return supervision.dropChanges() }
        supervision.persistChanges(in: &journal)
    }

    /// As in `RecoveryLog`; false without a keeper.
    func beginReading(from client: ClientID) -> Bool {
        guard var journal else { return false }
        return journal.beginReading(from: client, of: supervision)
    }

    func finishReading() {
        if var journal { journal.finishReading() }
    }

    /// Writes down what outlives all supervisors: the owners of identifiers, and which clients were quit.
    func rememberOwnership(_ identifiers: [ClientIdentifier]) {
        guard let store = durable.identifiers else { return }
        let boot = durable.boot
        let lost = store.takeLoss() ? supervision.identifiers : []
        store.record(
            (lost + identifiers).map { identifier in
                let owner = supervision.ownership(of: identifier)
                let entry = owner.map {
                    IdentifierTable.Entry(user: $0.user, isQuit: $0.isQuit, quitBoot: boot)
                }
                return (identifier: identifier.description, entry: entry)
            })
    }

    /// The next worker is not to have this socket.
    func forgetRecords(of token: SocketToken) {
        journal?.forget(token)
        if offload.contains(token) { journal?.forgetOffload(token) }
        if receiveBuffers.contains(token) { journal?.forgetReceiveBuffer(token) }
    }
}
