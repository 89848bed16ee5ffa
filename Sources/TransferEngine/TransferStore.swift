import FoundationEssentials
import GRDB
import Glibc
import LinuxSystem
import SwiftProtobuf
import TransferModel
import TransferWire

/// The sessions and tasks, in SQLite. The files lie beside it, and how much of each is there, only the file
/// tells.
///
/// Changes are gathered, and written in one transaction at the end of a turn: nothing is answered before. A
/// transaction survives the death of the process; one that makes a promise to a client is also on the disk.
final class TransferStore {
    struct Session {
        let id: SessionID
        let client: String
        let identifier: String
        /// In elapsed seconds: the last time that a connection was there, or that there was an end to tell.
        let seen: Int64
        /// How often all its tasks were finished, or one needed credentials.
        let ends: UInt64
    }

    struct Record {
        let id: TaskID
        let session: SessionID
        let tag: String
        var task: TransferTask
        var state: TaskState
        /// In elapsed seconds.
        let created: Int64
        /// A request was sent, or about to be, and its end is not known. Only of tasks that must not be
        /// repeated.
        var wasTried: Bool
        /// Without the number of bytes, which the file tells.
        var facts: PartialBody
        /// Bytes that are on the disk whatever happens.
        var durableBytes: Int64
    }

    private let database: DatabaseQueue
    private typealias Change = (Database) throws -> Void

    private var changes: [Change] = []
    private var makesPromise = false
    private(set) var lastTask: Int64
    private(set) var lastSession: Int64

    init(path: String) throws(TransferError) {
        do throws(SystemError) {
            // Header fields are in it, such as credentials. SQLite gives its other files the permissions of this one.
            _ = try OwnedDescriptor(opening: path, O_RDWR | O_CREAT, mode: 0o600)
            // Earlier versions have made them for all.
            for suffix in ["", "-wal", "-shm"] { _ = unsafe chmod(path + suffix, 0o600) }
        } catch {
            throw .store("\(error)")
        }
        do {
            var configuration = Configuration()
            // Another process may look into it: an administrator's, or one that makes a backup.
            configuration.busyMode = .timeout(2)
            configuration.prepareDatabase { database in
                try database.execute(sql: "PRAGMA journal_mode = WAL")
            }
            database = try DatabaseQueue(path: path, configuration: configuration)
            try TransferSchema.migrator.migrate(database)
            (lastTask, lastSession) = try database.read { database in
                let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?"
                return (
                    try Int64.fetchOne(database, sql: sql, arguments: ["task"]) ?? 0,
                    try Int64.fetchOne(database, sql: sql, arguments: ["session"]) ?? 0
                )
            }
        } catch {
            throw .store("\(error)")
        }
    }

    // MARK: Reading

    func load() throws(TransferError) -> (sessions: [Session], records: [Record]) {
        do {
            return try database.read { database in
                let sessions = try Row.fetchAll(database, sql: "SELECT * FROM session ORDER BY id").map {
                    Session(
                        id: SessionID($0["id"]), client: $0["client"], identifier: $0["identifier"],
                        seen: $0["seen"], ends: $0["ends"])
                }
                let records = try Row.fetchAll(database, sql: "SELECT * FROM task ORDER BY id")
                    .map { try Self.record($0) }
                return (sessions, records)
            }
        } catch {
            throw .store("\(error)")
        }
    }

    private static func record(_ row: Row) throws -> Record {
        let bytes: [UInt8] = Array(row["request"] as Data)
        let wire = try WireTransferTask(serializedBytes: bytes)
        let outcome: Data? = row["outcome"]
        let state: TaskState
        if let outcome {
            state = .finished(Outcome(try WireTransferOutcome(serializedBytes: Array(outcome))))
        } else {
            state = row["state"] == Self.needsCredentials ? .needsCredentials : .waiting
        }
        return Record(
            id: TaskID(row["id"]), session: SessionID(row["session"]), tag: row["tag"],
            // An earlier version has taken it: it is for the engine to end it, and all others go on.
            task: TransferTask(wire) ?? TransferTask(url: .refused),
            state: state, created: row["created"], wasTried: row["tried"],
            facts: PartialBody(total: row["total"], validator: validator(row)), durableBytes: row["durable"])
    }

