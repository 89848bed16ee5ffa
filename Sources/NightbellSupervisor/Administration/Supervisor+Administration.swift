import EventLoop
import Glibc
import Keeper
import LinuxSystem
import Logging
import NightbellCore
import NightbellProfiles
import NightbellWire
import Suspension

/// Administration requests: status, and a few commands.
extension Supervisor {
    func administrate(
        _ body: WireClientMessage.OneOf_Body, _ connection: Connection, _ request: UInt64
    ) {
        switch body {
        case .status:
            list(clientsToInspect, connection, request, isStatus: true)
        case .list:
            let visible = supervision.clientIDs.filter {
                mayAct(.see, on: supervision.user(of: $0), connection)
            }
            list(visible, connection, request)
        case .show(let show):
            guard !show.ownerOnly else { return showOwner(of: show.identifier, connection, request) }
            guard let client = find(show.identifier, to: .see, connection, request) else { return }
            guard let info = info(of: client, inFull: true, for: connection) else { return }
            answer(connection, request, .clientInfo(info))
        case .watch(let watch):
            beginWatching(connection, watch.identifier, request)
        case .wakeClient(let message):
            command(.wake, message.identifier, to: .wake, connection, request)
        case .suspendClient(let message):
            command(.suspend, message.identifier, to: .wake, connection, request)
        case .quitClient(let message):
            guard !quitAbsent(message.identifier, connection, request) else { return }
            command(.quit, message.identifier, to: .wake, connection, request)
        case .launchClient(let message):
            launch(message.identifier, connection, request)
        case .forgetClient(let message):
            forget(message.identifier, connection, request)
        case .relieveMemory:
            relieveMemory(connection, request)
        case .simulate(let message):
            simulate(message, connection, request)
        case .pushesWaiting(let message):
            learnPushes(message, connection, request)
        case .showNotifications(let message):
            show(message, connection, request)
        case .upgrade:
            beginUpgrade(connection, request)
        case .reload:
            reload(connection, request)
        case .restartNoted, .hello, .handOver, .release, .enterBackground, .backgroundEntered,
            .enterForeground,
            .setKeepAliveTimeout, .clearKeepAliveTimeout_p, .beginBackgroundTask, .endBackgroundTask,
            .backgroundTimeRemaining, .mediaActivity, .readyToSuspend, .wakeDone, .saveState, .hibernate,
            .setMinimumFetchInterval, .fetchDone, .pushDone, .observe, .stopObserving, .awakeReason,
            .pagedOut,
            .scheduleNotification, .cancelNotifications, .listNotifications, .setBadge:
            preconditionFailure("these are not administration")
        }
    }

    /// Root and the supervisor's own user see and may change everything.
    func isAdministrator(_ connection: Connection) -> Bool {
        connection.credentials.uid == 0 || connection.credentials.uid == geteuid()
    }

    /// Whether a connection may do this to clients of a user (nil: there is no such client). Administrators
    /// and the user itself may do everything, the gateway's user as much as is configured.
    func mayAct(_ act: GatewayRights.Act, on user: UserID?, _ connection: Connection) -> Bool {
        isAdministrator(connection) || user == connection.credentials.uid
            || isGateway(connection) && configuration.gateway?.permits(act) == true
    }

    func isGateway(_ connection: Connection) -> Bool {
        configuration.gateway?.user == connection.credentials.uid && !isAdministrator(connection)
    }

    private func find(
        _ identifier: String, to act: GatewayRights.Act, _ connection: Connection, _ request: UInt64
    ) -> ClientID? {
        // Another user's client is reported as unknown: its identifier is not to be disclosed.
        guard let name = ClientIdentifier(identifier), let client = supervision.client(named: name),
            mayAct(.see, on: supervision.user(of: client), connection)
        else {
            answer(connection, request, .error(noSuchClient(identifier, connection)))
            return nil
        }
        guard mayAct(act, on: supervision.user(of: client), connection) else {
            answer(connection, request, .error(.notForGateway))
            return nil
        }
        inspectSleeper(client)
        return client
    }

    private func noSuchClient(_ identifier: String, _ connection: Connection) -> WireError {
        guard let declaration = ClientIdentifier(identifier).flatMap({ launches.declarations[$0] }),
            mayAct(.see, on: declaration.registration.user, connection)
        else { return WireError(.noSuchClient) }
        guard ClientIdentifier(identifier).flatMap({ supervision.client(named: $0) }) == nil else {
            return WireError(
                .noSuchClient, "it is declared, and a client of another user goes by its identifier")
        }
        return WireError(.noSuchClient, "it is declared, and has no process: nightbell launch starts it")
    }

