import Keeper
import LinuxSystem
import NightbellCore

/// Everything that must outlive this process is written through here before it is acknowledged.
///
/// Small values that change often are stored in the shared state, at once and without a system call.
/// Descriptors and texts are collected in packets for the keeper, which leave before the next message to a
/// client, before a launched program may run, and at the end of a turn: a death can lose the last of them,
/// and not those of the shared state. Nothing here is ever awaited. Confined to the loop's thread.
final class Journal {
    let link: KeeperLink
    let sharedState: SharedStateTable
    /// The number of workers before this one.
    let restarts: UInt64
    /// The number of this worker's program, counted from the first; 0: the first did not count.
    let programNumber: UInt64
    /// Slots with a mark in the shared state; it is not read for the others, because most have none.
    private var marked: Set<Int>
    /// Clients with a record of observations, because most have none.
    private var observers: Set<ClientID> = []

    /// The words of the shared state that concern all clients.
    private enum General {
        static let restarts = 0
        static let startedAt = 1
        static let clientGeneration = 2
        static let socketGeneration = 3
        static let hasBegun = 4
        /// All marks lie before it.
        static let marksEnd = 5
        static let messageBeingRead = 6
        static let programNumber = 7
        static let gone = 8
        /// Follows the counters of clients that are gone.
        static let pressedUntil = gone + ClientStatistics.counterCount
        static let network = pressedUntil + 1
        static let offloadsOfGone = network + 1
    }

    private enum Plain {
        static let told = 0
        /// The first of them are near words.
        static let statistics = 1
    }

    /// - Parameter isOtherProgram: the previous worker ran the program that this one's is to replace.
    init(
        _ link: KeeperLink, _ sharedState: SharedStateTable, isFirst: Bool, isOtherProgram: Bool,
        startedAt: Instant
    ) {
        self.link = link
        self.sharedState = sharedState
        restarts = isFirst ? 0 : sharedState.general(General.restarts) + 1
        let number = sharedState.general(General.programNumber)
        programNumber = isFirst ? 1 : isOtherProgram ? number + 1 : number
        marked = Set(
            (0..<Int(clamping: sharedState.general(General.marksEnd))).filter { sharedState.mark($0) != 0 })
        if isFirst {
            sharedState.setGeneral(General.startedAt, to: UInt64(bitPattern: startedAt.nanoseconds))
        }
    }

    /// This worker is in charge from now on.
    func begin() {
        sharedState.setGeneral(General.programNumber, to: programNumber)
        sharedState.setGeneral(General.restarts, to: restarts)
    }

    /// When the first worker started.
    var startedAt: Instant {
        Instant(nanoseconds: Int64(bitPattern: sharedState.general(General.startedAt)))
    }

    /// Whether the clients that start with the supervisor have been launched.
    var hasBegun: Bool {
        get { sharedState.general(General.hasBegun) != 0 }
        set { sharedState.setGeneral(General.hasBegun, to: newValue ? 1 : 0) }
    }

    // MARK: Records

    func forget(_ token: SocketToken) { link.remove(.socket(token)) }

    /// Call it before a client with this setting is recorded.
    func store(_ setting: LaunchSetting) { link.put(.setting(setting.number), setting.record) }

    /// Call it after the last client with these settings is forgotten, or is launched in another way.
    func forget(settings: [UInt64]) {
        for number in settings { link.remove(.setting(number)) }
    }

    /// The outcome of its launch is known.
    func forgetGate(_ client: ClientID) { link.remove(.gate(client)) }

    /// Its process was not made by us.
    func forgetProcess(_ client: ClientID) { link.remove(.process(client)) }

    func storeState(_ client: ClientID, _ state: [UInt8]) { link.put(.state(client), state) }

    func dropState(_ client: ClientID) { link.remove(.state(client)) }

    private func raise(_ index: Int, to value: UInt64) {
        if value > sharedState.general(index) { sharedState.setGeneral(index, to: value) }
    }

    // MARK: Recovery

