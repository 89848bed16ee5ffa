import Keeper
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// The kinds of records that the supervisor stores in the keeper. No number can be used twice: that does not
/// compile.
enum RecordKind: UInt8 {
    case clients = 16
    case tasks = 17
    case sockets = 18
    case owners = 19
    /// The processes that were launched, for as long as they live: their pidfds.
    case processes = 20
    /// State that clients have saved for their next process.
    case states = 21
    /// The sockets that tell waiting processes to run their program.
    case gates = 22
    /// Launch settings shared by clients.
    case settings = 23
    /// The keep-alive profiles of sockets.
    case offloads = 24
    /// The original options of sockets, while others are set.
    case formerOptions = 25
    case receiveBuffers = 26
    /// The fetches of a client.
    case fetches = 27
    /// The observations of a client.
    case observations = 28
    /// The notifications of all identifiers, and the events that their clients are told.
    case notifications = 31
}

extension RecordKey {
    init(_ kind: RecordKind, id: UInt64) { self.init(kind: kind.rawValue, id: id) }

    static func client(_ id: ClientID) -> RecordKey { RecordKey(.clients, id: id.rawValue) }
    static func tasks(_ id: ClientID) -> RecordKey { RecordKey(.tasks, id: id.rawValue) }
    static func socket(_ token: SocketToken) -> RecordKey { RecordKey(.sockets, id: token.rawValue) }
    static func process(_ id: ClientID) -> RecordKey { RecordKey(.processes, id: id.rawValue) }
    static func gate(_ id: ClientID) -> RecordKey { RecordKey(.gates, id: id.rawValue) }
    static func state(_ id: ClientID) -> RecordKey { RecordKey(.states, id: id.rawValue) }
    static func owner(_ number: UInt64) -> RecordKey { RecordKey(.owners, id: number) }
    static func observations(_ id: ClientID) -> RecordKey { RecordKey(.observations, id: id.rawValue) }
    static func setting(_ number: UInt64) -> RecordKey { RecordKey(.settings, id: number) }
    static func fetch(_ number: UInt64) -> RecordKey { RecordKey(.fetches, id: number) }
    static func notification(_ number: UInt64) -> RecordKey { RecordKey(.notifications, id: number) }
}

extension RecordStore.SortedKeys {
    subscript(kind: RecordKind) -> [RecordKey] { self[kind.rawValue] }
}

/// The background tasks that a client holds, with the requests that began them.
enum TaskRecordBytes {
    static func bytes(of tasks: [RecoverySnapshot.Task]) -> [UInt8] {
        StoredTasks.with {
            $0.tasks = tasks.map { task in
                .with {
                    $0.id = task.id
                    $0.request = task.request
                    $0.name = task.name
                }
            }
        }.record
    }

    static func tasks(_ key: RecordKey, _ record: [UInt8]) throws(RecordError) -> [RecoverySnapshot.Task] {
        try StoredTasks(key, record).tasks.map {
            RecoverySnapshot.Task(id: $0.id, request: $0.request, name: $0.name)
        }
    }
}

/// An adopted socket's attributes. Kept with the duplicate itself.
struct SocketRecordBytes {
    var socket: RecoverySnapshot.Socket
    var name: String
    /// The duplicate; nil: the keeper has it.
    var descriptor: CInt?

    var bytes: [UInt8] {
        var record = SocketRecord()
        record.owner = socket.owner.rawValue
        record.tag = socket.tag.stored
        record.isStream = socket.isStream
        record.request = socket.request
        record.index = UInt32(socket.index)
        record.survives = socket.survives
        record.name = name
        record.isRouted = socket.isRouted
        return record.bytes
    }

    init(socket: RecoverySnapshot.Socket, name: String, descriptor: CInt? = nil) {
        self.socket = socket
        self.name = name
        self.descriptor = descriptor
    }

    init(_ key: RecordKey, _ record: [UInt8]) throws(RecordError) {
        guard let stored = SocketRecord(record) else {
            // The general decoder has the reason.
            _ = try StoredSocket(key, record)
            throw RecordError(key: key, problem: "has no valid tag")
        }
        guard let tag = SocketTag(stored.tag), let index = UInt16(exactly: stored.index) else {
            throw RecordError(key: key, problem: "has no valid tag or index")
        }
        socket = RecoverySnapshot.Socket(
            token: SocketToken(rawValue: key.id), owner: ClientID(rawValue: stored.owner), tag: tag,
            isStream: stored.isStream, request: stored.request, index: index, survives: stored.survives,
            isRouted: stored.isRouted)
        name = stored.name
    }
}

/// The owner of an identifier.
enum OwnerRecordBytes {
    static func bytes(of owner: RecoverySnapshot.Owner) -> [UInt8] {
        StoredOwner.with {
            $0.user = owner.user
            $0.givenUp = owner.givenUp
            $0.isQuit = owner.isQuit
            $0.identifier = owner.identifier.description
        }.record
    }

    static func owner(_ key: RecordKey, _ record: [UInt8]) throws(RecordError) -> RecoverySnapshot.Owner {
        let stored = try StoredOwner(key, record)
        guard let identifier = ClientIdentifier(stored.identifier) else {
            throw RecordError(key: key, problem: "has no identifier")
        }
        return RecoverySnapshot.Owner(
            identifier: identifier, user: stored.user, number: key.id, givenUp: stored.givenUp,
            isQuit: stored.isQuit)
    }
}

extension SocketTag {
    fileprivate var stored: StoredSocket.Tag {
        switch self {
        case .voip: .voip
        case .listener: .listener
        case .device: .device
        }
    }

    fileprivate init?(_ stored: StoredSocket.Tag) {
        switch stored {
        case .voip: self = .voip
        case .listener: self = .listener
        case .device: self = .device
        case .unspecified, .UNRECOGNIZED: return nil
        }
    }
}
