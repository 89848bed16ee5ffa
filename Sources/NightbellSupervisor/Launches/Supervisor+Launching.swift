import EventLoop
import Glibc
import Keeper
import Launching
import LinuxSystem
import Logging
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// Starting clients, and readmitting them.
extension Supervisor {
    // MARK: How clients are started

    /// How this client can be started again; nil if its Hello may not say so.
    func recipe(_ hello: WireHello, _ identifier: ClientIdentifier, _ connection: Connection) -> LaunchRecipe?
    {
        let credentials = connection.credentials
        if let declaration = launches.declarations[identifier],
            declaration.registration.user == credentials.uid
        {
            return LaunchRecipe(declaration.launch, as: declaration.identity, isRecorded: false)
        }
        guard hello.hasLaunch, !hello.hasProgram, geteuid() == 0 || credentials.uid == geteuid() else {
            return nil
        }
        let problem = LaunchSpecification(hello.launch).problem ?? Confinement.reason(credentials.pid)
        if let problem {
            log(
                .connections, .info, of: credentials.uid,
                "\(identifier) cannot be launched by what it says: \(problem)")
            return nil
        }
        do {
            let groups = try connection.socket.peerGroups()
            guard groups.count <= ProcessIdentity.mostGroups else {
                let problem =
                    "it is in \(groups.count) groups, and \(ProcessIdentity.mostGroups) are the most"
                log(
                    .connections, .notice, of: credentials.uid,
                    "\(identifier) cannot be launched again: \(problem)")
                return nil
            }
            let identity = ProcessIdentity(
                user: credentials.uid, group: credentials.gid, otherGroups: groups)
            var launch = LaunchSpecification(hello.launch)
            launch.limits = try ResourceLimit.differing(of: credentials.pid)
            return LaunchRecipe(launch, as: identity, isRecorded: true)
        } catch {
            log(
                .connections, .notice, of: credentials.uid,
                "\(identifier) cannot be launched again: \(error)")
            return nil
        }
    }

    /// Records that a client is launchable from now on, or launched in another way.
    func setRecipe(_ client: ClientID, _ recipe: LaunchRecipe, state: [UInt8] = []) {
        var recipe = recipe
        if recipe.share(&launches.settings) { journal?.store(recipe.setting) }
        launches.insert(recipe, state: state, of: client)
    }

    /// Called at the end of a turn: the records of clients with changed recipes have been written by then.
    func forgetUnusedSettings() {
        let unused = launches.settings.takeUnused()
        journal?.forget(settings: unused)
    }

    // MARK: Declarations

    func declare(_ declaration: Declaration, _ key: RequestKey, isRequested: Bool) {
        if let problem = reserve(declaration) {
            log(.launches, .error, of: declaration.registration.user, problem)
        }
        var context = RequestContext(declaration: declaration)
        feed(.launch(declaration.registration, isRequested ? key : nil), &context)
    }

    /// The identifier of a declared client belongs to the user that it is declared for, even if another was
    /// the first to use it.
    ///
    /// - Returns: why that has to wait.
    func reserve(_ declaration: Declaration) -> String? {
        let (identifier, user) = (declaration.registration.identifier, declaration.registration.user)
        if supervision.reserve(identifier, for: user) { return nil }
        let other = supervision.ownership(of: identifier).map { "uid \($0.user)" } ?? "another user"
        return """
            \(identifier) is declared for uid \(user), and a client of \(other) goes by it: quit that \
            (nightbell quit \(identifier)), then launch this one (nightbell launch \(identifier))
            """
    }

    /// The core has registered a declared client.
    func declared(_ client: ClientID, _ context: borrowing RequestContext) {
        guard let declaration = context.declaration else { preconditionFailure("it is being declared") }
        setRecipe(
            client, LaunchRecipe(declaration.launch, as: declaration.identity, isRecorded: false))
        guard var journal, let bytes = recordBytes(of: client) else { return }
        journal.declare(client, Journal.ClientRecord(bytes: bytes), of: supervision)
    }

    // MARK: A launch