    /// The previous workers' state, without the descriptors and without what only the kernel knows.
    func snapshot(_ records: Records) -> RecoverySnapshot {
        var snapshot = RecoverySnapshot()
        observers = Set(records.observations.keys)
        snapshot.clients = records.clients.map { id, record in
            var client = RecoverySnapshot.Client(
                id: id, registration: record.registration, registeredAt: record.registeredAt)
            client.ownership = record.ownership
            client.tasks = records.tasks[id] ?? []
            client.observations = records.observations[id] ?? []
            client.stateBytes = records.stateSizes[id] ?? 0
            client.hasMessageInFlight = sharedState.general(General.messageBeingRead) == id.rawValue
            client.presence = record.presence
            if let row = sharedState.read(Int(id.slot)).map(ClientRow.init), row.isAbout(id) {
                var statistics = ClientStatistics()
                for index in statistics.words.indices {
                    statistics.words[index] = sharedState.plain(Int(id.slot), Plain.statistics + index)
                }
                client.state = (row, statistics)
                client.toldWakeID = sharedState.plain(Int(id.slot), Plain.told)
            }
            return client
        }
        snapshot.sockets = records.sockets.map { record in
            var socket = record.socket
            let slot = Int(socket.token.slot)
            socket.endedInWake = marked.contains(slot) ? sharedState.mark(slot) : 0
            if records.profiles[socket.token] != nil {
                socket.offload = offloadProgress(socket.token, at: startedAt)
            }
            return socket
        }
        snapshot.owners = records.owners
        snapshot.fetches = records.fetches
        snapshot.notifications = records.notifications
        snapshot.lastNotification = WallClock.now() / 1_000
        for index in snapshot.gone.indices {
            snapshot.gone[index] = sharedState.general(General.gone + index)
        }
        for index in snapshot.offloadsOfGone.indices {
            snapshot.offloadsOfGone[index] = sharedState.general(General.offloadsOfGone + index)
        }
        let pressedUntil = sharedState.general(General.pressedUntil)
        if pressedUntil != 0 {
            snapshot.pressedUntil = Instant(nanoseconds: Int64(bitPattern: pressedUntil))
        }
        let network = sharedState.general(General.network)
        snapshot.handledNetwork = network == 0 ? nil : network
        snapshot.clientGeneration = UInt32(truncatingIfNeeded: sharedState.general(General.clientGeneration))
        snapshot.socketGeneration = UInt32(truncatingIfNeeded: sharedState.general(General.socketGeneration))
        return snapshot
    }

    /// The records of the store, decoded.
    struct Records {
        var clients: [(id: ClientID, record: ClientRecordBytes)] = []
        var tasks: [ClientID: [RecoverySnapshot.Task]] = [:]
        var observations: [ClientID: [Observation]] = [:]
        var sockets: [SocketRecordBytes] = []
        var owners: [RecoverySnapshot.Owner] = []
        var fetches: [RecoverySnapshot.Fetch] = []
        var notifications: [RecoverySnapshot.Notification] = []
        /// Profiles, and socket options to be restored.
        var profiles: [SocketToken: [UInt8]] = [:]
        var formerOptions: [SocketToken: TCPKeepAlive] = [:]
        var receiveBuffers: [SocketToken: ReceiveBuffer] = [:]
        var stateSizes: [ClientID: Int] = [:]
        var settings: [UInt64: LaunchSetting] = [:]

        init() {}

        init(_ store: borrowing RecordStore) throws(RecordError) {
            let keys = store.sortedKeys
            for key in keys[.settings] {
                settings[key.id] = try LaunchSetting(key, store.record(key) ?? [])
            }
            for key in keys[.clients] {
                let id = ClientID(rawValue: key.id)
                clients.append((id, try ClientRecordBytes(key, store.record(key) ?? [], settings)))
                guard let held = store.record(.tasks(id)) else { continue }
                tasks[id] = try TaskRecordBytes.tasks(.tasks(id), held)
            }
            for key in keys[.observations] {
                observations[ClientID(rawValue: key.id)] = try ObservationRecordBytes.observations(
                    key, store.record(key) ?? [])
            }
            for key in keys[.states] {
                stateSizes[ClientID(rawValue: key.id)] = store.record(key)?.count
            }
            let socketKeys = keys[.sockets]
            sockets.reserveCapacity(socketKeys.count)
            for key in socketKeys {
                sockets.append(try SocketRecordBytes(key, store.record(key) ?? []))
            }
            for key in keys[.offloads] {
                profiles[SocketToken(rawValue: key.id)] = store.record(key)
            }
            for key in keys[.formerOptions] {
                formerOptions[SocketToken(rawValue: key.id)] =
                    try FormerOptionsBytes.former(key, store.record(key) ?? [])
            }
            for key in keys[.receiveBuffers] {
                receiveBuffers[SocketToken(rawValue: key.id)] =
                    try Journal.receiveBuffer(key, store.record(key) ?? [])
            }
            for key in keys[.owners] {
                owners.append(try OwnerRecordBytes.owner(key, store.record(key) ?? []))
            }
            for key in keys[.fetches] {
                fetches.append(try FetchRecordBytes.fetch(key, store.record(key) ?? []))
            }
            for key in keys[.notifications] {
                if let notification = try NotificationRecordBytes.notification(key, store.record(key) ?? []) {
                    notifications.append(notification)
                }
            }
        }
    }
}

/// The core decides what is stored, and in which order.
extension Journal: RecoveryLog {
    /// With the descriptors that the keeper is to hold.
    struct ClientRecord: ClientRecoveryRecord {
        var bytes: ClientRecordBytes
        var connection: CInt?
        /// Of the process that was made for the client, and of the report on its launch.
        var process: (descriptor: CInt, gate: CInt)?

        var presence: RecoverySnapshot.Presence {
            get { bytes.presence }
            set { bytes.presence = newValue }
        }
    }