    private func simulate(_ message: WireSimulate, _ connection: Connection, _ request: UInt64) {
        if message.hasOccurrence { return simulate(message, message.occurrence, connection, request) }
        let simulated: Command
        switch message.event {
        case .networkChange: simulated = .simulateNetworkChange
        case .sleep: simulated = .simulateSleep
        case .unlock: simulated = .simulateUnlock
        case .fetch: simulated = .simulateFetch
        case .fetchLaunch: simulated = .simulateFetchLaunch
        case .unspecified, .UNRECOGNIZED:
            return answer(connection, request, .error(WireError(.invalidArgument, "unknown event")))
        }
        command(simulated, message.identifier, to: .change, connection, request)
    }

    private func simulate(
        _ message: WireSimulate, _ happened: WireOccurrence, _ connection: Connection, _ request: UInt64
    ) {
        guard let occurrence = Occurrence(happened) else {
            let error = WireError(.invalidArgument, "an unknown occurrence, or a value out of its range")
            return answer(connection, request, .error(error))
        }
        guard let client = find(message.identifier, to: .change, connection, request) else { return }
        let key = RequestKey(connection: connection.key, request: request)
        feed(.simulate(occurrence, observation: happened.name, client, key))
    }

    private func command(
        _ command: Command, _ identifier: String, to act: GatewayRights.Act, _ connection: Connection,
        _ request: UInt64
    ) {
        guard let client = find(identifier, to: act, connection, request) else { return }
        feed(.command(command, client, RequestKey(connection: connection.key, request: request)))
    }

    /// A client that has no process, or that only a declaration knows.
    private func launch(_ identifier: String, _ connection: Connection, _ request: UInt64) {
        guard let name = ClientIdentifier(identifier), supervision.client(named: name) == nil,
            let declaration = launches.declarations[name]
        else { return command(.launch, identifier, to: .wake, connection, request) }
        let user = declaration.registration.user
        guard mayAct(.wake, on: user, connection) else {
            let isSeen = mayAct(.see, on: user, connection)
            return answer(connection, request, .error(isSeen ? .notForGateway : WireError(.noSuchClient)))
        }
        // It runs, and is about to reconnect.
        guard launches.returning.processes[name] == nil else {
            supervision.takeBackQuit(of: name)
            persist()
            return answer(connection, request, .done(WireDone()))
        }
        declare(declaration, RequestKey(connection: connection.key, request: request), isRequested: true)
    }

    private func forget(_ identifier: String, _ connection: Connection, _ request: UInt64) {
        guard let name = ClientIdentifier(identifier), let owner = supervision.ownership(of: name),
            isAdministrator(connection) || owner.user == connection.credentials.uid
        else { return answer(connection, request, .error(WireError(.noSuchClient))) }
        feed(.disown(name, RequestKey(connection: connection.key, request: request)))
    }

    private func beginUpgrade(_ connection: Connection, _ request: UInt64) {
        guard isAdministrator(connection) else {
            let error = WireError(.permissionDenied, "this is for the supervisor's own user, and for root")
            return answer(connection, request, .error(error))
        }
        guard let journal else {
            let error = WireError(.upgradeFailed, "the supervisor runs without a keeper")
            return answer(connection, request, .error(error))
        }
        upgrade.requests.append((connection.key, request))
        journal.link.send(.upgradeWanted)
    }

    private func beginWatching(_ connection: Connection, _ identifier: String, _ request: UInt64) {
        guard case .stranger = connection.role else {
            let error = WireError(.alreadyRegistered, "this connection said Hello, or watches, already")
            return protocolViolation(connection, error, request: request)
        }
        connection.role = .watcher(identifier: identifier)
        connections.beginWatching(connection)
        answer(connection, request, .done(WireDone()))
    }

    // MARK: Listing

    /// Recovery has inspected all clients: a status shows that for as long.
    private static let inspectionAge: Duration = .milliseconds(100)

    private var clientsToInspect: [ClientID] {
        if let recoveredAt, now < recoveredAt + Self.inspectionAge { return [] }
        return ask { $0.clientIDs }
    }

    /// Inspecting a sleeping client takes some 10 µs.
    private static let clientsPerTurn = 16
    /// In one packet, which has room for one more client.
    private static let mostListingBytes = 65_536

    private func list(
        _ clients: [ClientID], _ connection: Connection, _ request: UInt64, isStatus: Bool = false
    ) {
        connection.listing = Connection.Listing(request: request, isStatus: isStatus, clients: clients)
        connection.readable.disarm()
        continueListing(connection)
    }

