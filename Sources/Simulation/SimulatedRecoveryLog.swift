import NightbellCore

/// Shared memory and a keeper, as dictionaries. Shared state outlives a death at once; a death loses the
/// records that have not been flushed.
struct SimulatedRecoveryLog {
    /// The state of a client in shared memory.
    private struct Row {
        /// nil: it was cleared.
        var state: State?
        var toldWakeID: UInt64 = 0
    }

    typealias State = (row: ClientRow, statistics: ClientStatistics)

    /// A client's record, and the size of its saved state.
    struct ClientRecord: ClientRecoveryRecord {
        var registration: Registration
        var registeredAt: Instant
        /// The number of its ownership of its identifier.
        var ownership: UInt64
        var presence = RecoverySnapshot.Presence.registered
        var stateBytes = 0
    }

    private enum Item {
        case client(ClientID, ClientRecord?)
        case tasks(ClientID, [RecoverySnapshot.Task])
        case socket(SocketToken, RecoverySnapshot.Socket)
        case owner(UInt64, RecoverySnapshot.Owner?)
        case fetch(UInt64, RecoverySnapshot.Fetch?)
        case observations(ClientID, [Observation])
        case notification(UInt64, RecoverySnapshot.Notification?)
    }

    // Shared state.
    private var rows: [ClientID: Row] = [:]
    /// The marks of the wakes that have reported the ends of sockets, by slot.
    private var ends: [UInt32: UInt32] = [:]
    private(set) var offloads: [SocketToken: RecoverySnapshot.Offload] = [:]
    private var gone = ClientStatistics.CounterWords(repeating: 0)
    private var offloadsOfGone = OffloadTotals.Words(repeating: 0)
    private var pressedUntil: Instant?
    private var messageBeingReadOf: ClientID?
    private var network: UInt64?
    private var clientGeneration: UInt32 = 0
    private var socketGeneration: UInt32 = 0

    // Records.
    private var clients: [ClientID: ClientRecord] = [:]
    private var tasks: [ClientID: [RecoverySnapshot.Task]] = [:]
    private var sockets: [SocketToken: RecoverySnapshot.Socket] = [:]
    private var owners: [UInt64: RecoverySnapshot.Owner] = [:]
    private var fetches: [UInt64: RecoverySnapshot.Fetch] = [:]
    private var observations: [ClientID: [Observation]] = [:]
    private var notifications: [UInt64: RecoverySnapshot.Notification] = [:]
    /// Records that have not been flushed.
    private var pending: [Item] = []

    /// The records of clients as they were written last, flushed or not.
    private(set) var written: [ClientID: ClientRecord] = [:]

    var hasPending: Bool { !pending.isEmpty }

    func state(of client: ClientID) -> State? { rows[client]?.state }

    mutating func update(_ client: ClientID, _ change: (inout ClientRecord) -> Void) {
        guard var record = written[client] else { return }
        change(&record)
        put(record, of: client)
    }

    // MARK: Sockets

    /// Unlike the keeper's record, it is gone at once.
    mutating func remove(_ token: SocketToken) {
        flush()
        sockets[token] = nil
        offloads[token] = nil
    }

    // MARK: Death and recovery

    /// Loses what is pending.
    ///
    /// - Returns: the sockets that are lost.
    mutating func die() -> [SocketToken] {
        defer {
            pending.removeAll()
            written = clients
        }
        return pending.compactMap { item in
            guard case .socket(let token, _) = item, sockets[token] == nil else { return nil }
            offloads[token] = nil
            return token
        }
    }

    /// The supervisor has died while it wrote `later`: it has flushed the observations, and not stored the
    /// rest.
    func flushing(_ later: SimulatedRecoveryLog) -> SimulatedRecoveryLog {
        var log = self
        log.flush()
        log.observations = later.observations
        log.notifications = later.notifications
        return log
    }

