import EventLoop
import Glibc
import Keeper
import LinuxSystem
import Logging
import NightbellCore
import NightbellParking
import NightbellWire
import Suspension
import SwiftProtobuf

/// A supervisor's inputs besides its configuration.
struct SupervisorStartup: ~Copyable {
    /// nil: the keeper has the lock.
    var directory: RuntimeDirectory?
    /// nil: the worker makes one.
    var listener: SeqPacketSocket?
    var journal: Journal?
    var recovered: RecoveredRecords?
    /// Stopped processes were left by another supervisor.
    var isFirst = true
    /// Nothing may be touched until the keeper gives the word.
    var mustWait = false
}

/// The records of the previous workers, until they are recovered.
struct RecoveredRecords: ~Copyable {
    var store: RecordStore
    let records: Journal.Records
}

/// Another program may be about to replace this one.
struct UpgradeState {
    /// The keeper has asked this worker to stop acting after this turn.
    var quiesceOrder: UInt64?
    /// Connections and requests that have asked for an upgrade.
    var requests: [(connection: UInt64, request: UInt64)] = []
}

/// One worker takes over from another.
extension Supervisor {
    /// Reads what a keeper has passed on and checks that it can be decoded, without touching anything.
    static func startup(
        _ configuration: SupervisorConfiguration, _ startup: consuming WorkerStartup
    ) throws(SupervisorError) -> SupervisorStartup {
        let link = startup.link
        let isFirst = startup.isFirst
        let mustWait = startup.mustWait
        var store = startup.takeStore()
        guard store.record(.place) == KeeperResources.place(configuration) else {
            throw SupervisorError(
                .startup,
                "the supervisor's directory or socket is configured to be another one: stop it first")
        }
        let now = Instant(nanoseconds: RunningClock.now())
        do {
            guard let sharedState = store.removeValue(for: .sharedState)?.takeDescriptor() else {
                throw SystemError(code: EBADF, call: "shared state")
            }
            let records = try Journal.Records(store)
            let journal = Journal(
                link, try SharedStateTable(mapping: sharedState.rawValue), isFirst: isFirst,
                isOtherProgram: mustWait,
                startedAt: Instant(nanoseconds: BootClock.now()))
            if mustWait {
                // Another program wrote it: whether this one can decode it must be known before that one is
                // gone.
                var actions = ActionBuffer()
                _ = try Supervision(
                    settings: configuration.settings, restoring: journal.snapshot(records), at: now,
                    into: &actions
                )
            }
            // It stays with the keeper.
            _ = store.removeValue(for: .lock)
            guard let listener = store.removeValue(for: .listener)?.takeDescriptor() else {
                throw SystemError(code: EBADF, call: "listener")
            }
            return SupervisorStartup(
                directory: nil, listener: SeqPacketSocket(adopting: listener), journal: journal,
                recovered: RecoveredRecords(store: store, records: records), isFirst: isFirst,
                mustWait: mustWait)
        } catch let error as SystemError {
            throw SupervisorError(.startup, error, "cannot take over")
        } catch {
            throw SupervisorError(.startup, "cannot take over: \(error)")
        }
    }

    /// Tells the keeper that this worker serves, or could serve: then it waits until the previous one is
    /// gone. False: it is not needed.
    nonisolated func announce(to link: KeeperLink?) -> Bool {
        guard let link else { return true }
        link.send(.ready)
        return !mustWait || link.waitAndReceive() == .item(.act)
    }

    // MARK: Recovery

