import FoundationEssentials
import GRDB
import Glibc
import LinuxSystem

/// The addresses and messages, in SQLite.
///
/// Changes are gathered, and written in one transaction at the end of a turn, to the disk: nothing is answered
/// before. One transaction serves all senders of a turn.
final class PushStore {
    private let database: DatabaseQueue
    private let room: DiskRoom
    private var changes: [(Database) throws -> Void] = []
    /// The room that the changes take, in bytes, as far as they add something.
    private var addedBytes: Int64 = 0
    /// Messages that are handled or too old: whatever becomes of other changes, they are removed as soon as that is
    /// possible.
    private var discarded: [UInt64] = []
    /// So many of them at once while the disk is full.
    private static let discardedAtOnce = 8
    /// Of one change, in bytes, with what it does to the indexes.
    private static let bytesOfChange: Int64 = 8_192
    /// Of any transaction, in bytes.
    private static let bytesOfTransaction: Int64 = 16_384
    private var writtenNumber: UInt64 = 0
    /// In elapsed seconds: the time is written again even if nothing else is.
    private var markDue: Int64 = 0
    /// In seconds; messages that wait live longer by as much at most, with each start of the machine.
    static let markPeriod: Int64 = 3_600
    /// Held as long as the store is open.
    private let lock: OwnedDescriptor

    init(directory: String) throws(PushError) {
        let path = directory + "/pushes.sqlite"
        room = DiskRoom(directory: directory, database: path)
        do throws(SystemError) {
            let lock = try OwnedDescriptor(opening: directory + "/lock", O_RDWR | O_CREAT, mode: 0o600)
            let rawValue = lock.rawValue
            _ = try systemCall("another process has \(directory)") { flock(rawValue, LOCK_EX | LOCK_NB) }
            self.lock = lock
            // SQLite gives its other files the permissions of this one: they are for this user alone.
            _ = try OwnedDescriptor(opening: path, O_RDWR | O_CREAT, mode: 0o600)
            _ = try systemCall("chmod \(path)") { unsafe chmod(path, 0o600) }
            // They may have been made before the first was.
            for suffix in ["-wal", "-shm"] { _ = unsafe chmod(path + suffix, 0o600) }
        } catch {
            throw .system(error)
        }
        do {
            var configuration = Configuration()
            // Another process may look into it: an administrator's, or one that makes a backup.
            configuration.busyMode = .timeout(2)
            configuration.prepareDatabase { database in
                try database.execute(sql: "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
            }
            database = try DatabaseQueue(path: path, configuration: configuration)
            try Self.migrator.migrate(database)
            // A log that was left on a full disk takes room.
            shortenLog()
        } catch {
            throw .store("\(error)")
        }
    }

    private static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("1") { database in
            try database.execute(
                sql: """
                    CREATE TABLE subscription (
                        token TEXT PRIMARY KEY,
                        user INTEGER NOT NULL,
                        client TEXT NOT NULL,
                        name TEXT NOT NULL,
                        key BLOB NOT NULL,
                        UNIQUE (user, client, name)) WITHOUT ROWID;
                    CREATE TABLE message (
                        id INTEGER PRIMARY KEY,
                        user INTEGER NOT NULL,
                        client TEXT NOT NULL,
                        token TEXT REFERENCES subscription ON DELETE CASCADE,
                        urgency INTEGER NOT NULL,
                        topic TEXT NOT NULL,
                        accepted INTEGER NOT NULL,
                        expires INTEGER NOT NULL,
                        body BLOB NOT NULL);
                    CREATE INDEX message_token ON message (token);
                    CREATE TABLE number (last INTEGER NOT NULL);
                    -- Another store must not have the numbers of a lost one.
                    INSERT INTO number VALUES (abs(random() % 4611686018427387904));
                    """)
        }
        migrator.registerMigration("2") { database in
            // Times were those of the clock on the wall: that of each message begins anew.
            try database.execute(
                sql: """
                    ALTER TABLE number ADD COLUMN boot TEXT;
                    ALTER TABLE number ADD COLUMN uptime INTEGER;
                    ALTER TABLE number ADD COLUMN elapsed INTEGER;
                    UPDATE message SET expires = expires - accepted / 1000;
                    """)
        }
        return migrator
    }

    // MARK: Reading

    /// Everything but the bodies.
    func load(_ limits: PushLimits) throws(PushError) -> Mailboxes {
        do {
            return try database.read { database in
                let last = try Int64.fetchOne(database, sql: "SELECT last FROM number") ?? 0
                var mailboxes = Mailboxes(limits, lastNumber: UInt64(last))
                for row in try Row.fetchAll(database, sql: "SELECT * FROM subscription") {
                    mailboxes.restore(
                        PushSubscription(
                            token: row["token"],
                            recipient: Recipient(user: row["user"], client: row["client"]),
                            name: row["name"], applicationServerKey: Array(row["key"] as Data)))
                }
                let sql = "SELECT id, user, client, token, urgency, topic, expires FROM message ORDER BY id"
                for row in try Row.fetchAll(database, sql: sql) {
                    mailboxes.restore(
                        WaitingMessage(
                            id: UInt64(row["id"] as Int64), token: row["token"],
                            urgency: Urgency(rawValue: row["urgency"]) ?? .normal, topic: row["topic"],
                            expires: row["expires"]),
                        to: Recipient(user: row["user"], client: row["client"]))
                }
                return mailboxes
            }
        } catch {
            throw .store("\(error)")
        }
    }