    func launch(_ client: ClientID) {
        guard let recipe = launches.recipe(of: client) else {
            preconditionFailure("only clients with a recipe are launched")
        }
        do {
            launches.killLeftovers(of: identifier(of: client))
            launches.killWrappers(of: client)
            let sockets = supervision.survivors(of: client).filter { parked.contains($0) }
            var (order, isRecorded) = try recipe.order()
            order.additions = [
                "NIGHTBELL_IDENTIFIER": identifier(of: client), "NIGHTBELL_SOCKET": configuration.socketPath,
            ]
            // If no worker is left one day, it can tell the next supervisor as its first process told us.
            if isRecorded {
                var launch = WireLaunchSpecification(order.specification)
                launch.identifier = identifier(of: client)
                order.additions["NIGHTBELL_LAUNCH"] = base64(try launch.serializedBytes())
            }
            order.sockets = sockets.compactMap { token in
                parked.descriptor(of: token).map { .init($0, name: parked.name(of: token)) }
            }
            FaultInjection.point("before a launch")
            let attempt = try begin(order, client, sockets)
            launches.setAttempt(attempt, of: client)
            launches.setProblem(nil, of: client)
            store(attempt, client)
            attempt.letRun()
            FaultInjection.point("after a launch")
        } catch {
            launches.setProblem("\(error)", of: client)
            log(
                .launches, .error, of: supervision.user(of: client),
                "cannot launch \(identifier(of: client)): \(error)")
            followUps.append(.ended(client, Self.isShortage(error) ? .notStarted : .failed))
        }
    }

    /// Whether the supervisor or the machine has run out of something that its next attempt may have.
    private static func isShortage(_ error: any Error) -> Bool {
        let code: Int32? =
            switch error {
            case let error as SystemError: error.code
            case let error as LaunchError: error.code
            case let error as LoopError: error.underlying.code
            default: nil
            }
        return [EMFILE, ENFILE, ENOMEM, EAGAIN, ENOBUFS, ENOSPC].contains(code)
    }

    /// Makes the process, with a connection already open.
    private func begin(
        _ order: LaunchOrder, _ client: ClientID, _ sockets: [SocketToken]
    ) throws -> LaunchAttempt {
        let pair = try SeqPacketSocket.pair()
        return try pair.separate { (ours, theirs) throws -> LaunchAttempt in
            var order = order
            order.connection = theirs.rawValue
            // The program expects what `connect` would have given it.
            try theirs.setBlocking()
            let launch = try Launch.prepare(order, configuration.launchSlots)
            let credentials = PeerCredentials(
                pid: launch.process.pid, uid: order.identity.user, gid: order.identity.group)
            let connection = try Connection(
                key: connections.nextKey, socket: ours, credentials: credentials, loop: loop)
            connection.launched = client
            connections.insert(connection)
            do {
                return try LaunchAttempt(
                    launch, client: client, connection: connection.key, sockets: sockets, loop: loop)
            } catch {
                closeConnection(connection)
                throw error
            }
        }
    }

    /// Records a process with the keeper before the process may run.
    private func store(_ attempt: LaunchAttempt, _ client: ClientID) {
        guard var journal, var bytes = recordBytes(of: client),
            let connection = connections[attempt.connection], let gate = attempt.reportDescriptor
        else { return }
        bytes.madeProcess = UInt32(attempt.pid)
        bytes.previous = PreviousProcess(wasLaunched: true, isAttached: false, sockets: attempt.sockets)
        FaultInjection.point("before a launch is said")
        journal.launch(
            client,
            Journal.ClientRecord(
                bytes: bytes, connection: connection.socket.rawValue,
                process: (attempt.process.rawValue, gate)))
        FaultInjection.point("after a launch is said")
    }

    /// Asks launches without a Hello to end: the connection that such a process was given is closed with us.
    ///
    /// - Parameter deadline: when they are killed.
    func endLaunches(until deadline: Instant) {
        launches.noteAskedToEnd(until: deadline)
        for attempt in launches.silentAttempts {
            do throws(SystemError) {
                try attempt.terminate(until: deadline)
            } catch {
                logger.debug("process \(attempt.pid) has ended: \(error)")
            }
        }
    }

    /// Kills launches that were asked to end, and have not.
    ///
    /// - Parameter instant: those with time until then.
    func killLaunches(dueBy instant: Instant) {
        for attempt in launches.askedToEnd {
            guard let due = attempt.killsAt, due <= instant else { continue }
            do throws(SystemError) {
                try attempt.kill()
            } catch {
                logger.debug("process \(attempt.pid) has ended: \(error)")
            }
        }
        launches.forgetEnded()
    }

    /// Notes the outcome of a launch, if it is known.
    ///
    /// - Parameter isOver: The process has said Hello or has ended.
    func noteOutcome(_ client: ClientID, isOver: Bool) {
        guard let attempt = launches.attempt(of: client), let outcome = attempt.takeOutcome(isOver: isOver)
        else { return }
        switch outcome {
        case .failed(let error):
            launches.setProblem("\(error)", of: client)
            log(
                .launches, .error, of: supervision.user(of: client),
                "cannot launch \(identifier(of: client)): \(error)")
        case .runs:
            journal?.forgetGate(client)
            Launch.takeProtection(from: attempt.process)
            logger.debug("\(identifier(of: client)) runs as pid \(attempt.pid)")
        }
    }