    private static func validator(_ row: Row) -> Validator? {
        if let tag: String = row["entity_tag"] { return .entityTag(tag) }
        if let date: String = row["last_modified"] { return .lastModified(date) }
        return nil
    }

    private static func columns(_ validator: Validator?) -> (entityTag: String?, lastModified: String?) {
        switch validator {
        case .entityTag(let text): (text, nil)
        case .lastModified(let text): (nil, text)
        case nil: (nil, nil)
        }
    }

    /// When the last issue of each client was begun, in seconds since 1970, and the last that was fetched.
    func issues() throws(TransferError) -> [String: (begun: Int64, facts: IssueFacts)] {
        do {
            let rows = try database.read { try Row.fetchAll($0, sql: "SELECT * FROM issue") }
            return Dictionary(
                uniqueKeysWithValues: rows.map { row in
                    let facts = IssueFacts(url: row["url"], validator: Self.validator(row))
                    return (row["client"] as String, (row["begun"], facts))
                })
        } catch {
            throw .store("\(error)")
        }
    }

    private static let waiting = 0
    private static let needsCredentials = 1
    private static let finished = 2

    /// The last boot of the machine that was noted; nil: none was.
    func boot() throws(TransferError) -> String? {
        do {
            return try database.read { try String.fetchOne($0, sql: "SELECT id FROM boot") }
        } catch {
            throw .store("\(error)")
        }
    }

    func elapsedTime() throws(TransferError) -> ElapsedTime.Mark? {
        do {
            return try database.read { database in
                try Row.fetchOne(database, sql: "SELECT * FROM elapsed").map {
                    ElapsedTime.Mark(boot: $0["boot"], uptime: $0["uptime"], elapsed: $0["elapsed"])
                }
            }
        } catch {
            throw .store("\(error)")
        }
    }

    // MARK: Changing

    func setBoot(_ id: String) {
        makesPromise = true
        changes.append { database in
            try database.execute(sql: "DELETE FROM boot")
            try database.execute(sql: "INSERT INTO boot VALUES (?)", arguments: [id])
        }
    }

    func setElapsedTime(_ mark: ElapsedTime.Mark) {
        changes.append { database in
            try database.execute(sql: "DELETE FROM elapsed")
            try database.execute(
                sql: "INSERT INTO elapsed VALUES (?, ?, ?)",
                arguments: [mark.boot, mark.uptime, mark.elapsed])
        }
    }

    func addSession(client: String, identifier: String, seen: Int64) -> SessionID {
        lastSession += 1
        let id = lastSession
        makesPromise = true
        changes.append { database in
            try database.cachedStatement(
                sql: "INSERT INTO session (id, client, identifier, seen) VALUES (?, ?, ?, ?)"
            ).execute(arguments: [id, client, identifier, seen])
        }
        return SessionID(id)
    }

    func nextTaskID() -> TaskID {
        lastTask += 1
        return TaskID(lastTask)
    }

    func add(_ record: Record) throws(TransferError) {
        let request = try Self.bytes(WireTransferTask(record.task))
        makesPromise = true
        changes.append { database in
            try database.cachedStatement(
                sql: """
                    INSERT INTO task (id, session, tag, request, state, created) VALUES (?, ?, ?, ?, ?, ?)
                    """
            ).execute(arguments: [
                record.id.rawValue, record.session.rawValue, record.tag, request, Self.waiting,
                record.created,
            ])
        }
    }

    func setTried(_ id: TaskID, _ wasTried: Bool) {
        if wasTried { makesPromise = true }
        changes.append { database in
            try database.cachedStatement(sql: "UPDATE task SET tried = ? WHERE id = ?")
                .execute(arguments: [wasTried, id.rawValue])
        }
    }

    func setFacts(_ id: TaskID, _ facts: PartialBody, durableBytes: Int64) {
        changes.append(Self.factsChange(id, facts, durableBytes: durableBytes))
    }

    /// Writes these before the other changes of the turn, and without them: a task's end must not be stored before the
    /// end of its session that follows from it.
    ///
    /// - Parameter isPromise: they are on the disk when this returns, and survive a loss of power.
    func setFactsAtOnce(
        _ id: TaskID, _ facts: PartialBody, durableBytes: Int64, isPromise: Bool
    ) throws(TransferError) {
        let change = Self.factsChange(id, facts, durableBytes: durableBytes)
        try write([change], isPromise: isPromise)
        // An older value may be among the changes of the turn.
        changes.append(change)
    }

