import LinuxSystem
import Logging
import NightbellCore
import NightbellWire
import Suspension
import SwiftProtobuf

/// Registering connections as clients.
extension Supervisor {
    func registered(_ client: ClientID, _ key: RequestKey, _ context: inout RequestContext) {
        guard let connection = connections[key.connection], let newcomer = context.newcomer.take() else {
            preconditionFailure("a registration is answered while it is being handled")
        }
        if let recipe = newcomer.recipe {
            setRecipe(client, recipe)
        }
        admit(client, newcomer, connection, key, nil)
    }

    /// Makes a connection a client's, and welcomes it.
    ///
    /// - Returns: whether that was possible.
    @discardableResult
    func admit(
        _ client: ClientID, _ newcomer: consuming Newcomer, _ connection: Connection, _ key: RequestKey,
        _ previous: PreviousProcess?
    ) -> Bool {
        let isWelcome = newcomer.isWelcome
        let said = newcomer.saidIdentifier
        let wrapper = newcomer.wrapper
        let suspendsItself = newcomer.suspendsItself
        if let identifier = ClientIdentifier(newcomer.identifier) {
            launches.returning.processes[identifier] = nil
        }
        let record: ServedClient
        do {
            record = try ServedClient(
                id: client, identifier: newcomer.identifier, process: newcomer.process,
                programStart: newcomer.programStart, launch: newcomer.launch,
                wantsWakeWord: newcomer.wantsWakeWord,
                connection: connection.key, loop: loop)
        } catch {
            log(
                .connections, .error, of: connection.credentials.uid,
                "cannot watch the process of \(name(of: connection)): \(error)")
            followUps.append(.gone(client))
            disconnect(connection, with: WireError(.processGone, "\(error)"), request: key.request)
            return false
        }
        record.previous = previous
        record.suspendsItself = suspendsItself
        record.wrapper = wrapper
        record.connectedAt = elapsedNow
        record.asleepBefore = ask { $0.view(of: client, at: now)?.counters.asleepNanoseconds ?? 0 }
        connection.role = .client(record)
        attach(connection, to: client, record)
        if said != record.identifier {
            record.saidIdentifier = said
            log(
                .connections, .notice, of: connection.credentials.uid,
                "pid \(record.process.pid) says Hello as \(said), and is \(record.identifier): it was started as that"
            )
        }
        findObstacle(client, connection)
        attachProgram(client, record)
        store(client, record, connection)
        if let identifier = ClientIdentifier(record.identifier) {
            forgetDeparture(of: record.process.pid, identifier)
        }
        addWakeWord(record, connection)
        if isWelcome || welcome(client, record, connection, key.request) {
            confirmPreviousProcess(record, connection)
        }
        return true
    }

    func addWakeWord(_ record: ServedClient, _ connection: Connection) {
        do {
            record.wakeWord = try unsafe earlyWaker.add(
                record.id.slot, user: connection.credentials.uid, wantsWord: record.wantsWakeWord)
        } catch {
            // Without one it waits for messages, which is slower, but no reason to refuse it.
            log(
                .connections, .notice, of: connection.credentials.uid,
                "no wake word for \(record.identifier): \(error)")
        }
    }

    func attach(_ connection: Connection, to client: ClientID, _ record: ServedClient) {
        connections.attach(connection, to: client, in: record.process.pid)
        findMediaAgain(of: connection.credentials.uid)
    }

    // MARK: The keeper's record

    /// The record of a client that has no process.
    func recordBytes(of client: ClientID) -> ClientRecordBytes? {
        guard let registration = supervision.registration(of: client),
            let registeredAt = supervision.registeredAt(client),
            let owner = supervision.owner(of: registration.identifier)
        else { return nil }
        var bytes = ClientRecordBytes(
            registration: registration, registeredAt: registeredAt, ownership: owner.number)
        bytes.recipe = registration.isLaunchable ? launches.recipe(of: client) : nil
        bytes.launchProblem = launches.problem(of: client)
        return bytes
    }

    func recordBytes(
        of client: ClientID, _ record: ServedClient, _ connection: Connection
    ) -> ClientRecordBytes? {
        guard var bytes = recordBytes(of: client) else { return nil }
        bytes.wantsWakeWord = record.wantsWakeWord
        bytes.launch = record.launch?.bytes ?? []
        bytes.saidIdentifier = record.saidIdentifier
        bytes.connectedAt = record.connectedAt
        bytes.asleepBefore = record.asleepBefore
        bytes.previous = record.previous
        if connection.launched != nil { bytes.madeProcess = UInt32(record.process.pid) }
        bytes.wrapper = record.wrapper.map { UInt32($0.pid) } ?? 0
        bytes.program = record.programStart.map { (record.process.pid, $0) }
        bytes.suspendsItself = record.suspendsItself
        return bytes
    }