    /// Continues where the previous worker stopped: with its clients and sockets, under their old names.
    func takeOver() {
        guard var journal, let recovered = recovered.take() else { return }
        let records = recovered.records
        var store = recovered.takeStore()
        journal.begin()
        guard journal.restarts > 0 else { return }
        var snapshot = journal.snapshot(records)
        snapshot.machineSlept = machineSlept
        var result = RecoveryResult()
        launches.settings.inherit(records.settings.values)
        let forgotten = journal.finishForgetting(&snapshot)
        for (id, record) in records.clients where !forgotten.contains(id) {
            restoreClient(id, record, &store, &result)
        }
        // A client with a process that has ended is recovered too: the end is an event like any other.
        snapshot.clients = snapshot.clients.map { client in
            guard let record = connection(of: client.id)?.client else { return client }
            var client = client
            client.execution = execution(of: client, record)
            return client
        }
        let waiting = Set(snapshot.clients.filter(\.needsConditions).map(\.id))
        let unreachable = Set(snapshot.clients.filter(\.needsPaths).map(\.id))
        // In place: there may be many thousands.
        var count = 0
        for index in snapshot.sockets.indices {
            let socket = snapshot.sockets[index]
            guard !forgotten.contains(socket.owner) else {
                journal.forget(socket.token)
                if records.profiles[socket.token] != nil { journal.forgetOffload(socket.token) }
                if records.receiveBuffers[socket.token] != nil { journal.forgetReceiveBuffer(socket.token) }
                continue
            }
            let restored = restoreSocket(
                socket, records.sockets[index].name, store.takeDescriptor(.socket(socket.token)), waiting,
                records.profiles[socket.token], records.formerOptions[socket.token])
            if let buffer = records.receiveBuffers[socket.token] {
                recoverReceiveBuffer(buffer, of: socket.token)
            }
            guard let restored else { continue }
            snapshot.sockets[count] = unreachable.contains(socket.owner) ? withPath(restored) : restored
            count += 1
        }
        snapshot.sockets.removeSubrange(count...)
        do {
            supervision = try Supervision(
                settings: configuration.settings, restoring: snapshot, at: now, into: &buffer)
        } catch {
            preconditionFailure("what this very program has written can be read: \(error)")
        }
        makeDormantAgain(records, except: forgotten, &result)
        for client in snapshot.clients where !receiveBuffers.isEmpty {
            // The transitions that follow do the rest.
            let state = supervision.state(of: client.id)
            adjustReceiveBuffers(client.id, state, state)
        }
        persist()
        journal.finishReading()
        for client in snapshot.clients { welcomeBack(client) }
        memory.hasRecovered = true
        recoveredAt = now
        logger.notice(
            "took over \(snapshot.clients.count) clients with \(snapshot.sockets.count) sockets",
            metadata: ["restarts": "\(journal.restarts)"])
        flush()
        reportEnds(result)
    }

    /// The previous worker may have died before the keeper had heard that it had parked a client: its record
    /// still is that of a process which has ended. One that was quit then is gone by now.
    private func makeDormantAgain(
        _ records: Journal.Records, except forgotten: Set<ClientID>, _ result: inout RecoveryResult
    ) {
        for (client, record) in records.clients
        where record.presence != .absent && !forgotten.contains(client)
            && [.dormant, .notRunning].contains(ask { $0.state(of: client) })
        {
            if let attempt = takeAttempt(client) { end(attempt) }
            makeDormant(client)
            result.ended.removeAll { $0.0 == client }
        }
    }

    private func execution(of client: RecoverySnapshot.Client, _ record: ServedClient)
        -> RecoverySnapshot.Execution
    {
        if let connection = connection(of: client.id) { findObstacle(client.id, connection) }
        guard record.isStoppedHere else { return client.wasStopped ? .stopped : .running }
        do {
            switch try suspender.reattach(
                slot: client.id.slot, process: record.process, wasStopped: client.wasStopped)
            {
            case .running: return .running
            case .stopping: return .stopping
            case .stopped: return .stopped
            }
        } catch {
            log(
                .suspension, .warning, of: supervision.user(of: client.id),
                "cannot tell whether \(record.identifier) is suspended: \(error)")
            return .running
        }
    }

    /// nil: its owner is gone.
    private func restoreSocket(
        _ socket: RecoverySnapshot.Socket, _ name: String, _ descriptor: consuming OwnedDescriptor?,
        _ waiting: Set<ClientID>, _ profile: [UInt8]?, _ former: TCPKeepAlive?
    ) -> RecoverySnapshot.Socket? {
        guard let descriptor else {
            journal?.forget(socket.token)
            if profile != nil { journal?.forgetOffload(socket.token) }
            return nil
        }
        var socket = socket
        if let profile, !recoverProfile(profile, former, of: &socket) { socket.offload = nil }
        if let former, socket.offload?.wasActive != true {
            // The previous worker died before it set this back.
            former.apply(to: descriptor.rawValue)
            journal?.storeFormerOptions(nil, of: socket.token)
        }
        if waiting.contains(socket.owner) { socket.conditions = Conditions(Poll.now(descriptor.rawValue)) }
        parked.insert(
            descriptor, as: socket.token, of: socket.owner, name: name, isOffloaded: socket.offload != nil)
        return socket
    }

