import Glibc
import Launching
import LinuxSystem
import Logging
import NightbellCore
import NightbellWire
import Suspension

/// How clients end.
extension Supervisor {
    /// A launchable client without its connection has this long to end as well. The kernel closes a
    /// process's descriptors before it reports the end of the process.
    private static let patience: Duration = .seconds(1)
    /// In nanoseconds, for the messages that a client has sent before its end. The rest is discarded: other clients wait
    /// meanwhile.
    private static let timeForLastMessages: Int64 = 5_000_000

    /// Reads the messages that a client has sent before its end.
    private func receiveLastMessages(_ connection: Connection) {
        let end = BootClock.now() + Self.timeForLastMessages
        repeat {
            receiveMessages(connection, until: end)
        } while connections[connection.key] === connection && !connection.hasEnded && !connection.isHungUp
            && !connection.isPaused && connection.listing == nil && BootClock.now() < end
            && Poll.now(connection.socket.rawValue).contains(.readable)
    }

    /// The client's process has ended.
    func processEnded(_ connection: Connection) {
        connection.hasProcessEnded = false
        guard case .client(let record) = connection.role else { return }
        // Its earlier messages count, and all of them have arrived.
        if !connection.hasEnded { receiveLastMessages(connection) }
        guard connections[connection.key] === connection, case .client = connection.role else { return }
        let status = Self.exitStatus(of: record.process)
        record.ending = status ?? .unknown
        launches.reapWrappers(of: record.id, adding: record.wrapper)
        logger.debug("\(record.identifier), pid \(record.process.pid), has ended: \(Self.text(of: status))")
        feed(.ended(record.id, Self.ending(status)))
    }

    /// nil: its exit status is unknown, or it has not ended.
    static func exitStatus(of process: borrowing ProcessHandle) -> ExitStatus? {
        do throws(SystemError) {
            return try process.exitStatus()
        } catch {
            return nil
        }
    }

    static func text(of status: ExitStatus?) -> String {
        switch status {
        case .exited(let code): "exit status \(code)"
        case .signalled(let number): "signal \(number)"
        case .unknown: "how is unknown"
        case nil: "its exit status cannot be read"
        }
    }

    static func ending(of process: borrowing ProcessHandle) -> Ending { ending(exitStatus(of: process)) }

    /// Whether a process ended as it should. Those signals ask a process to end: their sender means it.
    static func ending(_ status: ExitStatus?) -> Ending {
        switch status {
        case .exited(0), .signalled(SIGHUP), .signalled(SIGINT), .signalled(SIGTERM): return .succeeded
        case .exited, .signalled, .unknown, nil: return .failed
        }
    }

    // MARK: Connections that end first

    /// A client has hung up. Whether it crashed or only deregistered is known when its process has ended, or
    /// has not ended for a while.
    func hungUp(_ connection: Connection) {
        guard case .client(let record) = connection.role else { return closeConnection(connection) }
        guard !record.process.hasExited else {
            connection.hasEnded = true
            return processEnded(connection)
        }
        guard launches.contains(record.id), !supervision.isStopping else {
            return feed(.gone(record.id))
        }
        waitForEnd(of: connection)
    }

    /// The same, while the core's actions are carried out.
    func hungUpLater(_ connection: Connection) {
        guard case .client(let record) = connection.role, launches.contains(record.id),
            !supervision.isStopping
        else { return dropLater(connection) }
        if !connection.isHungUp { waitForEnd(of: connection) }
    }

    private func waitForEnd(of connection: Connection) {
        connection.hangUp()
        connections.hungUp.append((connection.key, now + Self.patience))
    }

