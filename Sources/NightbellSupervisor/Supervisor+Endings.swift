import Descriptors
import Durability
import Glibc
import Launching
import Logging
import NightbellCore
import NightbellWire
import Suspension

/// How clients end.
extension Supervisor {
    /// A client that can be launched, and whose connection has ended, has this long to end as well. The kernel closes
    /// what a process has open before it tells that the process has ended.
    private static let patience: Duration = .seconds(1)

    /// The client's process has ended.
    func processEnded(_ connection: Connection) {
        guard case .client(let record) = connection.role else { return }
        // What it said before that counts, and it has said it all.
        if !connection.hasEnded { receiveMessages(connection) }
        guard connections[connection.key] === connection, case .client = connection.role else { return }
        let status = Self.exitStatus(of: record.process)
        waitForWrappers(adding: record.wrapper)
        logger.debug("\(record.identifier), pid \(record.process.pid), has ended: \(Self.text(of: status))")
        feed(.ended(record.id, Self.ending(status)))
    }

    /// Programs that were launched and have started the client's process end soon after it. They are children of ours, and
    /// are waited for, so that nothing is left of them: those that have not ended by now, with the next client that does.
    private func waitForWrappers(adding wrapper: pid_t?) {
        if let wrapper { wrappers.append(wrapper) }
        wrappers.removeAll { waitpid($0, nil, WNOHANG) != 0 }
    }

    /// nil: nobody knows how it has ended, or it has not.
    static func exitStatus(of process: borrowing ProcessHandle) -> ExitStatus? {
        do throws(SystemError) {
            return try process.exitStatus()
        } catch {
            return nil
        }
    }

    static func text(of status: ExitStatus?) -> String {
        switch status {
        case .exited(let code): "exit \(code)"
        case .signalled(let number): "signal \(number)"
        case .unknown: "nobody has seen how"
        case nil: "it cannot be found out how"
        }
    }

    static func ending(of process: borrowing ProcessHandle) -> Ending { ending(exitStatus(of: process)) }

    /// Whether a process ended as it should. Those signals ask a process to end: whoever sends them means it.
    static func ending(_ status: ExitStatus?) -> Ending {
        switch status {
        case .exited(0), .signalled(SIGHUP), .signalled(SIGINT), .signalled(SIGTERM): return .succeeded
        case .exited, .signalled, .unknown, nil: return .failed
        }
    }

    // MARK: Connections that end first

    /// A client has hung up. Whether it crashed or only wants to be none any more is known when its process has ended,
    /// or has not for a while.
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
        hungUpConnections.append((connection.key, now + Self.patience))
    }

    /// Those that go on living without us are clients no more.
    func forgetHungUp() {
        // More of them are for the next turn, which begins at once.
        for _ in 0..<16 {
            guard let first = hungUpConnections.first else { return }
            let connection = connections[first.key]
            guard connection == nil || first.until <= now else { return }
            hungUpConnections.removeFirst()
            guard let connection, case .client(let record) = connection.role else { continue }
            if record.process.hasExited {
                processEnded(connection)
            } else if ProcFS.isExiting(record.process.pid) {
                // On a machine with much to do that takes as long as it takes.
                hungUpConnections.append((connection.key, now + Self.patience))
            } else {
                feed(.gone(record.id))
            }
        }
    }

    // MARK: Those who are back already

    /// Somebody says Hello. Who has this identifier, or was a client in the same process, may have ended without our
    /// having come to it: a service manager starts a program again as soon as it has ended, and what has happened at
    /// two descriptors is heard of in any order.
    func noticeEnd(before hello: WireHello, _ newcomer: Connection) {
        let client = ClientIdentifier(hello.identifier).flatMap { supervision.client(named: $0) }
        if let client, let last = connection(of: client) {
            noticeEnd(of: last, before: newcomer)
        } else if let client, let attempt = launches.attempt(of: client),
            newcomer.launched != client, newcomer.credentials.pid != attempt.pid, attempt.process.hasExited
        {
            launchEnded(client)
        }
        let pid = newcomer.credentials.pid
        guard clientProcesses.contains(pid),
            let other = connections.all.first(where: { $0.client?.process.pid == pid })
        else { return }
        noticeEnd(of: other, before: newcomer)
    }

    private func noticeEnd(of last: Connection, before newcomer: Connection) {
        guard last !== newcomer, let record = last.client else { return }
        guard !record.process.hasExited else { return processEnded(last) }
        if !last.isHungUp, !Poll.now(last.socket.rawValue).isDisjoint(with: [.peerClosed, .hangUp]) {
            receiveMessages(last)
        }
        // It lives, and only wanted to be this client no more.
        guard last.isHungUp, record.process.pid == newcomer.credentials.pid else { return }
        feed(.gone(record.id))
    }

    // MARK: What stays

    /// The process is gone, or is not there yet; the client stays.
    func park(_ client: ClientID) {
        detach(client)
        if let user = supervision.user(of: client) { unsafe earlyWaker.remove(client.slot, user: user) }
        if let journal, var bytes = recordBytes(of: client) {
            bytes.presence = .absent
            journal.park(client, bytes, supervision)
        }
        if let connection = connection(of: client) { closeConnection(connection) }
    }

    /// Keeps what must outlive us: whom identifiers belong to, and who was quit.
    func rememberOwnership(_ identifiers: [ClientIdentifier]) {
        guard !identifiers.isEmpty else { return }
        journal?.forgetEndedOwnerships(&supervision)
        for identifier in identifiers { journal?.keepOwner(of: identifier, supervision) }
        let boot = boot
        identifierStore?.note(
            identifiers.map { identifier in
                let owner = supervision.ownership(of: identifier)
                let entry = owner.map {
                    IdentifierTable.Entry(user: $0.user, isQuit: $0.isQuit, quitBoot: boot)
                }
                return (identifier: identifier.description, entry: entry)
            })
    }
}
