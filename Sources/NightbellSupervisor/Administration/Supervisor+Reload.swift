import EventLoop
import Keeper
import Launching
import Logging
import NightbellCore
import NightbellWire

/// Reads the configuration and the manifests again, while clients sleep on.
extension Supervisor {
    func reload(_ connection: Connection, _ request: UInt64) {
        guard isAdministrator(connection) else {
            let error = WireError(.permissionDenied, "this is for the supervisor's own user, and for root")
            return answer(connection, request, .error(error))
        }
        guard let read = configuration.reload else {
            let error = WireError(.reloadFailed, "the supervisor was not configured by a file")
            return answer(connection, request, .error(error))
        }
        connection.isPaused = true
        connection.readable.disarm()
        configurationReader.read(for: [(connection.key, request)], read)
    }

    /// A signal asks for it.
    func reloadUnasked() {
        guard let read = configuration.reload else { return }
        configurationReader.read(for: [], read)
    }

    /// The files have been read.
    func continueReload() {
        guard let (result, requests, next) = configurationReader.take() else { return }
        var reloaded = result
        let body: WireSupervisorMessage.OneOf_Body
        if apply(&reloaded) {
            var report = WireReloaded()
            var room = Self.roomForReport
            report.problems = Self.beginning(of: reloaded.problems, &room)
            report.kept = Self.beginning(of: reloaded.kept, &room)
            report.changed = Self.beginning(of: reloaded.changed, &room)
            body = .reloaded(report)
        } else {
            body = .error(WireError(.reloadFailed, reloaded.problems.first ?? ""))
        }
        for (key, request) in requests {
            guard let connection = connections[key] else { continue }
            connection.isPaused = false
            answer(connection, request, body)
            if !connection.isHungUp, connection.listing == nil { readAgain(connection) }
        }
        if let next, let read = configuration.reload { configurationReader.read(for: next, read) }
    }

    /// The bytes of all lines of a report, which is one packet.
    private static let roomForReport = 122_880

    /// As many lines as there is room for. The log has all of them.
    private static func beginning(of lines: [String], _ room: inout Int) -> [String] {
        var left: [String] = []
        for (index, line) in lines.enumerated() {
            let bytes = line.utf8.count + 8
            guard bytes + 64 <= room else {
                left.append("\(lines.count - index) more, which are in the log")
                break
            }
            room -= bytes
            left.append(line)
        }
        return left
    }

    /// Applies what can be applied, logs it, and adds the consequences for clients to the report. False:
    /// nothing is to be done.
    private func apply(_ reloaded: inout SupervisorConfiguration.Reloaded) -> Bool {
        guard let new = reloaded.configuration else {
            logger.error("the configuration is not read again: \(reloaded.problems.joined(separator: "; "))")
            return false
        }
        let old = configuration
        apply(new)
        redeclare(instead: old.declarations, &reloaded)
        // Later workers are to start with the same configuration.
        journal?.link.send(.reloaded)
        logger.notice("the configuration was read again")
        for line in reloaded.changed { logger.notice("changed: \(line)") }
        for line in reloaded.kept { logger.warning("counts from the next start: \(line)") }
        for line in reloaded.problems { logger.error("\(line)") }
        return true
    }

    /// The other values are unchanged, or mean nothing any more.
    private func apply(_ new: SupervisorConfiguration) {
        let watchesAgain = new.memoryPressure != configuration.memoryPressure
        let administrator = configuration.settings.administrator
        configuration.settings = new.settings
        configuration.settings.administrator = administrator
        configuration.messagesPerTurn = new.messagesPerTurn
        configuration.helloTimeout = new.helloTimeout
        configuration.connectionsPerUser = new.connectionsPerUser
        configuration.outgoingBytesPerConnection = new.outgoingBytesPerConnection
        configuration.memoryPressure = new.memoryPressure
        configuration.declarations = new.declarations
        configuration.configurationFile = new.configurationFile
        configuration.gateway = new.gateway
        supervision.change(configuration.settings)
        guard watchesAgain else { return }
        memory.watcher = nil
        do {
            memory.watcher = try MemoryWatcher.begin(configuration, loop, logger)
        } catch {
            logger.error("clients are not ended when memory is short: \(error)")
        }
    }

