/// The changes that must be persisted before the actions of the same events are carried out.
///
/// It names what has changed, and a `RecoveryLog` reads the values from the core. The core reuses its memory,
/// so that an event costs no allocation.
struct ChangeSet: Sendable, Equatable {
    /// Clients with a changed state.
    var clients: [ClientID] = []
    /// Clients that have registered, were declared, or have lost or changed their process: their earlier
    /// wakes need no repetition.
    var beginnings: [ClientID] = []
    /// Clients with changed background tasks.
    var tasks: [ClientID] = []
    /// Sockets with an end that was reported in another wake than before, or has yet to be reported.
    var ends: [SocketToken] = []
    /// Sockets with changed pings.
    var offloads: [SocketToken] = []
    /// Identifiers with a changed owner or quit state.
    var ownerships: [ClientIdentifier] = []
    /// The places of identifiers with a changed record of their fetches.
    var fetches: [UInt32] = []
    /// Clients with changed observations.
    var observations: [ClientID] = []
    /// Notifications, and events of them, that were changed or have gone.
    var notifications: [Notification] = []

    struct Notification: Sendable, Equatable {
        var number: UInt64
        /// Of its identifier.
        var place: UInt32
    }

    /// The numbers of ended ownerships.
    var endedOwnerships: [UInt64] = []
    /// Memory is short for longer than it was known to be.
    var hasPressure = false
    /// Another network is handled.
    var hasNetwork = false
    /// Sockets with a profile have gone.
    var hasOffloadsOfGone = false

    var isEmpty: Bool { offloads.isEmpty && isOfPings }

    /// Whether nothing but pings has changed.
    var isOfPings: Bool {
        clients.isEmpty && ends.isEmpty && beginnings.isEmpty && tasks.isEmpty && ownerships.isEmpty
            && fetches.isEmpty && observations.isEmpty && notifications.isEmpty && endedOwnerships.isEmpty
            && !hasPressure && !hasNetwork && !hasOffloadsOfGone
    }

    mutating func removeAll() {
        clients.empty()
        beginnings.empty()
        tasks.empty()
        ends.empty()
        offloads.empty()
        ownerships.empty()
        fetches.empty()
        observations.empty()
        notifications.empty()
        endedOwnerships.empty()
        hasPressure = false
        hasNetwork = false
        hasOffloadsOfGone = false
    }
}

extension Supervision {
    // MARK: Noting changes

    /// Marks a client as changed.
    mutating func touch(_ client: ClientID) {
        guard notesChanges, !clients[client.id].isTouched else { return }
        clients[client.id].isTouched = true
        changes.clients.append(client)
    }

    mutating func recordBeginning(_ client: ClientID) {
        if notesChanges { changes.beginnings.append(client) }
    }

    mutating func recordTasks(_ client: ClientID) {
        if notesChanges, !mutated(.persistsNoTasks) { changes.tasks.append(client) }
    }

    /// Ends the background tasks of a client without the process that began them.
    mutating func endTasks(_ client: ClientID) {
        if clients[client.id].assertions.hasTasks { recordTasks(client) }
        clients[client.id].assertions = Assertions()
    }

    mutating func recordObservations(of client: ClientID) {
        guard notesChanges, changes.observations.last != client else { return }
        changes.observations.append(client)
    }

    /// Noted even if nothing else is.
    mutating func recordNotification(_ number: UInt64, _ place: UInt32) {
        changes.notifications.append(.init(number: number, place: place))
    }

    mutating func noteEnd(_ token: SocketToken) {
        if notesChanges, !mutated(.persistsNoEnds) { changes.ends.append(token) }
    }

    mutating func touchOffload(_ token: SocketToken) {
        if notesChanges { changes.offloads.append(token) }
    }

    mutating func recordEndOfOwnership(_ number: UInt64) {
        if notesChanges { changes.endedOwnerships.append(number) }
    }

    /// Noted even if nothing else is.
    mutating func recordFetch(of client: ClientID) {
        changes.fetches.append(clients[client.id].owner)
    }

    // MARK: Persisting

    /// Identifiers with a changed owner or quit state. They are noted even if nothing else is.
    package var changedOwnerships: [ClientIdentifier] { changes.ownerships }

    /// The places of identifiers with a changed record of their fetches. They are noted even if nothing else
    /// is.
    package var changedFetches: [UInt32] { changes.fetches }

    /// Writes all changes since the last call to the log. Call it before the actions are carried out.
    package mutating func persistChanges(in log: inout some RecoveryLog) {
        guard !changes.isEmpty else { return }
        if changes.isOfPings { return persistPings(in: &log) }
        var changes = ChangeSet()
        swap(&changes, &self.changes)
        untouch(changes)
        log.apply(changes, of: self)
        changes.removeAll()
        swap(&changes, &self.changes)
    }

    /// The usual changes while clients sleep.
    private mutating func persistPings(in log: inout some RecoveryLog) {
        for index in changes.offloads.indices {
            let token = changes.offloads[index]
            if let offload = offloadSnapshot(of: token) { log.store(offload, of: token) }
        }
        changes.offloads.removeAll(keepingCapacity: true)
    }

    /// As `persistChanges`, without a log.
    package mutating func dropChanges() {
        untouch(changes)
        changes.removeAll()
    }

    private mutating func untouch(_ changes: ChangeSet) {
        for client in changes.clients where clients.contains(client.id) {
            clients[client.id].isTouched = false
        }
    }
}

extension Array {
    /// Keeps the capacity. Most arrays of a change are empty, and need no call of the runtime.
    fileprivate mutating func empty() {
        if !isEmpty { removeAll(keepingCapacity: true) }
    }
}