    /// Records a client with the keeper before it is welcomed.
    private func store(_ client: ClientID, _ record: ServedClient, _ connection: Connection) {
        guard var journal, let bytes = recordBytes(of: client, record, connection) else { return }
        if connection.launched == nil { journal.forgetProcess(client) }
        if let previous = record.previous {
            let given = Set(previous.sockets)
            for token in supervision.sockets(of: client) {
                guard given.contains(token) else {
                    // It is closed in a moment: with the record that says so, or the next worker would keep
                    // it.
                    forgetRecords(of: token)
                    continue
                }
                // The request that handed it over was not one of the new process.
                guard let socket = ask({ $0.snapshot(of: token) }) else { continue }
                journal.put(SocketRecordBytes(socket: socket, name: parked.name(of: token)), of: token)
            }
        }
        journal.admit(
            client, Journal.ClientRecord(bytes: bytes, connection: connection.socket.rawValue),
            canRepeat: record.previous?.wasLaunched == true && connection.launched != nil, of: supervision)
    }

    /// The client is welcome and has its predecessor's state, or will: the message lies in its queue, even if
    /// this worker dies.
    func confirmPreviousProcess(_ record: ServedClient, _ connection: Connection) {
        guard record.previous != nil else { return }
        record.previous = nil
        guard var journal, let bytes = recordBytes(of: record.id, record, connection) else { return }
        journal.confirmWelcome(record.id, Journal.ClientRecord(bytes: bytes))
    }

    // MARK: Welcome

    /// Returns whether the welcome was sent.
    @discardableResult
    func welcome(
        _ client: ClientID, _ record: ServedClient, _ connection: Connection, _ request: UInt64
    ) -> Bool {
        var welcome = WireWelcome()
        welcome.version = 1
        welcome.clientID = Self.text(of: client)
        welcome.minimumKeepAliveTimeoutMs = supervision.settings.keepAlive.minimumTimeout.wireMilliseconds
        welcome.suspension = suspensionName(of: client, record)
        if record.saidIdentifier != nil { welcome.identifier = record.identifier }
        welcome.wakeBudgetMs = supervision.settings.budgets.wake.wireMilliseconds
        if let socket = transferSocket(of: connection.credentials.uid) { welcome.transferSocket = socket }
        welcome.pushSocket = configuration.pushSocket ?? ""
        var descriptors: [CInt] = []
        if let word = record.wakeWord {
            welcome.wakeWord = UInt32(word.index)
            descriptors.append(word.descriptor)
        }
        if let previous = record.previous {
            welcome.previousProcess = previousProcess(previous, of: client)
            if previous.isAttached {
                descriptors += previous.sockets.compactMap { parked.descriptor(of: $0) }
            }
        }
        let message = WireSupervisorMessage(request: request, .welcome(welcome))
        guard !descriptors.isEmpty else { return send(message, to: connection) }
        do {
            // It is the first message on the connection, so there is room for it.
            if try trySending(message, to: connection, descriptors: descriptors) { return true }
            dropLater(connection)
        } catch {
            hungUpLater(connection)
        }
        return false
    }

    /// In a Welcome, which is one packet in which state, tokens and names come first.
    private static let roomForProfiles = 32_768
    /// The bytes of a socket without its name and profile, at most.
    private static let numbersOfSocket = 20
    /// Everything else in a Welcome.
    private static let roomForWelcome = 4_096

    private func previousProcess(_ previous: PreviousProcess, of client: ClientID) -> WirePreviousProcess {
        var previousProcess = WirePreviousProcess()
        let state = launches.state(of: client)
        previousProcess.state = state.asField
        previousProcess.launched = previous.wasLaunched
        previousProcess.descriptorsAttached = previous.wasLaunched && previous.isAttached
        let left =
            Self.maximumPacket - Self.roomForWelcome - state.count
            - previous.sockets.reduce(0) { $0 + Self.numbersOfSocket + parked.name(of: $1).utf8.count }
        var room = max(0, min(Self.roomForProfiles, left))
        previousProcess.sockets = previous.sockets.map { token in
            WirePreviousProcess.Socket.with {
                $0.token = token.rawValue
                $0.name = parked.name(of: token)
                if let tag = supervision.tag(of: token) { $0.tag = tag.wire }
                if let profile = profileOfPreviousProcess(token, room: &room) { $0.profile = profile }
            }
        }
        return previousProcess
    }
}
