import Glibc
import Keeper
import Launching
import LinuxSystem
import Logging
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// The result of recovering the previous worker's clients.
struct RecoveryResult {
    /// Clients with processes that ended while no worker ran.
    var ended: [(ClientID, Ending)] = []
}

/// Recovers one client after the other: with its connection, without a process, or while it is being
/// launched.
extension Supervisor {
    func restoreClient(
        _ client: ClientID, _ record: ClientRecordBytes, _ store: inout RecordStore,
        _ result: inout RecoveryResult
    ) {
        let descriptor = store.takeDescriptor(.client(client))
        let process = store.takeDescriptor(.process(client))
        // It may still wait for the worker that made it to let it run.
        switch store.takeDescriptor(.gate(client)) {
        case .some(let gate):
            Launch.letRun(gate.rawValue)
            gate.close()
            journal?.forgetGate(client)
        case .none: break
        }
        if let recipe = record.recipe {
            let state = store.record(.state(client)) ?? []
            launches.insert(recipe, state: state, of: client)
            launches.setProblem(record.launchProblem, of: client)
        }
        switch record.presence {
        case .absent:
            break
        case .launched, .welcomed:
            recoverLaunched(client, record, descriptor, process, &result)
        case .registered:
            recoverRegistered(client, record, descriptor, process, &result)
        }
    }

    private func recoverRegistered(
        _ client: ClientID, _ record: ClientRecordBytes, _ descriptor: consuming OwnedDescriptor?,
        _ made: consuming OwnedDescriptor?, _ result: inout RecoveryResult
    ) {
        var ending = Ending.failed
        do {
            guard let descriptor else { throw SystemError(code: EBADF, call: "connection") }
            let socket = SeqPacketSocket(adopting: descriptor)
            let process = try Self.process(of: socket, record, made)
            let credentials = try Self.credentials(of: socket, record)
            guard !process.hasExited else {
                ending = Self.ending(of: process)
                throw SystemError(code: ESRCH, call: "process")
            }
            let connection = try Connection(
                key: connections.nextKey, socket: socket, credentials: credentials, loop: loop)
            connection.hasSpoken = true
            if record.madeProcess != 0 { connection.launched = client }
            let launch =
                record.launch.isEmpty
                ? nil : try WireLaunchSpecification(serializedBytes: record.launch)
            let known = try ServedClient(
                id: client, identifier: record.registration.identifier.description, process: process,
                programStart: record.program?.startTime, launch: launch, wantsWakeWord: record.wantsWakeWord,
                connection: connection.key, loop: loop)
            known.previous = record.previous
            known.suspendsItself = record.suspendsItself
            known.saidIdentifier = record.saidIdentifier
            known.wrapper = LaunchWrapper(recorded: pid_t(record.wrapper), of: known.process.pid)
            known.connectedAt = record.connectedAt
            known.asleepBefore = record.asleepBefore
            connections.insert(connection)
            connection.role = .client(known)
            attach(connection, to: client, known)
        } catch {
            exitIfOutOfResources(error)
            logger.debug("\(record.registration.identifier) is gone: \(error)")
            result.ended.append((client, ending))
        }
    }

    private func recoverLaunched(
        _ client: ClientID, _ record: ClientRecordBytes, _ descriptor: consuming OwnedDescriptor?,
        _ made: consuming OwnedDescriptor?, _ result: inout RecoveryResult
    ) {
        do {
            guard let descriptor, let made else { throw SystemError(code: EBADF, call: "connection") }
            let process = ProcessHandle(pidfd: made, pid: pid_t(record.madeProcess))
            if !process.hasExited { Launch.takeProtection(from: process) }
            let socket = SeqPacketSocket(adopting: descriptor)
            let credentials = try Self.credentials(of: socket, record)
            let connection = try Connection(
                key: connections.nextKey, socket: socket, credentials: credentials, loop: loop)
            connection.hasSpoken = true
            connection.launched = client
            connections.insert(connection)
            let introduction: LaunchAttempt.Introduction? =
                record.presence == .welcomed
                ? .init(registration: record.registration, wantsWakeWord: record.wantsWakeWord) : nil
            let attempt = try LaunchAttempt(
                process, client: client, connection: connection.key, sockets: record.previous?.sockets ?? [],
                introduction, loop: loop)
            launches.setAttempt(attempt, of: client)
        } catch {
            exitIfOutOfResources(error)
            log(
                .launches, .error, of: record.registration.user,
                "cannot go on launching \(record.registration.identifier): \(error)")
            result.ended.append((client, .failed))
        }
    }

    /// A lack of descriptors or memory says nothing about a client. The keeper still has everything: another
    /// worker tries again, later and later.
    private func exitIfOutOfResources(_ error: any Error) {
        guard let error = error as? SystemError,
            [EMFILE, ENFILE, ENOMEM, ENOBUFS, ENOSPC].contains(error.code)
        else { return }
        logger.critical("cannot take over: \(error)")
        exit(EX_OSERR)
    }

    /// The process that we made may not be the one that the connection came from.
    private static func process(
        of socket: borrowing SeqPacketSocket, _ record: ClientRecordBytes,
        _ made: consuming OwnedDescriptor?
    ) throws(SystemError) -> ProcessHandle {
        if let program = record.program {
            return try ProcessHandle(opening: program.pid, startedAt: program.startTime)
        }
        if record.madeProcess != 0, let made {
            return ProcessHandle(pidfd: made, pid: pid_t(record.madeProcess))
        }
        return ProcessHandle(pidfd: try socket.peerProcess(), pid: try socket.peerCredentials().pid)
    }

    private static func credentials(
        of socket: borrowing SeqPacketSocket, _ record: ClientRecordBytes
    ) throws(SystemError) -> PeerCredentials {
        guard record.madeProcess != 0 else { return try socket.peerCredentials() }
        return PeerCredentials(
            pid: pid_t(record.madeProcess), uid: record.registration.user,
            gid: record.recipe?.content.identity?.group ?? getegid())
    }

    /// Asks a launched process to repeat its Hello if it sent it to a previous worker.
    func announceRestartToLaunched(_ client: ClientID) {
        guard let journal, let attempt = launches.attempt(of: client),
            let connection = connections[attempt.connection]
        else { return }
        var message = WireSupervisorRestarted()
        message.restart = journal.restarts
        send(WireSupervisorMessage(.supervisorRestarted(message)), to: connection)
    }

    /// Reports what happened while no worker ran.
    func reportEnds(_ result: RecoveryResult) {
        for (client, ending) in result.ended { feed(.ended(client, ending)) }
    }
}