    /// The previous supervisor's state, in a fixed order, without what only the kernel knows.
    var snapshot: RecoverySnapshot {
        var snapshot = RecoverySnapshot()
        snapshot.clients = clients.sorted { $0.key.rawValue < $1.key.rawValue }.map { id, record in
            var client = RecoverySnapshot.Client(
                id: id, registration: record.registration, registeredAt: record.registeredAt)
            client.state = rows[id]?.state
            client.toldWakeID = rows[id]?.toldWakeID ?? 0
            client.tasks = tasks[id] ?? []
            client.observations = observations[id] ?? []
            client.ownership = record.ownership
            client.presence = record.presence
            client.stateBytes = record.stateBytes
            client.hasMessageInFlight = messageBeingReadOf == id
            return client
        }
        snapshot.sockets = sockets.values.sorted { $0.token.rawValue < $1.token.rawValue }
        for index in snapshot.sockets.indices {
            let token = snapshot.sockets[index].token
            snapshot.sockets[index].endedInWake = ends[token.slot] ?? 0
            snapshot.sockets[index].offload = offloads[token]
        }
        snapshot.owners = owners.values.sorted { $0.number < $1.number }
        snapshot.fetches = fetches.values.sorted { $0.ownership < $1.ownership }
        snapshot.notifications = notifications.values.sorted { $0.number < $1.number }
        snapshot.gone = gone
        snapshot.offloadsOfGone = offloadsOfGone
        snapshot.pressedUntil = pressedUntil
        snapshot.handledNetwork = network
        snapshot.clientGeneration = clientGeneration
        snapshot.socketGeneration = socketGeneration
        return snapshot
    }
}

extension SimulatedRecoveryLog: RecoveryLog {
    mutating func store(_ row: ClientRow, _ statistics: ClientStatistics, of client: ClientID) {
        rows[client, default: Row()].state = (row, statistics)
    }

    mutating func storeToldWake(_ wakeID: UInt64, of client: ClientID) {
        clientGeneration = max(clientGeneration, UInt32(client.rawValue >> 32))
        rows[client, default: Row()].toldWakeID = wakeID
    }

    mutating func storeEnd(_ mark: UInt32, of token: SocketToken) {
        ends[token.slot] = mark == 0 ? nil : mark
    }

    mutating func store(_ offload: RecoverySnapshot.Offload, of token: SocketToken) {
        offloads[token] = offload
    }

    mutating func store(gone: ClientStatistics.CounterWords) { self.gone = gone }

    mutating func store(offloadsOfGone: OffloadTotals.Words) { self.offloadsOfGone = offloadsOfGone }

    mutating func store(pressedUntil: Instant) { self.pressedUntil = pressedUntil }

    mutating func store(messageBeingReadOf client: ClientID?) { messageBeingReadOf = client }
    mutating func store(network: UInt64) { self.network = network == 0 ? nil : network }

    mutating func clear(_ client: ClientID) { rows[client] = nil }

    mutating func put(_ record: ClientRecord, of client: ClientID) {
        written[client] = record
        pending.append(.client(client, record))
    }

    mutating func update(_ record: ClientRecord, of client: ClientID) { put(record, of: client) }

    /// The world knows which processes there are.
    mutating func removeProcess(of client: ClientID) {}

    mutating func put(_ socket: RecoverySnapshot.Socket, of token: SocketToken) {
        socketGeneration = max(socketGeneration, UInt32(token.rawValue >> 32))
        pending.append(.socket(token, socket))
    }

    mutating func put(_ tasks: [RecoverySnapshot.Task], of client: ClientID) {
        pending.append(.tasks(client, tasks))
    }

    mutating func put(_ owner: RecoverySnapshot.Owner) { pending.append(.owner(owner.number, owner)) }

    mutating func removeOwner(_ number: UInt64) { pending.append(.owner(number, nil)) }

    mutating func put(_ fetch: RecoverySnapshot.Fetch) { pending.append(.fetch(fetch.ownership, fetch)) }

    mutating func removeFetch(_ number: UInt64) { pending.append(.fetch(number, nil)) }

    mutating func put(_ observations: [Observation], of client: ClientID) {
        pending.append(.observations(client, observations))
    }

    mutating func put(_ notification: RecoverySnapshot.Notification) {
        pending.append(.notification(notification.number, notification))
    }

    mutating func removeNotification(_ number: UInt64) { pending.append(.notification(number, nil)) }

    mutating func removeRecords(of client: ClientID) {
        written[client] = nil
        pending.append(.client(client, nil))
    }

    mutating func flush() {
        for item in pending {
            switch item {
            case .client(let client, let record):
                clients[client] = record
                if record == nil {
                    tasks[client] = nil
                    observations[client] = nil
                }
            case .tasks(let client, let held): tasks[client] = held.isEmpty ? nil : held
            case .socket(let token, let socket): sockets[token] = socket
            case .owner(let number, let owner): owners[number] = owner
            case .fetch(let number, let fetch): fetches[number] = fetch
            case .observations(let client, let own): observations[client] = own
            case .notification(let number, let record): notifications[number] = record
            }
        }
        pending.removeAll(keepingCapacity: true)
    }
}
