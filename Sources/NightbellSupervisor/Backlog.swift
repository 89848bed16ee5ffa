import Descriptors
import EventLoop

/// What is to be dealt with, in the order in which users take turns.
///
/// A turn of the loop has a limited time for connections, because what fires meanwhile waits: the rest stays in here until
/// the next turn. A user that has used up its share, be it with one costly packet or with a thousand connections, waits
/// until the others have had theirs.
package struct Backlog<Element>: ~Copyable {
    private struct User {
        /// The oldest first; those before `next` are done.
        var waiting: [Element] = []
        var next = 0
        /// What is left of its share, in nanoseconds. Below zero: it owes time.
        var credit: Int64 = 0

        mutating func take() -> Element {
            defer {
                next += 1
                if next == waiting.count || next >= 64 && next > waiting.count / 2 {
                    waiting.removeFirst(next)
                    next = 0
                }
            }
            return waiting[next]
        }
    }

    /// Users that have something in here, or have had.
    private var users: [UInt32: User] = [:]
    /// Users that have something in here, and which of them is next.
    private var ring: [UInt32] = []
    private var position = 0
    package private(set) var count = 0

    /// What a user may use up before it is another's turn, in nanoseconds.
    package static var share: Int64 { 100_000 }
    /// More than so many shares are not remembered.
    private static var longestDebt: Int64 { 64 }
    /// Users that have nothing in here are kept for the next time, if they are no more than this.
    private static var mostUsers: Int { 64 }

    package init() {}

    package var isEmpty: Bool { count == 0 }

    package mutating func append(_ element: Element, of uid: UInt32) {
        users[uid, default: User()].waiting.append(element)
        count += 1
        if users[uid]?.waiting.count == 1 { ring.append(uid) }
    }

    package mutating func takeNext() -> Element? {
        guard count > 0 else { return nil }
        while true {
            if position >= ring.count { position = 0 }
            guard let user = users.index(forKey: ring[position]) else {
                preconditionFailure("a user in the ring has something in here")
            }
            if ring.count > 1, users.values[user].credit <= 0 {
                users.values[user].credit += Self.share
                position += 1
                continue
            }
            count -= 1
            let element = users.values[user].take()
            if users.values[user].waiting.isEmpty {
                ring.remove(at: position)
                users.values[user].credit = min(0, users.values[user].credit)
            }
            return element
        }
    }

    /// What was taken last took so long.
    package mutating func charge(_ uid: UInt32, nanoseconds: Int64) {
        guard let user = users.index(forKey: uid) else { return }
        let credit = users.values[user].credit - nanoseconds
        users.values[user].credit = max(credit, -Self.longestDebt * Self.share)
    }

    /// With nothing left to be shared, all debts are forgotten.
    package mutating func endTurn() {
        guard count == 0 else { return }
        if users.count > Self.mostUsers { return users = [:] }
        for user in users.indices { users.values[user].credit = 0 }
    }
}

/// Dealing with connections within the time that a turn has.
extension Supervisor {
    /// As long as this, and one message, may what fires wait for what connections want.
    private static let timePerTurn: Int64 = 500_000
    /// The part of it that one connection may have.
    private static let timePerConnection: Int64 = 100_000
    /// What is read from one connection in a turn at the most; its last packet may exceed it.
    private static let bytesPerConnection = 65_536

    /// Something has happened at a connection.
    func note(_ connection: Connection) {
        // What waits is not to be reported again in each turn, in the place of others.
        if connection.isWaiting { return connection.readable.disarm() }
        enqueue(connection)
    }

    /// It is to be dealt with once.
    func enqueue(_ connection: Connection) {
        guard !connection.isWaiting else { return }
        connection.isWaiting = true
        backlog.append(connection, of: connection.credentials.uid)
    }

    /// Deals with connections until none waits, or the time is over.
    func serveConnections() {
        guard !backlog.isEmpty else { return }
        let start = BootClock.now()
        var last = start
        while last - start < Self.timePerTurn, let connection = backlog.takeNext() {
            connection.isWaiting = false
            guard connections[connection.key] === connection else { continue }
            serve(connection, from: last)
            let time = BootClock.now()
            backlog.charge(connection.credentials.uid, nanoseconds: time - last)
            last = time
        }
        backlog.endTurn()
    }

    private func serve(_ connection: Connection, from start: Int64) {
        if connection.hasProcessEnded {
            connection.hasProcessEnded = false
            return processEnded(connection)
        }
        guard connection.listing == nil else { return goOnListing(connection) }
        receiveMessages(connection, atMost: Self.bytesPerConnection, until: start + Self.timePerConnection)
        guard connections[connection.key] === connection, connection.listing == nil, !connection.isHungUp,
            !connection.isPaused, !connection.readable.isArmed
        else { return }
        readAgain(connection)
    }
}
