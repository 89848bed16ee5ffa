import Keeper
import NightbellCore

/// The kinds of records that the supervisor stores in the keeper.
extension RecordKey {
    static let clients: UInt8 = 16
    static let tasks: UInt8 = 17
    static let sockets: UInt8 = 18
    static let owners: UInt8 = 19
    /// The processes that were launched, for as long as they live: their pidfds.
    static let processes: UInt8 = 20
    /// The sockets that tell waiting processes to run their program.
    static let gates: UInt8 = 22
    /// State that clients have saved for their next process.
    static let states: UInt8 = 21

    /// Launch settings shared by clients.
    static let settings: UInt8 = 23

    static func client(_ id: ClientID) -> RecordKey { RecordKey(kind: clients, id: id.rawValue) }
    static func tasks(_ id: ClientID) -> RecordKey { RecordKey(kind: tasks, id: id.rawValue) }
    static func socket(_ token: SocketToken) -> RecordKey { RecordKey(kind: sockets, id: token.rawValue) }
    static func process(_ id: ClientID) -> RecordKey { RecordKey(kind: processes, id: id.rawValue) }
    static func gate(_ id: ClientID) -> RecordKey { RecordKey(kind: gates, id: id.rawValue) }
    static func state(_ id: ClientID) -> RecordKey { RecordKey(kind: states, id: id.rawValue) }
    static func owner(_ number: UInt64) -> RecordKey { RecordKey(kind: owners, id: number) }
    static func setting(_ number: UInt64) -> RecordKey { RecordKey(kind: settings, id: number) }
}

/// The background tasks that a client holds, with the requests that began them.
enum TaskRecordBytes {
    private static let version: UInt8 = 3

    static func bytes(of tasks: [RecoverySnapshot.Task]) -> [UInt8] {
        var writer = RecordWriter(version: version)
        writer.write(UInt16(clamping: tasks.count))
        for task in tasks {
            writer.write(task.id)
            writer.write(task.request)
            writer.write(task.name)
        }
        return writer.bytes
    }

    static func tasks(_ key: RecordKey, _ record: [UInt8]) throws(RecordError) -> [RecoverySnapshot.Task] {
        var reader = try RecordReader(key, record, version: version)
        let count: UInt16 = try reader.read()
        var tasks: [RecoverySnapshot.Task] = []
        for _ in 0..<count {
            tasks.append(
                RecoverySnapshot.Task(
                    id: try reader.read(), request: try reader.read(), name: try reader.read()))
        }
        try reader.end()
        return tasks
    }
}

/// An adopted socket's attributes. Kept with the duplicate itself.
struct SocketRecordBytes {
    private static let version: UInt8 = 4

    var socket: RecoverySnapshot.Socket
    var name: String

    var bytes: [UInt8] {
        var writer = RecordWriter(version: Self.version, capacity: 32 + name.utf8.count)
        writer.write(socket.owner.rawValue)
        writer.write(socket.tag.number)
        writer.write(socket.isStream)
        writer.write(socket.request)
        writer.write(socket.index)
        writer.write(socket.survives)
        writer.write(name)
        return writer.bytes
    }

    init(socket: RecoverySnapshot.Socket, name: String) {
        self.socket = socket
        self.name = name
    }

    init(_ key: RecordKey, _ record: [UInt8]) throws(RecordError) {
        var reader = try RecordReader(key, record, version: Self.version)
        let owner = ClientID(rawValue: try reader.read())
        guard let tag = SocketTag(number: try reader.read()) else { throw reader.problem("has no tag") }
        socket = RecoverySnapshot.Socket(
            token: SocketToken(rawValue: key.id), owner: owner, tag: tag, isStream: try reader.read(),
            request: try reader.read(), index: try reader.read(), survives: try reader.read())
        name = try reader.read()
        try reader.end()
    }
}

extension Supervision {
    /// A socket's part of the recovery snapshot.
    ///
    /// - Parameter request: the request that handed it over; 0: it was not the present process's.
    func snapshotSocket(_ token: SocketToken, request: UInt64 = 0, index: UInt16 = 0) -> RecoverySnapshot
        .Socket?
    {
        guard let owner = owner(of: token), let tag = tag(of: token) else { return nil }
        return RecoverySnapshot.Socket(
            token: token, owner: owner, tag: tag, isStream: isStream(token), request: request, index: index,
            survives: survives(token))
    }
}

/// The owner of an identifier.
enum OwnerRecordBytes {
    private static let version: UInt8 = 4

    static func bytes(of owner: RecoverySnapshot.Owner) -> [UInt8] {
        var writer = RecordWriter(version: version)
        writer.write(owner.user)
        writer.write(owner.givenUp)
        writer.write(owner.isQuit)
        writer.write(owner.identifier.description)
        return writer.bytes
    }

    static func owner(_ key: RecordKey, _ record: [UInt8]) throws(RecordError) -> RecoverySnapshot.Owner {
        var reader = try RecordReader(key, record, version: version)
        let user: UInt32 = try reader.read()
        let givenUp: UInt64 = try reader.read()
        let isQuit: Bool = try reader.read()
        guard let identifier = ClientIdentifier(try reader.read()) else {
            throw reader.problem("has no identifier")
        }
        try reader.end()
        return RecoverySnapshot.Owner(
            identifier: identifier, user: user, number: key.id, givenUp: givenUp, isQuit: isQuit)
    }
}

extension SocketTag {
    fileprivate var number: UInt8 {
        switch self {
        case .voip: 1
        case .listener: 2
        case .device: 3
        }
    }

    fileprivate init?(number: UInt8) {
        switch number {
        case 1: self = .voip
        case 2: self = .listener
        case 3: self = .device
        default: return nil
        }
    }
}
