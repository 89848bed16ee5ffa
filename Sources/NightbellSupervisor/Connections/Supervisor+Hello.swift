import Glibc
import LinuxSystem
import NightbellCore
import NightbellWire
import Suspension

/// Hello: which client a process is, and whether it can be that.
extension Supervisor {
    func handleHello(_ said: WireHello, _ connection: Connection, _ request: UInt64) {
        if let refusal = refusalAtSight(of: said, connection) {
            return protocolViolation(connection, refusal, request: request)
        }
        var hello = said
        if said.hasLaunch, isInherited(said.launch, connection) { hello.clearLaunch() }
        if let identifier = assignedIdentifier(hello, connection) { hello.identifier = identifier }
        noticeEnd(before: hello, connection)
        switch registration(hello, connection) {
        case .failure(let error):
            protocolViolation(connection, error.wire, request: request)
        case .success(var registration):
            let launched = launchedClient(registration.identifier, connection)
            // If we launched it, we know how.
            let recipe = launched == nil ? recipe(hello, registration.identifier, connection) : nil
            let isKnown = launched != nil || !hello.saysHowToLaunch && hasRecordedLaunch(registration)
            registration.isLaunchable = recipe != nil || isKnown
            var context = RequestContext()
            do {
                context.newcomer = Newcomer(
                    process: try process(of: connection, hello),
                    programStart: hello.hasProgram ? hello.program.startTime : nil,
                    suspendsItself: hello.program.suspendedBy == .systemd,
                    identifier: hello.identifier,
                    saidIdentifier: said.identifier,
                    launch: hello.hasLaunch && !registration.isLaunchable ? hello.launch : nil,
                    recipe: recipe,
                    wantsWakeWord: hello.wantsWakeWord, takesSocketsBack: hello.takesSocketsBack)
            } catch {
                let gone = WireError(.processGone, "the connecting process cannot be identified: \(error)")
                return protocolViolation(connection, gone, request: request)
            }
            let key = RequestKey(connection: connection.key, request: request)
            let wasQuit = wasQuitBeforeReturn(registration.identifier, connection)
            if let launched {
                feed(.rejoined(launched, registration, key), &context)
            } else {
                feed(.registration(registration, key), &context)
            }
            if wasQuit, let client = connection.client {
                feed(.command(.quit, client.id, RequestKey(connection: 0, request: 0)))
            }
        }
    }

    /// The reason to refuse a Hello of any client: found before anything that takes time is done for it.
    private func refusalAtSight(of hello: WireHello, _ connection: Connection) -> WireError? {
        guard case .stranger = connection.role else {
            return WireError(.alreadyRegistered, "this connection said Hello, or watches, already")
        }
        guard !isGateway(connection) else {
            return WireError(.permissionDenied, "the gateway's user has no clients")
        }
        guard hello.version == 1 else {
            return WireError(.unsupportedVersion, "this supervisor speaks version 1 of the protocol")
        }
        guard connection.credentials.pid > 0 else {
            return WireError(.processGone, "the process that connected is not visible from here")
        }
        guard !hello.hasLaunch || hello.launch.isWithin(WireLaunchSpecification.maximumBytes) else {
            return WireError(.invalidArgument, "the launch specification is too large")
        }
        return nil
    }

    private func registration(
        _ hello: WireHello, _ connection: Connection
    ) -> Result<Registration, InvalidMessage> {
        func refusal(_ code: WireErrorCode, _ message: String) -> Result<Registration, InvalidMessage> {
            .failure(InvalidMessage(wire: WireError(code, message)))
        }
        guard hasDescriptors(for: connection.credentials, 2, leaving: .administration) else {
            return refusal(.outOfDescriptors, "the supervisor has no descriptor left for this user")
        }
        guard let identifier = ClientIdentifier(hello.identifier) else {
            return refusal(.invalidIdentifier, "an identifier has \(ClientIdentifier.rule)")
        }
        guard let modes = Modes(hello.modes), let policy = WakeLimitPolicy(hello.wakeLimitPolicy) else {
            return refusal(.invalidArgument, "a mode or the wake limit policy is unknown")
        }
        guard !launches.isEnding(session: getsid(connection.credentials.pid)) else {
            return .failure(InvalidMessage(wire: .askedToEnd))
        }
        // Two clients in one process would suspend each other.
        guard suspender.method == .none || !connections.hasClient(in: clientPID(hello, connection))
        else {
            return refusal(.alreadyRegistered, "this process is a client already")
        }
        if hello.hasProgram, let problem = problem(of: hello.program, connection) {
            return refusal(.invalidArgument, problem)
        }
        var registration = Registration(
            identifier: identifier, user: connection.credentials.uid, modes: modes, wakeLimitPolicy: policy)
        registration.exitsOnSuspend = hello.exitsOnSuspend
        registration.wantsNetworkChanges = hello.wantsNetworkChanges
        registration.isUnmodified = hello.hasProgram
        if let declaration = launches.declarations[identifier] {
            let declared = declaration.registration
            // A client that had it before it was declared keeps it until it has ended.
            let known = supervision.client(named: identifier)
            let isKept = known.flatMap { supervision.user(of: $0) } == registration.user
            guard declared.user == registration.user || isKept else {
                return refusal(.identifierOfOtherUser, "it is declared for another user")
            }
            _ = reserve(declaration)
        }
        if let declared = launches.declarations[identifier]?.registration, declared.user == registration.user
        {
            registration.isDeclared = true
            registration.exitsOnSuspend = hello.exitsOnSuspend || declared.exitsOnSuspend
            // Whatever speaks for a program as it is does not know the modes of its declaration.
            if hello.hasProgram { registration.modes = declared.modes }
            registration.keepAliveTimeout = modes.contains(.voip) ? declared.keepAliveTimeout : nil
            registration.waitsForUnlock = declared.waitsForUnlock
        }
        return .success(registration)
    }
}