    /// Forgets clients that have hung up but live on as processes.
    func forgetHungUp() {
        // More of them are left to the next turn, which begins at once.
        for _ in 0..<16 {
            guard let first = connections.hungUp.first else { return }
            let connection = connections[first.key]
            guard connection == nil || first.until <= now else { return }
            connections.hungUp.removeFirst()
            guard let connection, case .client(let record) = connection.role else { continue }
            if record.process.hasExited {
                processEnded(connection)
            } else if ProcFS.isExiting(record.process.pid) {
                // On a busy machine that may take longer.
                connections.hungUp.append((connection.key, now + Self.patience))
            } else if record.programStart != nil {
                // The process that spoke for it has died, and the kernel spares a program that has changed
                // its user. Launched again beside it, there would be two.
                log(
                    .launches, .notice, of: supervision.user(of: record.id),
                    "\(record.identifier), pid \(record.process.pid), is killed: nothing speaks for it any more"
                )
                _ = try? record.process.signal(SIGKILL)
                connections.hungUp.append((connection.key, now + Self.patience))
            } else {
                feed(.gone(record.id))
            }
        }
    }

    // MARK: Clients that are back already

    /// A process says Hello. The client with this identifier, or an earlier client in the same process, may
    /// have ended without our having handled it: a service manager restarts a program as soon as it has
    /// ended, and the events of two descriptors arrive in any order.
    func noticeEnd(before hello: WireHello, _ newcomer: Connection) {
        let pid = clientPID(hello, newcomer)
        let client = ClientIdentifier(hello.identifier).flatMap { supervision.client(named: $0) }
        if let client, let last = connection(of: client) {
            noticeEnd(of: last, in: pid, before: newcomer)
        } else if let client, let attempt = launches.attempt(of: client),
            newcomer.launched != client, newcomer.credentials.pid != attempt.pid, attempt.process.hasExited
        {
            launchEnded(client, before: newcomer)
        }
        guard let other = connections.clients(in: pid).first.flatMap({ connection(of: $0) }) else { return }
        noticeEnd(of: other, in: pid, before: newcomer)
    }

    private func noticeEnd(of last: Connection, in pid: pid_t, before newcomer: Connection) {
        guard last !== newcomer, let record = last.client else { return }
        guard !record.process.hasExited else { return processEnded(last) }
        if !last.isHungUp, !Poll.now(last.socket.rawValue).isDisjoint(with: [.peerClosed, .hangUp]) {
            receiveLastMessages(last)
            if connections[last.key] === last, !last.isHungUp, record.process.pid == pid { hungUp(last) }
        }
        // It lives, and has only deregistered.
        guard last.isHungUp, record.process.pid == pid else { return }
        feed(.gone(record.id))
    }

    // MARK: Persistence

    /// Removes all that is recorded of a client.
    func forget(_ client: ClientID, _ identifier: ClientIdentifier) {
        noteDeparture(client, identifier)
        if var journal { journal.forget(client, identifier, of: supervision) }
        if let attempt = launches.attempt(of: client) { end(attempt) }
        terminateWrappers(of: client, identifier)
        launches.remove(client)
        // It may have added some while it ended.
        cancelTransfers(ofQuit: [identifier])
    }

    /// The client has no process, or not yet; it remains a client.
    func makeDormant(_ client: ClientID) {
        detach(client)
        if let user = supervision.user(of: client) { unsafe earlyWaker.remove(client.slot, user: user) }
        if var journal, let bytes = recordBytes(of: client) {
            journal.makeDormant(client, Journal.ClientRecord(bytes: bytes))
        }
        if let identifier = supervision.identifier(of: client) {
            terminateWrappers(of: client, identifier)
            cancelTransfers(ofQuit: [identifier])
        }
        if let connection = connection(of: client) { closeConnection(connection) }
    }

    /// A wrapper would start the program of a client again that was quit.
    private func terminateWrappers(of client: ClientID, _ identifier: ClientIdentifier) {
        guard supervision.ownership(of: identifier)?.isQuit == true else { return }
        launches.reapWrappers(of: client, adding: connection(of: client)?.client?.wrapper)
        launches.terminateWrappers(of: client)
    }
}
