import Descriptors
import Keeper
import NightbellCore

/// Everything that must outlive this process is written through here before it is acted upon or acknowledged.
///
/// Small values that change often are stored in the shared state, which costs no system call; descriptors and texts
/// go to the keeper in packets, one for a whole turn unless an answer must not wait. Nothing here is ever
/// awaited. The order is always the same: the shared state, the keeper, the action; so after a death between two of
/// them the action is at worst repeated. Confined to the loop's thread.
final class Journal {
    let link: KeeperLink
    let sharedState: SharedStateTable
    /// The number of workers before this one.
    let restarts: UInt64
    /// The number of this worker's program, counted from the first; 0: the first did not count.
    let programNumber: UInt64
    /// Slots with a mark in the shared state; it is not read for the others, because most have none.
    private var marked: Set<Int>

    /// The words of the shared state that concern all clients.
    private enum General {
        static let restarts = 0
        static let startedAt = 1
        static let clientGeneration = 2
        static let socketGeneration = 3
        static let hasBegun = 4
        /// All marks lie before it.
        static let marksEnd = 5
        static let heard = 6
        static let programNumber = 7
        static let gone = 8
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

    // MARK: Frequent changes

    /// Stores what has changed, after the core has handled an event and before its actions are carried out.
    func write(_ supervision: inout Supervision, after event: Event?) {
        supervision.takeChanged { client, supervision in store(client, supervision) }
        supervision.takeChangedOffloads { token, offload in write(offload, of: token) }
        switch event {
        case .fired(let token, _), .inspected(let token, _):
            noteEnd(of: token, supervision)
        case .message(.beginBackgroundTask, from: let client, _),
            .message(.endBackgroundTask, from: let client, _):
            guard supervision.contains(client) else { return }
            link.put(.tasks(client), TaskRecordBytes.bytes(of: supervision.tasks(of: client)))
        default:
            break
        }
    }

    private func store(_ client: ClientID, _ supervision: borrowing Supervision) {
        let slot = Int(client.slot)
        let statistics = supervision.statistics(of: client)
        for index in statistics.indices {
            sharedState.setPlain(slot, Plain.statistics + index, to: statistics[index])
        }
        FaultInjection.point("before the state of a client is stored")
        sharedState.write(slot, supervision.progress(of: client))
        FaultInjection.point("after the state of a client is stored")
    }

    /// A socket's end is reported once, across workers, unless bytes have come after it.
    func noteEnd(of token: SocketToken, _ supervision: borrowing Supervision) {
        guard supervision.condition(of: token)?.isPastEnd == true, let owner = supervision.owner(of: token)
        else { return unmark(token) }
        marked.insert(Int(token.slot))
        raise(General.marksEnd, to: UInt64(token.slot) + 1)
        sharedState.setMark(Int(token.slot), to: SocketToken.mark(of: supervision.wakeID(of: owner)))
    }

    /// This wake has been sent to a client.
    func noteTold(_ client: ClientID, wakeID: UInt64) {
        FaultInjection.point("before a wake counts as told")
        sharedState.setPlain(Int(client.slot), Plain.told, to: wakeID)
    }

    /// A message of a sleeper is being read, which removes it from the queue that would survive us; nil: its
    /// consequences are recorded, or done.
    func noteHearing(_ sleeper: ClientID?) {
        sharedState.setGeneral(General.heard, to: sleeper?.rawValue ?? 0)
    }

    // MARK: Records

    /// - Parameter connection: nil if it has no process.
    func keep(
        _ client: ClientID, _ record: ClientRecordBytes, connection: CInt?, _ supervision: inout Supervision
    ) {
        sharedState.setPlain(Int(client.slot), Plain.told, to: supervision.toldWakeID(of: client))
        raise(General.clientGeneration, to: client.rawValue >> 32)
        store(client, supervision)
        forgetEndedOwnerships(&supervision)
        link.put(.client(client), record.bytes, descriptor: connection)
        keepOwner(of: record.registration.identifier, supervision)
        link.flush()
    }

    func update(_ client: ClientID, _ record: ClientRecordBytes) {
        link.update(.client(client), record.bytes)
    }

    func forgetEndedOwnerships(_ supervision: inout Supervision) {
        for number in supervision.takeEndedOwnerships() { link.remove(.owner(number)) }
    }