    /// Its process has ended before it said Hello.
    ///
    /// - Parameter newcomer: says Hello at this moment.
    func launchEnded(_ client: ClientID, before newcomer: Connection? = nil) {
        noteOutcome(client, isOver: true)
        let attempt = takeAttempt(client)
        let status = attempt.flatMap { Self.exitStatus(of: $0.process) }
        if let attempt, attempt.hasRun {
            let name = "\(identifier(of: client)), pid \(attempt.pid),"
            log(
                .launches, .notice, of: supervision.user(of: client),
                "\(name) has ended before it said Hello: \(Self.text(of: status))")
        }
        let ending = attempt?.hasRun == true ? Self.ending(status) : .failed
        if let attempt {
            let isRestOfIt = newcomer.map { getsid($0.credentials.pid) == attempt.pid } ?? false
            if attempt.killsAt != nil {
                if attempt.hasProcesses { launches.leaveToEnd(attempt, identifier(of: client)) }
            } else if ending == .failed, !isRestOfIt {
                attempt.killRest()
            }
            end(attempt)
        }
        feed(.ended(client, ending))
    }

    /// Removes the attempt: the launch is over.
    func takeAttempt(_ client: ClientID) -> LaunchAttempt? {
        defer { launches.setAttempt(nil, of: client) }
        return launches.attempt(of: client)
    }

    func end(_ attempt: LaunchAttempt) {
        attempt.end()
        if let connection = connections[attempt.connection], connection.client == nil {
            closeConnection(connection)
        }
    }

    // MARK: The new process

    /// Why a newcomer with this identifier is refused; if another process is being launched as this client,
    /// names its pid.
    func error(_ refusal: Refusal, to newcomer: String?) -> WireError {
        guard refusal == .identifierInUse, let name = newcomer,
            let client = ClientIdentifier(name).flatMap({ supervision.client(named: $0) }),
            let attempt = launches.attempt(of: client)
        else { return WireError(refusal) }
        guard attempt.killsAt == nil else { return .askedToEnd }
        return WireError(
            .identifierInUse,
            "it is being launched as pid \(attempt.pid): that, or a process that it has started, must say Hello"
        )
    }

    /// The client that this process was launched as; nil: it was not launched, or is another client.
    ///
    /// A descendant of the launched process in a session of its own, as one started by `script`, counts if it
    /// says the client's identifier by itself: it can also be another program, as in a terminal that the
    /// launched process has opened.
    func launchedClient(_ identifier: ClientIdentifier, _ connection: Connection) -> ClientID? {
        guard let client = supervision.client(named: identifier),
            let attempt = launches.attempt(of: client)
        else { return nil }
        if let launch = launch(of: connection) { return launch.client == client ? client : nil }
        guard supervision.user(of: client) == connection.credentials.uid else { return nil }
        let isDescendant = ProcFS.firstOfAncestry(of: connection.credentials.pid) {
            $0 == attempt.pid ? true : nil
        }
        return isDescendant == true ? client : nil
    }

    /// The launch in progress that the process of this connection came from: it was launched itself, or is in
    /// the session that the launched process leads, as a program started by a shell is.
    private func launch(of connection: Connection) -> (client: ClientID, isItself: Bool)? {
        let (pid, user) = (connection.credentials.pid, connection.credentials.uid)
        if let client = connection.launched, launches.attempt(of: client) != nil { return (client, true) }
        guard launches.hasAttempts else { return nil }
        if let client = launches.client(launchedAs: pid) {
            return supervision.user(of: client) == user ? (client, true) : nil
        }
        guard
            let client = launches.client(launchedAs: getsid(pid)), supervision.user(of: client) == user
        else { return nil }
        return (client, false)
    }

    /// The identifier that a process was assigned, whatever it says itself; nil: none. The launch counts
    /// first, then the user's choice (`nightbell run --identifier`).
    func assignedIdentifier(_ hello: WireHello, _ connection: Connection) -> String? {
        let launch = launch(of: connection)
        if let launch, launch.isItself { return identifier(of: launch.client) }
        if !hello.launch.identifier.isEmpty { return hello.launch.identifier }
        return launch.map { identifier(of: $0.client) }
    }

