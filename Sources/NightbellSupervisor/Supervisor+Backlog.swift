import EventLoop
import LinuxSystem
package import NightbellCore

/// Work that waits for its user's turn.
enum PendingWork {
    /// It is readable, or its process has ended.
    case connection(Connection)
    /// Its client has not been told yet that another worker has taken over.
    case restart(Connection)
    /// A socket beyond the quota of a turn.
    case fired(SocketToken, Ready)
    case arming(SocketToken, pastEnd: Bool)
    /// A socket with a profile.
    case inspection(SocketToken)
    /// The sockets of a client, after a change of the network.
    case paths(ClientID)
    /// Processes with media in a user's session, to be found among the clients.
    case media(UserID)
}

/// The sockets of one user that are armed and that fire at once in a turn; the rest waits for the user's
/// turn.
package struct SocketQuota {
    package static let perUser = 128

    private var total = 0
    private var counts: [UserID: Int] = [:]
    /// Recovery, before the first turn, arms all sockets.
    private var isLimited = false

    package init() {}

    package mutating func beginTurn() {
        isLimited = true
        total = 0
        if !counts.isEmpty { counts.removeAll(keepingCapacity: true) }
    }

    /// - Returns: whether there is room for one more.
    package mutating func take(_ user: @autoclosure () -> UserID?) -> Bool {
        guard isLimited else { return true }
        total += 1
        // Few sockets in all: there is no need to know their users.
        guard total > Self.perUser, let user = user() else { return true }
        counts[user, default: 0] += 1
        return counts[user, default: 0] <= Self.perUser
    }
}

/// Serves connections and sockets within the time budget of a turn.
extension Supervisor {
    /// Fired sockets wait at most this long, plus one message, for pending work.
    private static let timePerTurn: Int64 = 500_000
    /// The least time for pending work in a turn, however many sockets fire meanwhile.
    private static let leastTimePerTurn: Int64 = 100_000
    /// The share of it that one connection may have.
    private static let timePerConnection: Int64 = 100_000
    /// The most that is read from one connection in a turn; its last packet may exceed it.
    private static let bytesPerConnection = 65_536

    /// A connection is readable.
    func connectionReadable(_ connection: Connection) {
        // A waiting connection is not to be reported again in each turn, in the place of others.
        if connection.isWaiting { return connection.readable.disarm() }
        enqueue(connection)
    }

    /// Queues the connection once.
    func enqueue(_ connection: Connection) {
        guard !connection.isWaiting else { return }
        connection.isWaiting = true
        backlog.append(.connection(connection), of: connection.credentials.uid)
    }

    /// Queues a socket with a profile once.
    func enqueueInspection(_ token: SocketToken, _ ready: Ready) {
        guard offload.contains(token), let user = user(of: token) else {
            _ = offloadedSocketFired(token, ready)
            return flush()
        }
        if let earlier = offload[token].waiting { return offload[token].waiting = earlier.union(ready) }
        offload[token].waiting = ready
        backlog.append(.inspection(token), of: user)
    }

    /// Feeds a fired socket to the core, at once or in its user's turn.
    func socketReady(_ token: SocketToken, _ ready: Ready) {
        // The core must be told at once of each client that was thawed. A socket armed past its end fires
        // again and again.
        guard !ready.wasHandledEarly, !parked.isArmedPastEnd(token), let user = overQuota(token) else {
            return socketFired(token, ready)
        }
        backlog.append(.fired(token, ready), of: user)
    }

    /// Arms a socket, at once or in its user's turn.
    func armInTurn(_ token: SocketToken, pastEnd: Bool) {
        guard let user = overQuota(token) else { return arm(token, pastEnd: pastEnd) }
        backlog.append(.arming(token, pastEnd: pastEnd), of: user)
    }

    /// - Returns: the socket's user, if that has used up its quota.
    private func overQuota(_ token: SocketToken) -> UserID? {
        guard !socketQuota.take(user(of: token)) else { return nil }
        return user(of: token)
    }

    private func user(of token: SocketToken) -> UserID? {
        ask { supervision in
            guard let owner = supervision.owner(of: token) else { return nil }
            return supervision.user(of: owner)
        }
    }

    /// Serves pending work until there is none, the time is over, or sockets have fired.
    func serveBacklog() {
        guard !backlog.isEmpty else { return }
        let start = BootClock.now()
        var last = start
        while last - start < Self.timePerTurn, let (work, uid) = backlog.takeNext() {
            serve(work, from: last)
            let time = BootClock.now()
            backlog.charge(uid, nanoseconds: time - last)
            last = time
            if last - start >= Self.leastTimePerTurn, loop.urgent.isReady { break }
        }
        backlog.endTurn()
    }

    private func serve(_ work: PendingWork, from start: Int64) {
        switch work {
        case .connection(let connection):
            connection.isWaiting = false
            if connections[connection.key] === connection { serve(connection, from: start) }
        case .restart(let connection):
            guard connections[connection.key] === connection, connection.owesRestart else { return }
            announceRestart(connection)
        case .fired(let token, let ready):
            guard parked.contains(token) else { return }
            socketFired(token, ready)
            flush()
        case .arming(let token, let pastEnd):
            if parked.contains(token) { arm(token, pastEnd: pastEnd) }
        case .inspection(let token):
            guard parked.contains(token) else { return }
            let ready = offload.contains(token) ? offload[token].waiting.take() : nil
            _ = offloadedSocketFired(token, ready)
            flush()
        case .paths(let client):
            continueInspectingPaths(client)
        case .media(let user):
            continueFindingMedia(of: user)
        }
    }

    private func serve(_ connection: Connection, from start: Int64) {
        if connection.hasProcessEnded { return serveLast(connection, until: start + Self.timePerConnection) }
        guard connection.listing == nil else { return continueListing(connection) }
        receiveMessages(connection, atMost: Self.bytesPerConnection, until: start + Self.timePerConnection)
        guard connections[connection.key] === connection, connection.listing == nil, !connection.isHungUp,
            !connection.isPaused, !connection.readable.isArmed
        else { return }
        readAgain(connection)
    }

    /// Its process has ended: reads its last messages, and handles the end after the last one.
    private func serveLast(_ connection: Connection, until deadline: Int64) {
        if !connection.hasEnded { receiveMessages(connection, until: deadline) }
        guard connections[connection.key] === connection, connection.hasProcessEnded else { return }
        // A child of the process may have the connection as well, and go on to send.
        guard connection.readsAfterEnd < Self.mostReadsAfterEnd, !connection.hasEnded, !connection.isHungUp,
            !connection.isPaused, connection.listing == nil,
            Poll.now(connection.socket.rawValue).contains(.readable)
        else { return processEnded(connection) }
        connection.readsAfterEnd += 1
        enqueue(connection)
    }

    /// At least one packet is read each time, and no more than 278 fit into a Unix socket of the usual size.
    private static let mostReadsAfterEnd: UInt8 = 250
}