    /// Inspects the next clients of a listing and sends them, if the reader has taken those before: a few, so
    /// that others do not wait long.
    func continueListing(_ connection: Connection) {
        guard let listing = connection.listing, listing.isStatus || !connection.hasOutgoing else {
            return
        }
        var part = WireClientInfos()
        // A packet that has to wait must fit into the connection's queue.
        let room = max(1, min(Self.mostListingBytes, configuration.outgoingBytesPerConnection / 4))
        var (next, bytes) = (listing.next, 0)
        let end = min(next + Self.clientsPerTurn, listing.clients.count)
        while next < end, bytes < room {
            let client = listing.clients[next]
            next += 1
            inspectSleeper(client)
            guard !listing.isStatus, let info = info(of: client, inFull: false, for: connection) else {
                continue
            }
            bytes += info.listedBytes
            part.clients.append(info)
        }
        listing.next = next
        if !part.clients.isEmpty { answer(connection, listing.request, .clientInfos(part)) }
        guard connections[connection.key] === connection else { return }
        if next == listing.clients.count { return endListing(listing, connection) }
        // A status is sent at its end: it waits for its turn, not for the reader.
        if listing.isStatus { return enqueue(connection) }
        if !connection.armWritable() { dropLater(connection) }
    }

    private func endListing(_ listing: Connection.Listing, _ connection: Connection) {
        connection.listing = nil
        let isStatus = listing.isStatus
        answer(
            connection, listing.request,
            isStatus ? .supervisorStatus(status(for: connection)) : .done(WireDone()))
        readAgain(connection)
    }

    func readAgain(_ connection: Connection) {
        do {
            try connection.readable.arm()
        } catch {
            log(.connections, .error, "cannot watch \(name(of: connection)): \(error)")
            dropLater(connection)
        }
    }

    // MARK: Status

    private func status(for connection: Connection) -> WireSupervisorStatus {
        var status = WireSupervisorStatus()
        status.version = configuration.version
        status.processID = UInt32(getpid())
        if let journal {
            status.keeperProcessID = UInt32(getppid())
            status.restarts = journal.restarts
            status.programNumber = journal.programNumber
        }
        status.launchBudgetMs = supervision.settings.launches.budget.wireMilliseconds
        status.uptimeMs = elapsedNow.since(startedAt).wireMilliseconds
        status.suspension = suspender.method.rawValue
        status.suspensionDetail = suspender.detail
        status.configurationFile = configuration.configurationFile
        let now = now
        let clients = ask { $0.clientIDs }
        for client in clients {
            status.clientsByState[ask { $0.state(of: client) }.name, default: 0] += 1
        }
        status.sockets = UInt64(ask { $0.socketCount })
        status.connections = UInt64(connections.count)
        status.counters = WireCounters(supervision.counters)
        if !isAdministrator(connection) { status.counters.hideObservations() }
        if connections.protocolErrors > 0 {
            status.counters["protocol_errors"] = connections.protocolErrors
        }
        status.memoryReclaimedBytes = supervision.bytesOfEnded + (memory.pageOut?.reclaimedBytes ?? 0)
        let offloads = supervision.offloadTotals
        for name in ProfileName.allCases where offloads[name.number] != OffloadCounters() {
            status.offloadByProfile[name.rawValue] = WireOffloadCounters(offloads[name.number])
        }
        for client in clients where ask({ $0.state(of: client) }) == .suspended {
            guard let view = ask({ $0.view(of: client, at: now) }) else { continue }
            status.counters.asleepNs += UInt64(max(0, elapsedNow.since(view.enteredStateAt).nanoseconds))
        }
        for (user, usage) in supervision.usage
        where mayAct(.see, on: user, connection) {
            var counters = WireUserCounters()
            counters.uid = user
            counters.clients = UInt64(usage.clients)
            counters.sockets = UInt64(usage.sockets)
            counters.wakes = usage.wakes
            status.users.append(counters)
        }
        status.descriptorsOpen = UInt64(ProcFS.openDescriptors(getpid()) ?? 0)
        status.descriptorsLimit = UInt64(acceptance.descriptorLimit)
        if let deadline = supervision.nextDeadline {
            status.nextDeadlineMs = deadline.since(now).wireMilliseconds
        } else {
            status.noDeadline = true
        }
        status.stopping = supervision.isStopping
        if isAdministrator(connection) { status.warnings = durable.problems }
        status.sources = sourceReports(for: connection)
        status.monitorProcessID = UInt32(monitor.process?.pid ?? 0)
        status.alarmProblem = alarmProblem
        let absent = launches.declarations.values.map(\.registration).filter {
            supervision.client(named: $0.identifier) == nil
                && launches.returning.processes[$0.identifier] == nil
                && mayAct(.see, on: $0.user, connection)
        }
        status.pushSocket = configuration.pushSocket ?? ""
        status.notRunning = Array(absent.map { "\($0.identifier)" }.sorted().prefix(100))
        status.notRunningUnnamed = UInt32(clamping: absent.count - status.notRunning.count)
        status.memoryBytes = UInt64(ProcFS.residentBytes(getpid()) ?? 0)
        return status
    }
}

extension WireClientInfo {
    /// About how long it is in a list, and rather more.
    fileprivate var listedBytes: Int {
        (backgroundTasks + warnings).reduce(2_048) { $0 + $1.utf8.count + 8 } + stateDetail.utf8.count
            + pagedOut.limit.utf8.count
    }
}
