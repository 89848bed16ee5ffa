import EventLoop
import Glibc
import Keeper
import Launching
import LinuxSystem
import Logging
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// Accepting connections, writing to them, and closing them.
extension Supervisor {
    /// Connections accepted in a turn: some 20 µs each.
    private static let acceptsPerTurn = 16
    /// The time after which no more are accepted in a turn, in nanoseconds: to refuse one may take milliseconds.
    private static let acceptingTime: Int64 = 1_000_000
    /// The limit of descriptors of one user that wait to be closed; those of one more packet may come to it.
    /// They are as good as used by it: a share of all.
    var mostToBeClosed: Int { min(256, acceptance.descriptorLimit / 8) }

    /// Accepts connections; few enough in a turn that a rush does not keep others waiting.
    func acceptConnections() {
        let deadline = BootClock.now() + Self.acceptingTime
        for number in 0..<Self.acceptsPerTurn {
            if number > 0, BootClock.now() >= deadline { return }
            do throws(SystemError) {
                switch try acceptance.accept() {
                case .none:
                    return
                case .connection(let socket):
                    admit(socket)
                case .noRoom(let socket):
                    log(.descriptors, .error, "no descriptor left for another connection")
                    refuse(socket, Self.outOfDescriptors, of: ForeignDescriptor.anyUser)
                    acceptance.refill()
                case .exhausted:
                    log(.descriptors, .error, "no descriptor left: not listening until one is free")
                    return acceptance.pause()
                }
            } catch {
                // The other connections in the queue are not at fault; if the error persists, the next turn
                // logs it again.
                return log(.connections, .error, "cannot accept a connection: \(error)")
            }
        }
    }

    private func admit(_ socket: consuming SeqPacketSocket) {
        do {
            let credentials = try socket.peerCredentials()
            guard connections.count(ofUser: credentials.uid) < configuration.connectionsPerUser else {
                log(
                    .connections, .notice, of: credentials.uid,
                    "a connection of uid \(credentials.uid) is refused: it has \(configuration.connectionsPerUser)"
                )
                return refuse(socket, Self.tooManyConnections, of: credentials.uid)
            }
            guard hasDescriptors(for: credentials, 1, leaving: .replacement) else {
                return refuse(socket, Self.outOfDescriptors, of: credentials.uid)
            }
            let connection = try Connection(
                key: connections.nextKey, socket: socket, credentials: credentials, loop: loop)
            connections.insert(connection)
            connections.silent.append(connection.key, until: now + configuration.helloTimeout)
        } catch {
            log(.connections, .error, "cannot serve a connection: \(error)")
        }
    }

    /// The number of descriptors that must remain after some were taken.
    enum Reserve: Int {
        case nothing = 0
        /// A worker that replaces this one needs a few more than this one has.
        case replacement = 4
        /// Leaves room for an administrator as well.
        case administration = 8
    }

    /// Whether this many more descriptors may be taken for a user. An eighth of all (at most 1,024) is kept
    /// for what the supervisor itself needs to suspend and to inspect, and for its own user and root.
    func hasDescriptors(for credentials: PeerCredentials, _ count: Int, leaving reserve: Reserve) -> Bool {
        // A client has its process and a way to stop it beside its connection; a few are our own.
        let pages = unsafe earlyWaker.pageCount
        // Each packet asks this: a copy of the core would cost as much as decoding the packet.
        let sockets = ask { $0.socketCount }
        let clients = connections.count + 2 * connections.clientProcessCount + sockets
        let own = 16 + (configuration.launchSlots?.descriptorCount ?? 0)
        let inUse = clients + pages + ForeignDescriptor.pendingCount + own
        let isOwn = credentials.uid == 0 || credentials.uid == geteuid()
        let kept = isOwn ? reserve : .administration
        let forOthers = isOwn ? 0 : min(1_024, acceptance.descriptorLimit / 8)
        return inUse + count + kept.rawValue + forOthers <= acceptance.descriptorLimit
    }

    private static let tooManyConnections = encode(
        WireSupervisorMessage(
            .error(WireError(.tooManyConnections, "this user has as many connections as it may"))))
    private static let outOfDescriptors = encode(
        WireSupervisorMessage(
            .error(WireError(.outOfDescriptors, "the supervisor has no descriptor left for this user"))))

    /// Consumes the socket, so that its descriptor is free again afterwards.
    private func refuse(_ socket: consuming SeqPacketSocket, _ message: [UInt8], of user: uid_t) {
        do {
            _ = try socket.send(message)
        } catch {
            logger.debug("a refusal could not be sent: \(error)")
        }
        // Also of a peer that has gone: it may have sent descriptors before.
        socket.discardInput(of: user, most: mostToBeClosed)
    }

    // MARK: Writing