    func store(_ row: ClientRow, _ statistics: ClientStatistics, of client: ClientID) {
        let slot = Int(client.slot)
        for index in statistics.words.indices {
            sharedState.setPlain(slot, Plain.statistics + index, to: statistics.words[index])
        }
        FaultInjection.point("before the state of a client is stored")
        sharedState.write(slot, row.words)
        FaultInjection.point("after the state of a client is stored")
    }

    func storeToldWake(_ wakeID: UInt64, of client: ClientID) {
        raise(General.clientGeneration, to: client.rawValue >> 32)
        sharedState.setPlain(Int(client.slot), Plain.told, to: wakeID)
    }

    func storeEnd(_ mark: UInt32, of token: SocketToken) {
        let slot = Int(token.slot)
        if mark == 0 {
            if !marked.isEmpty, marked.remove(slot) != nil { sharedState.setMark(slot, to: 0) }
        } else {
            marked.insert(slot)
            raise(General.marksEnd, to: UInt64(slot) + 1)
            sharedState.setMark(slot, to: mark)
        }
    }

    func store(gone: ClientStatistics.CounterWords) {
        for index in gone.indices { sharedState.setGeneral(General.gone + index, to: gone[index]) }
    }

    func store(offloadsOfGone words: OffloadTotals.Words) {
        for index in words.indices {
            sharedState.setGeneral(General.offloadsOfGone + index, to: words[index])
        }
    }

    func store(pressedUntil: Instant) {
        sharedState.setGeneral(General.pressedUntil, to: UInt64(bitPattern: pressedUntil.nanoseconds))
    }

    func store(messageBeingReadOf client: ClientID?) {
        sharedState.setGeneral(General.messageBeingRead, to: client?.rawValue ?? 0)
    }

    func store(network: UInt64) {
        FaultInjection.point("before the network is stored")
        sharedState.setGeneral(General.network, to: network)
        FaultInjection.point("after the network is stored")
    }

    func clear(_ client: ClientID) { sharedState.clear(Int(client.slot)) }

    func put(_ record: ClientRecord, of client: ClientID) {
        if let process = record.process {
            link.put(.process(client), [], descriptor: process.descriptor)
            link.put(.gate(client), [], descriptor: process.gate)
        }
        link.put(.client(client), record.bytes.bytes, descriptor: record.connection)
    }

    func update(_ record: ClientRecord, of client: ClientID) {
        link.update(.client(client), record.bytes.bytes)
    }

    func removeProcess(of client: ClientID) {
        link.remove(.process(client))
        link.remove(.gate(client))
    }

    /// `flush` before the descriptor is given to another process.
    func put(_ record: SocketRecordBytes, of token: SocketToken) {
        guard let descriptor = record.descriptor else { return link.update(.socket(token), record.bytes) }
        raise(General.socketGeneration, to: token.rawValue >> 32)
        link.put(.socket(token), record.bytes, descriptor: descriptor)
    }

    func put(_ tasks: [RecoverySnapshot.Task], of client: ClientID) {
        if tasks.isEmpty { return link.remove(.tasks(client)) }
        link.put(.tasks(client), TaskRecordBytes.bytes(of: tasks))
    }

    func put(_ owner: RecoverySnapshot.Owner) {
        link.put(.owner(owner.number), OwnerRecordBytes.bytes(of: owner))
    }

    func removeOwner(_ number: UInt64) { link.remove(.owner(number)) }

    func put(_ fetch: RecoverySnapshot.Fetch) {
        link.put(.fetch(fetch.ownership), FetchRecordBytes.bytes(of: fetch))
    }

    func removeFetch(_ number: UInt64) { link.remove(.fetch(number)) }

    func put(_ observations: [Observation], of client: ClientID) {
        observers.insert(client)
        if observations.isEmpty { return link.remove(.observations(client)) }
        FaultInjection.point("before observations are stored")
        link.put(.observations(client), ObservationRecordBytes.bytes(of: observations))
    }

    func put(_ notification: RecoverySnapshot.Notification) {
        FaultInjection.point("before a notification is stored")
        link.put(.notification(notification.number), NotificationRecordBytes.bytes(of: notification))
        FaultInjection.point("after a notification is stored")
    }

    func removeNotification(_ number: UInt64) { link.remove(.notification(number)) }

    func removeRecords(of client: ClientID) {
        link.remove(.tasks(client))
        if observers.remove(client) != nil { link.remove(.observations(client)) }
        removeProcess(of: client)
        link.remove(.state(client))
        link.remove(.client(client))
    }

    func flush() { link.flush() }
}

// The two have the same size: see `SharedStateSizeTests`.
extension ClientRow {
    fileprivate init(_ words: SharedStateTable.Words) {
        self = unsafe unsafeBitCast(words, to: ClientRow.self)
    }

    fileprivate var words: SharedStateTable.Words {
        unsafe unsafeBitCast(self, to: SharedStateTable.Words.self)
    }
}
