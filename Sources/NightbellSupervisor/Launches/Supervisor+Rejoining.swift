import Glibc
import LinuxSystem
import Logging
import NightbellCore
import NightbellWire

/// The processes that were launched, or have started others, and say Hello.
extension Supervisor {
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
        launches.setProblem(nil, of: client)
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
}