    /// Adds what its owner may have yet to be told.
    private func withPath(_ socket: RecoverySnapshot.Socket) -> RecoverySnapshot.Socket {
        var socket = socket
        guard let descriptor = parked.descriptor(of: socket.token) else { return socket }
        if SocketPath(of: descriptor) != .works { socket.conditions.insert(.pathLost) }
        return socket
    }

    private func welcomeBack(_ client: RecoverySnapshot.Client) {
        announceRestartToLaunched(client.id)
        guard let connection = connection(of: client.id), let record = connection.client else { return }
        addWakeWord(record, connection)
        switch ask({ $0.state(of: client.id) }) {
        case .suspended where suspensionMethod(of: client.id, record) == .none:
            // It cannot be stopped, so it can be told at once.
            announceRestart(connection)
        case .suspended:
            // Messages to a sleeper would pile up unread.
            connection.owesRestart = true
            guard ask({ $0.allowsEarlyThaw(of: client.id) }), let epoch = client.epoch else { return }
            let thaw = suspender.quickThaw(slot: client.id.slot)
            unsafe earlyWaker.set(client.id.slot, epoch: epoch, thaw: thaw)
        case .notRunning, .inactive, .active, .background, .suspending, .terminating, .dormant, .launching:
            // In its turn: all of them repeat their requests at once, while others are to be woken.
            connection.owesRestart = true
            backlog.append(.restart(connection), of: connection.credentials.uid)
        }
    }

    /// Has a client repeat requests that the previous worker may not have answered.
    func announceRestart(_ connection: Connection) {
        connection.owesRestart = false
        guard let journal, let record = connection.client else { return }
        var message = WireSupervisorRestarted()
        message.restart = journal.restarts
        if let word = record.wakeWord, !connection.hasOutgoing {
            message.wakeWord = UInt32(word.index)
            let whole = WireSupervisorMessage(.supervisorRestarted(message))
            do {
                // If its queue is full, it does without the wake word.
                if try trySending(whole, to: connection, descriptors: [word.descriptor]) { return }
            } catch {
                return hungUpLater(connection)
            }
            message.wakeWord = 0
        }
        send(WireSupervisorMessage(.supervisorRestarted(message)), to: connection)
    }

    // MARK: The keeper

    /// A message from the keeper.
    func receiveFromKeeper() {
        guard let journal else { return }
        switch journal.link.receive() {
        case .item(.stop):
            beginLameDuck()
        case .item(.reload):
            reloadUnasked()
        case .item(.quiesce(let number)):
            upgrade.quiesceOrder = number
        case .item(.cancelUpgrade(let reason)):
            noUpgrade(reason)
        case .end:
            logger.error("the keeper is gone: state is no longer preserved if this process ends")
            beginLameDuck()
        case .item, .nothing:
            break
        }
    }

    /// The longest time without service when another program is to take over, whether it does or not.
    static let longestSilence: Duration = .seconds(10)

    /// Another program may replace this one: records are written through, and from here on nothing is done
    /// until the keeper cancels the upgrade.
    func quiesce() {
        guard let number = upgrade.quiesceOrder.take(), let journal else { return }
        journal.link.flush()
        journal.link.send(.quiesced(number))
        while true {
            switch journal.link.waitAndReceive() {
            case .item(.cancelUpgrade(let reason)): return noUpgrade(reason)
            case .item(.stop), .end: return beginLameDuck()
            case .item, .nothing: break
            }
        }
    }

    private func noUpgrade(_ reason: String) {
        let error = WireError(.upgradeFailed, reason)
        for (key, request) in upgrade.requests {
            guard let connection = connections[key] else { continue }
            answer(connection, request, .error(error))
        }
        upgrade.requests.removeAll()
    }
}

extension RecoveredRecords {
    fileprivate consuming func takeStore() -> RecordStore { store }
}