    /// Sends a message. A connection that cannot take it is dropped at the end of the turn.
    ///
    /// - Returns: whether the kernel has taken it; otherwise it is queued, or lost.
    @discardableResult
    func send(_ message: WireSupervisorMessage, to connection: Connection) -> Bool {
        send(Self.encode(message), to: connection)
    }

    static func encode(_ message: WireSupervisorMessage) -> [UInt8] {
        do {
            return try message.serializedBytes()
        } catch {
            preconditionFailure("our own messages can be encoded: \(error)")
        }
    }

    /// Sends a message with descriptors, which stay ours. Returns false if the peer's queue is full.
    func trySending(
        _ message: WireSupervisorMessage, to connection: Connection, descriptors: [CInt]
    ) throws(SystemError) -> Bool {
        journal?.link.flush()
        return try connection.socket.send(Self.encode(message), descriptors: descriptors)
    }

    /// Sends an answer once the connection's other messages of this turn are handled.
    func sendLater(_ bytes: [UInt8], to connection: Connection) {
        guard connection.isServed else { return _ = send(bytes, to: connection) }
        connection.answers.append(bytes)
    }

    func sendAnswers(_ connection: Connection) {
        guard !connection.answers.isEmpty else { return }
        var answers: [[UInt8]] = []
        swap(&answers, &connection.answers)
        for answer in answers { send(answer, to: connection) }
    }

    @discardableResult
    func send(_ bytes: [UInt8], to connection: Connection) -> Bool {
        sendAnswers(connection)
        // The keeper must have the records before the client is told.
        if let journal, journal.link.hasPending { journal.link.flush() }
        FaultInjection.point("before a client is told")
        switch connection.send(bytes, limit: configuration.outgoingBytesPerConnection) {
        case .sent:
            FaultInjection.point("after a client is told")
            return true
        case .queued:
            return false
        case .full:
            log(
                .slowReaders, .warning, of: connection.credentials.uid,
                "\(name(of: connection)) does not read what it is sent")
            dropLater(connection)
        case .failed:
            hungUpLater(connection)
        }
        return false
    }

    /// The peer has read something.
    func continueSending(_ connection: Connection) {
        guard connection.flush() else { return hungUp(connection) }
        if !connection.hasOutgoing, connection.listing != nil { enqueue(connection) }
    }

    // MARK: The end of a connection

    /// Answers with an error and closes the connection, for violations of the protocol.
    func disconnect(_ connection: Connection, with error: WireError, request: UInt64 = 0) {
        log(
            .violations, .info, of: connection.credentials.uid,
            "\(name(of: connection)) is disconnected: \(error.message)")
        send(WireSupervisorMessage(request: request, .error(error)), to: connection)
        drop(connection, error.message)
    }

    /// While the core's actions are carried out, no client may be removed.
    func dropLater(_ connection: Connection) {
        switch connection.role {
        case .client where connection.isHungUp: break
        case .client(let record): followUps.append(.gone(record.id))
        case .stranger, .watcher: closeConnection(connection)
        }
    }

    /// The connection, or its process, has ended: so has the client.
    func drop(_ connection: Connection, _ reason: String) {
        switch connection.role {
        case .client(let record):
            logger.debug("\(record.identifier) is gone: \(reason)")
            feed(.gone(record.id))
        case .stranger, .watcher:
            closeConnection(connection)
        }
    }

    func closeConnection(_ connection: Connection) {
        guard connections[connection.key] === connection else { return }
        switch connection.role {
        case .client(let record):
            connections.detach(record.id, in: record.process.pid)
            // The keeper also has it open: do not let the peer wait for the keeper's close.
            if journal != nil { _ = shutdown(connection.socket.rawValue, CInt(SHUT_RDWR)) }
            record.exit.disarm()
            noteAbandonedUnit(of: record, connection)
        case .watcher:
            connections.endWatching(connection)
        case .stranger:
            break
        }
        connection.readable.disarm()
        connection.forgetOutgoing()
        // It may have been told why. The keeper's close finds an empty queue.
        connection.socket.discardInput(of: connection.credentials.uid, most: mostToBeClosed)
        if pushService == connection.key {
            pushService = nil
            followUps.append(.fact(.pushServiceChanged))
        }
        connections.remove(connection)
        memory.departures += 1
        connection.role = .stranger
        resumeAccepting()
    }

    /// A descriptor has become free.
    private func resumeAccepting() {
        guard !supervision.isStopping else { return }
        do throws(LoopError) {
            try acceptance.resume()
        } catch {
            log(.connections, .error, "cannot listen again: \(error)")
        }
    }

    func name(of connection: Connection) -> String {
        connection.client?.identifier
            ?? "the connection of pid \(connection.credentials.pid), uid \(connection.credentials.uid)"
    }
}