    /// Records the owner of an identifier, unless the record of its client names it.
    func keepOwner(of identifier: ClientIdentifier, _ supervision: borrowing Supervision) {
        guard let owner = supervision.owner(of: identifier) else { return }
        if owner.givenUp == 0, !owner.isQuit { return link.remove(.owner(owner.number)) }
        link.put(.owner(owner.number), OwnerRecordBytes.bytes(of: owner))
    }

    /// `flush` before the descriptor is given to another process.
    func keep(_ socket: RecoverySnapshot.Socket, name: String, descriptor: CInt) {
        unmark(socket.token)
        raise(General.socketGeneration, to: socket.token.rawValue >> 32)
        let record = SocketRecordBytes(socket: socket, name: name)
        link.put(.socket(socket.token), record.bytes, descriptor: descriptor)
    }

    private func unmark(_ token: SocketToken) {
        if !marked.isEmpty, marked.remove(Int(token.slot)) != nil {
            sharedState.setMark(Int(token.slot), to: 0)
        }
    }

    func forget(_ token: SocketToken) { link.remove(.socket(token)) }

    /// Whether a worker had begun to forget the client of this record, and died before it had told the keeper.
    /// The shared state is cleared before the record is removed, and written before it is made; so a record without
    /// words was to be removed.
    func wasForgotten(_ client: ClientID) -> Bool {
        guard client.slot < sharedState.shape.records else { return false }
        return
            !(sharedState.read(Int(client.slot)).map { ClientStateEncoding.words($0, areAbout: client) }
            ?? false)
    }

    func forget(_ client: ClientID, _ identifier: ClientIdentifier, _ supervision: borrowing Supervision) {
        let statistics = supervision.statisticsOfGone
        for index in statistics.indices {
            sharedState.setGeneral(General.gone + index, to: statistics[index])
        }
        forgetRecords(of: client) { keepOwner(of: identifier, supervision) }
    }

    func forgetRecords(of client: ClientID, _ noteOwner: () -> Void = {}) {
        sharedState.clear(Int(client.slot))
        noteOwner()
        link.remove(.tasks(client))
        link.remove(.process(client))
        link.remove(.gate(client))
        link.remove(.state(client))
        link.remove(.client(client))
    }

    // MARK: Clients without a process

    /// Its process is gone, and the client remains.
    func park(_ client: ClientID, _ record: ClientRecordBytes, _ supervision: borrowing Supervision) {
        sharedState.setPlain(Int(client.slot), Plain.told, to: supervision.toldWakeID(of: client))
        link.remove(.tasks(client))
        link.put(.client(client), record.bytes)
        link.remove(.process(client))
        link.remove(.gate(client))
        noteEnds(client, supervision)
    }

    /// Call it before a client with this setting is recorded.
    func keep(_ setting: LaunchSetting) { link.put(.setting(setting.number), setting.record) }

    /// Call it after the last client with these settings is forgotten, or is launched in another way.
    func forget(settings: [UInt64]) {
        for number in settings { link.remove(.setting(number)) }
    }

    /// Records a process that runs its program once this is recorded.
    func noteLaunch(
        _ client: ClientID, _ record: ClientRecordBytes, connection: CInt, process: CInt, gate: CInt
    ) {
        link.put(.process(client), [], descriptor: process)
        link.put(.gate(client), [], descriptor: gate)
        link.put(.client(client), record.bytes, descriptor: connection)
        FaultInjection.point("before a launch is said")
        link.flush()
        FaultInjection.point("after a launch is said")
    }

    /// The outcome of its launch is known.
    func forgetGate(_ client: ClientID) { link.remove(.gate(client)) }

    /// Its process was not made by us.
    func forgetProcess(_ client: ClientID) { link.remove(.process(client)) }

    /// The requests that handed its sockets over are not those of its new process. Nor are its tasks: a worker
    /// that died after deciding to park the client has left their record.
    func forgetRequests(of client: ClientID, _ sockets: [(socket: RecoverySnapshot.Socket, name: String)]) {
        link.remove(.tasks(client))
        for (socket, name) in sockets {
            link.update(.socket(socket.token), SocketRecordBytes(socket: socket, name: name).bytes)
        }
    }

    func keepState(_ client: ClientID, _ state: [UInt8]) { link.put(.state(client), state) }

    func dropState(_ client: ClientID) { link.remove(.state(client)) }