    /// nil: none was stored.
    func elapsedTime() throws(PushError) -> ElapsedTime.Mark? {
        do {
            return try database.read { database in
                let sql = "SELECT boot, uptime, elapsed FROM number WHERE boot IS NOT NULL"
                return try Row.fetchOne(database, sql: sql).map {
                    ElapsedTime.Mark(boot: $0["boot"], uptime: $0["uptime"], elapsed: $0["elapsed"])
                }
            }
        } catch {
            throw .store("\(error)")
        }
    }

    /// The bodies of messages, and when they were accepted, in milliseconds since 1970.
    func contents(of ids: [UInt64]) throws(PushError) -> [UInt64: (body: [UInt8], accepted: UInt64)] {
        do {
            return try database.read { database in
                var contents: [UInt64: (body: [UInt8], accepted: UInt64)] = [:]
                let statement = try database.cachedStatement(
                    sql: "SELECT body, accepted FROM message WHERE id = ?")
                for id in ids {
                    guard let row = try Row.fetchOne(statement, arguments: [Int64(id)]) else { continue }
                    contents[id] = (Array(row["body"] as Data), UInt64(row["accepted"] as Int64))
                }
                return contents
            }
        } catch {
            throw .store("\(error)")
        }
    }

    // MARK: Changing

    func add(_ subscription: PushSubscription) {
        addedBytes += Self.bytesOfChange
        changes.append { database in
            try database.cachedStatement(
                sql: "INSERT INTO subscription (token, user, client, name, key) VALUES (?, ?, ?, ?, ?)"
            ).execute(arguments: [
                subscription.token, subscription.recipient.user, subscription.recipient.client,
                subscription.name,
                Data(subscription.applicationServerKey),
            ])
        }
    }

    /// And its messages.
    func remove(_ subscription: PushSubscription) {
        changes.append { database in
            try database.cachedStatement(sql: "DELETE FROM subscription WHERE token = ?")
                .execute(arguments: [subscription.token])
        }
    }

    func add(_ message: WaitingMessage, to recipient: Recipient, _ body: [UInt8], accepted: UInt64) {
        addedBytes += Self.bytesOfChange
        changes.append { database in
            try database.cachedStatement(
                sql: """
                    INSERT INTO message (id, user, client, token, urgency, topic, accepted, expires, body)
                    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
                    """
            ).execute(arguments: [
                Int64(message.id), recipient.user, recipient.client, message.token, message.urgency.rawValue,
                message.topic, Int64(accepted), message.expires, Data(body),
            ])
        }
    }

    func remove(_ ids: [UInt64]) {
        guard !ids.isEmpty else { return }
        changes.append { database in
            let statement = try database.cachedStatement(sql: "DELETE FROM message WHERE id = ?")
            for id in ids { try statement.execute(arguments: [Int64(id)]) }
        }
    }

    /// Messages that are handled, or too old.
    func discard(_ ids: [UInt64]) { discarded += ids }

    var hasDiscarded: Bool { !discarded.isEmpty }

    /// Those that are still stored.
    var discardedMessages: Set<UInt64> { Set(discarded) }

    /// Writes the changes since the last call, with the time.
    ///
    /// - Parameter removes: whether discarded messages are removed as well; on a full disk some of them at a time.
    func commit(lastNumber: UInt64, at mark: ElapsedTime.Mark, removes: Bool) throws(PushError) {
        let isDue = lastNumber != writtenNumber || mark.elapsed >= markDue
        guard !changes.isEmpty || isDue || removes && hasDiscarded else { return }
        do {
            let ids = try makeRoom(removes: removes)
            try database.write { database in
                for change in changes { try change(database) }
                let statement = try database.cachedStatement(sql: "DELETE FROM message WHERE id = ?")
                for id in ids { try statement.execute(arguments: [Int64(id)]) }
                try database.cachedStatement(
                    sql: "UPDATE number SET last = ?, boot = ?, uptime = ?, elapsed = ?"
                ).execute(arguments: [Int64(lastNumber), mark.boot, mark.uptime, mark.elapsed])
            }
            discarded.removeFirst(ids.count)
        } catch {
            if (error as? DatabaseError)?.resultCode == .SQLITE_FULL { shortenLog() }
            throw .store("\(error)")
        }
        changes.removeAll(keepingCapacity: true)
        addedBytes = 0
        (writtenNumber, markDue) = (lastNumber, mark.elapsed + Self.markPeriod)
    }

    /// Makes room for the changes.
    ///
    /// - Returns: the discarded messages that are removed with them.
    private func makeRoom(removes: Bool) throws -> ArraySlice<UInt64> {
        let removed = removes ? discarded[...] : []
        let bytes = addedBytes + Int64(removed.count) * Self.bytesOfChange + Self.bytesOfTransaction
        guard room.isShort(for: bytes) else { return removed }
        shortenLog()
        if addedBytes > 0 {
            let unused = try database.read { database in
                let pages = try Int64.fetchOne(database, sql: "PRAGMA freelist_count") ?? 0
                return pages * (try Int64.fetchOne(database, sql: "PRAGMA page_size") ?? 0)
            }
            guard room.has(addedBytes + Self.bytesOfTransaction, unused: unused) else {
                throw DatabaseError(resultCode: .SQLITE_FULL)
            }
        }
        return removed.prefix(Self.discardedAtOnce)
    }

    /// Copies the log into the database. Another process that reads, or a full disk, may prevent it.
    private func shortenLog() {
        _ = try? database.writeWithoutTransaction { try $0.checkpoint(.truncate) }
    }

    /// The changes since the last call of `commit` are not to be written.
    func dropChanges(lastNumber: UInt64, at mark: ElapsedTime.Mark) {
        changes = []
        addedBytes = 0
        (writtenNumber, markDue) = (lastNumber, mark.elapsed + Self.markPeriod)
    }
}