    /// Whether a client without a process is launchable, and stays so with a process that says nothing about
    /// launching.
    func hasRecordedLaunch(_ registration: Registration) -> Bool {
        guard let client = supervision.client(named: registration.identifier) else { return false }
        return supervision.user(of: client) == registration.user && launches.contains(client)
    }

    /// The process that has said Hello on this connection. One that we made is known by the launch.
    func process(of connection: Connection) throws(SystemError) -> ProcessHandle {
        if let client = connection.launched, let attempt = launches.attempt(of: client) {
            return try attempt.process.duplicate()
        }
        return ProcessHandle(pidfd: try connection.socket.peerProcess(), pid: connection.credentials.pid)
    }

    /// The client is back: it gets what its last process left.
    func rejoined(_ client: ClientID, _ key: RequestKey, _ context: inout RequestContext) {
        guard let connection = connections[key.connection], var newcomer = context.newcomer.take(),
            launches.contains(client)
        else { preconditionFailure("a registration is answered while it is being handled") }
        let takesBack = newcomer.takesSocketsBack
        noteOutcome(client, isOver: true)
        let attempt = takeAttempt(client)
        // The process that was launched speaks for the client, or has started it.
        let isLaunchedItself = connection.launched == client || attempt?.pid == connection.credentials.pid
        let isWrapped = newcomer.programStart != nil || attempt != nil && !isLaunchedItself
        attempt?.end()
        if let attempt, attempt.connection != connection.key, let unused = connections[attempt.connection] {
            closeConnection(unused)
        }
        // A process that connects by itself may have been started in another way.
        if let recipe = newcomer.recipe, attempt == nil {
            setRecipe(client, recipe, state: launches.state(of: client))
        }
        let sockets = attempt?.sockets ?? supervision.survivors(of: client).filter { parked.contains($0) }
        let hasInherited = attempt != nil && !isWrapped
        // A program that knows nothing of them has no use for the sockets of an earlier process.
        let isTaking = takesBack && newcomer.programStart == nil
        let given = hasInherited ? sockets[...] : isTaking ? sockets.prefix(Self.socketsGivenBack) : []
        let previous = PreviousProcess(
            wasLaunched: attempt != nil, isAttached: !hasInherited, sockets: Array(given))
        if isWrapped, let attempt { newcomer.wrapper = LaunchWrapper(attempt.process) }
        guard admit(client, newcomer, connection, key, previous) else { return }
        // It says that it is started in another way, which is not trusted: so it is no longer launchable.
        if ask({ $0.registration(of: client)?.isLaunchable }) == false { launches.remove(client) }
        // Sockets that it cannot be given have no owner left.
        for token in sockets.dropFirst(given.count) {
            log(
                .sockets, .notice, of: supervision.user(of: client),
                "a parked socket of \(identifier(of: client)) is closed: its new process does not take it")
            followUps.append(
                .message(.release(token), from: client, RequestKey(connection: key.connection, request: 0)))
        }
    }

    /// One descriptor of the packet is for the wake word.
    private static let socketsGivenBack = SeqPacketSocket.maximumDescriptors - 1

    /// A process that another worker may have welcomed sends something other than Hello: so it was welcomed.
    func rejoinSilently(_ connection: Connection) {
        guard connection.client == nil, let client = connection.launched,
            let introduction = launches.attempt(of: client)?.introduction
        else { return }
        var context = RequestContext()
        do {
            context.newcomer = Newcomer(
                process: try process(of: connection),
                identifier: introduction.registration.identifier.description,
                saidIdentifier: introduction.registration.identifier.description, launch: nil, recipe: nil,
                wantsWakeWord: introduction.wantsWakeWord, takesSocketsBack: true,
                isWelcome: true)
        } catch {
            return protocolViolation(
                connection, WireError(.processGone, "its process cannot be identified: \(error)"))
        }
        let key = RequestKey(connection: connection.key, request: 0)
        feed(.rejoined(client, introduction.registration, key), &context)
    }

    /// The client that has sent a message other than Hello.
    func speaker(_ connection: Connection) -> ServedClient? {
        rejoinSilently(connection)
        guard let record = connection.client else { return nil }
        confirmPreviousProcess(record, connection)
        return record
    }

    // MARK: State

    func storeState(_ client: ClientID, _ state: [UInt8]) {
        launches.setState(state, of: client)
        journal?.storeState(client, state)
    }

    func dropState(_ client: ClientID) {
        launches.setState([], of: client)
        journal?.dropState(client)
    }
}