    /// Records the ends of sockets that its process has been told or is being told, and no others.
    func noteEnds(_ client: ClientID, _ supervision: borrowing Supervision) {
        for token in supervision.sockets(of: client) {
            unmark(token)
            noteEnd(of: token, supervision)
        }
    }

    private func raise(_ index: Int, to value: UInt64) {
        if value > sharedState.general(index) { sharedState.setGeneral(index, to: value) }
    }

    // MARK: Recovery

    /// The previous workers' state, without the descriptors and without what only the kernel knows.
    func snapshot(_ records: Records) -> RecoverySnapshot {
        var snapshot = RecoverySnapshot()
        snapshot.clients = records.clients.map { id, record in
            var client = RecoverySnapshot.Client(
                id: id, registration: record.registration, registeredAt: record.registeredAt)
            client.ownership = record.ownership
            client.tasks = records.tasks[id] ?? []
            client.stateBytes = records.stateSizes[id] ?? 0
            client.mayHaveSpoken = sharedState.general(General.heard) == id.rawValue
            switch record.presence {
            case .registered: client.presence = .registered
            case .absent: client.presence = .absent
            case .launched: client.presence = .launched
            case .welcomed: client.presence = .welcomed
            }
            if let words = sharedState.read(Int(id.slot)), ClientStateEncoding.words(words, areAbout: id) {
                var statistics = ClientStateEncoding.Statistics(repeating: 0)
                for index in statistics.indices {
                    statistics[index] = sharedState.plain(Int(id.slot), Plain.statistics + index)
                }
                client.progress = (words, statistics)
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
        for index in snapshot.gone.indices {
            snapshot.gone[index] = sharedState.general(General.gone + index)
        }
        snapshot.clientGeneration = UInt32(truncatingIfNeeded: sharedState.general(General.clientGeneration))
        snapshot.socketGeneration = UInt32(truncatingIfNeeded: sharedState.general(General.socketGeneration))
        return snapshot
    }

    /// The records of the store, decoded.
    struct Records {
        var clients: [(id: ClientID, record: ClientRecordBytes)] = []
        var tasks: [ClientID: [RecoverySnapshot.Task]] = [:]
        var sockets: [SocketRecordBytes] = []
        var owners: [RecoverySnapshot.Owner] = []
        /// Profiles, and socket options to be restored.
        var profiles: [SocketToken: [UInt8]] = [:]
        var formerOptions: [SocketToken: TCPKeepAlive] = [:]
        var receiveBuffers: [SocketToken: ReceiveBuffer] = [:]
        var stateSizes: [ClientID: Int] = [:]
        var settings: [UInt64: LaunchSetting] = [:]

        init() {}

        init(_ store: borrowing RecordStore) throws(RecordError) {
            for key in store.keys(ofKind: RecordKey.settings) {
                settings[key.id] = try LaunchSetting(key, store.record(key) ?? [])
            }
            for key in store.keys(ofKind: RecordKey.clients) {
                let id = ClientID(rawValue: key.id)
                clients.append((id, try ClientRecordBytes(key, store.record(key) ?? [], settings)))
                guard let held = store.record(.tasks(id)) else { continue }
                tasks[id] = try TaskRecordBytes.tasks(.tasks(id), held)
            }
            for key in store.keys(ofKind: RecordKey.states) {
                stateSizes[ClientID(rawValue: key.id)] = store.record(key)?.count
            }
            for key in store.keys(ofKind: RecordKey.sockets) {
                sockets.append(try SocketRecordBytes(key, store.record(key) ?? []))
            }
            for key in store.keys(ofKind: RecordKey.offloads) {
                profiles[SocketToken(rawValue: key.id)] = store.record(key)
            }
            for key in store.keys(ofKind: RecordKey.formerOptions) {
                formerOptions[SocketToken(rawValue: key.id)] =
                    try FormerOptionsBytes.former(key, store.record(key) ?? [])
            }
            for key in store.keys(ofKind: RecordKey.receiveBuffers) {
                receiveBuffers[SocketToken(rawValue: key.id)] =
                    try Journal.receiveBuffer(key, store.record(key) ?? [])
            }
            for key in store.keys(ofKind: RecordKey.owners) {
                owners.append(try OwnerRecordBytes.owner(key, store.record(key) ?? []))
            }
        }
    }
}