    private static func factsChange(_ id: TaskID, _ facts: PartialBody, durableBytes: Int64) -> Change {
        let (tag, date) = columns(facts.validator)
        return { database in
            try database.cachedStatement(
                sql: """
                    UPDATE task SET total = ?, entity_tag = ?, last_modified = ?, durable = ? WHERE id = ?
                    """
            ).execute(arguments: [facts.total, tag, date, durableBytes, id.rawValue])
        }
    }

    func setIssue(_ client: String, begun: Int64, _ facts: IssueFacts) {
        let (tag, date) = Self.columns(facts.validator)
        changes.append { database in
            try database.cachedStatement(sql: "INSERT OR REPLACE INTO issue VALUES (?, ?, ?, ?, ?)")
                .execute(arguments: [client, begun, facts.url, tag, date])
        }
    }

    func setDurable(_ id: TaskID, bytes: Int64) {
        changes.append { database in
            try database.cachedStatement(sql: "UPDATE task SET durable = ? WHERE id = ?")
                .execute(arguments: [bytes, id.rawValue])
        }
    }

    func setState(_ id: TaskID, _ state: TaskState) throws(TransferError) {
        let number: Int
        var outcome: Data?
        switch state {
        case .waiting: number = Self.waiting
        case .needsCredentials: number = Self.needsCredentials
        case .finished(let result):
            number = Self.finished
            outcome = try Self.bytes(WireTransferOutcome(result))
        }
        changes.append { [outcome] database in
            try database.cachedStatement(sql: "UPDATE task SET state = ?, outcome = ? WHERE id = ?")
                .execute(arguments: [number, outcome, id.rawValue])
        }
    }

    func setTask(_ id: TaskID, _ task: TransferTask) throws(TransferError) {
        let request = try Self.bytes(WireTransferTask(task))
        makesPromise = true
        changes.append { database in
            try database.cachedStatement(sql: "UPDATE task SET request = ? WHERE id = ?")
                .execute(arguments: [request, id.rawValue])
        }
    }

    func remove(_ id: TaskID) {
        changes.append { database in
            try database.cachedStatement(sql: "DELETE FROM task WHERE id = ?")
                .execute(arguments: [id.rawValue])
        }
    }

    func remove(_ id: SessionID) {
        changes.append { database in
            try database.cachedStatement(sql: "DELETE FROM session WHERE id = ?")
                .execute(arguments: [id.rawValue])
        }
    }

    func setEnds(_ id: SessionID, _ ends: UInt64) {
        changes.append { database in
            try database.cachedStatement(sql: "UPDATE session SET ends = ? WHERE id = ?")
                .execute(arguments: [Int64(clamping: ends), id.rawValue])
        }
    }

    func setSeen(_ id: SessionID, _ seconds: Int64) {
        changes.append { database in
            try database.cachedStatement(sql: "UPDATE session SET seen = ? WHERE id = ?")
                .execute(arguments: [seconds, id.rawValue])
        }
    }

    /// The changes since the last commit are on the disk after the next one, and survive a loss of power.
    func makePromise() { makesPromise = true }

    /// Writes the changes since the last call.
    func commit() throws(TransferError) {
        guard !changes.isEmpty else { return }
        try write(changes, isPromise: makesPromise)
        changes.removeAll(keepingCapacity: true)
        makesPromise = false
    }

    private func write(_ changes: [Change], isPromise: Bool) throws(TransferError) {
        do {
            try database.writeWithoutTransaction { database in
                try database.execute(sql: "PRAGMA synchronous = \(isPromise ? "FULL" : "NORMAL")")
                try database.inTransaction(.immediate) {
                    for change in changes { try change(database) }
                    return .commit
                }
            }
        } catch {
            throw .store("\(error)")
        }
    }

    private static func bytes(_ message: some SwiftProtobuf.Message) throws(TransferError) -> Data {
        do {
            return try message.serializedBytes()
        } catch {
            throw .store("\(error)")
        }
    }
}