    // MARK: Declarations

    private func redeclare(
        instead old: [Declaration], _ reloaded: inout SupervisorConfiguration.Reloaded
    ) {
        launches.declare(configuration.declarations)
        tellSubscriptions(
            of: Set((old + configuration.declarations).compactMap(\.subscriber)))
        let before = Dictionary(
            old.map { ($0.registration.identifier, $0) }, uniquingKeysWith: { first, _ in first })
        for declaration in configuration.declarations {
            let identifier = declaration.registration.identifier
            let isChanged = before[identifier] != declaration
            if isChanged, let problem = declaration.launch.problem {
                reloaded.problems.append("\(identifier) cannot be launched as it is declared: \(problem)")
            } else if let problem = reserve(declaration) {
                reloaded.problems.append(problem)
            } else if before[identifier] == nil {
                reloaded.changed.append("\(identifier) \(begin(declaration))")
            } else if isChanged {
                reloaded.changed.append("\(identifier) \(change(declaration))")
            }
        }
        persist()
        let now = Set(configuration.declarations.map(\.registration.identifier))
        for identifier in old.map(\.registration.identifier) where !now.contains(identifier) {
            let goesOn = supervision.client(named: identifier) != nil
            reloaded.changed.append(
                "\(identifier) is no longer declared" + (goesOn ? ", and runs on until it is quit" : ""))
        }
    }

    /// A client that was not declared before.
    private func begin(_ declaration: Declaration) -> String {
        let identifier = declaration.registration.identifier
        guard supervision.client(named: identifier) == nil else { return change(declaration) }
        return launchAtStart(declaration) ? "is declared, and launched" : "is declared"
    }

    /// Launches a client that does not exist, as a start of the supervisor would. False: that would not
    /// launch it.
    private func launchAtStart(_ declaration: Declaration) -> Bool {
        let registration = declaration.registration
        guard declaration.startsWithSupervisor, registration.modes.contains(.voip),
            // A process of it runs.
            launches.returning.processes[registration.identifier] == nil,
            launches.departed[registration.identifier] == nil,
            supervision.ownership(of: registration.identifier)?.isQuit != true
        else { return false }
        declare(declaration, RequestKey(connection: 0, request: 0), isRequested: false)
        return true
    }

    /// A client that was declared before, or has registered by its own Hello. One that was given up gets
    /// another chance.
    private func change(_ declaration: Declaration) -> String {
        let identifier = declaration.registration.identifier
        if supervision.client(named: identifier) == nil, launchAtStart(declaration) {
            return "has a changed declaration, and is launched"
        }
        guard let client = supervision.client(named: identifier), launches.contains(client) else {
            return "has a changed declaration, which counts from its next launch or Hello"
        }
        let recipe = LaunchRecipe(declaration.launch, as: declaration.identity, isRecorded: false)
        let (problem, attempt) = (launches.problem(of: client), launches.attempt(of: client))
        setRecipe(client, recipe, state: launches.state(of: client))
        launches.setProblem(problem, of: client)
        launches.setAttempt(attempt, of: client)
        if let journal, let bytes = recordNow(of: client) {
            journal.update(Journal.ClientRecord(bytes: bytes), of: client)
        }
        return "has a changed declaration, which counts from its next launch"
    }

    private func recordNow(of client: ClientID) -> ClientRecordBytes? {
        if let connection = connection(of: client), let record = connection.client {
            return recordBytes(of: client, record, connection)
        }
        var bytes = recordBytes(of: client)
        guard let attempt = launches.attempt(of: client) else {
            bytes?.presence = .absent
            return bytes
        }
        bytes?.presence = attempt.introduction == nil ? .launched : .welcomed
        bytes?.madeProcess = UInt32(attempt.pid)
        bytes?.previous = PreviousProcess(wasLaunched: true, isAttached: false, sockets: attempt.sockets)
        return bytes
    }
}
