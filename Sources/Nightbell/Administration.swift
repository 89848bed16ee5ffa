import LinuxSystem
import NightbellWire
import SwiftProtobuf

/// Administers a supervisor: queries its state, and wakes, suspends or quits clients.
///
/// Every call blocks until the supervisor has answered. Root and the supervisor's own user can see and
/// control every client, others only their own. One `Administration` is one connection; it belongs to one
/// thread at a time.
public struct Administration: ~Copyable {
    /// The path of the supervisor's socket.
    public let socketPath: String
    private var connection: AdministrationConnection
    private let requestTimeout: Duration

    /// Connects to a supervisor.
    ///
    /// - Parameters:
    ///   - socketPath: where it listens; nil looks in the usual places, see
    ///     ``Client/Configuration/defaultSocketPath()``.
    ///   - requestTimeout: how long each call waits for the answer.
    /// - Throws: ``NightbellError/Code/cannotConnect`` with the `errno` of `connect(2)`: `ENOENT` or
    ///   `ECONNREFUSED` when no supervisor is there, `EACCES` when the socket's permissions forbid it.
    public init(
        socketPath: String? = nil, requestTimeout: Duration = .seconds(5)
    ) throws(NightbellError) {
        let path = socketPath ?? Client.Configuration.defaultSocketPath()
        self.socketPath = path
        self.requestTimeout = requestTimeout
        connection = try AdministrationConnection(path: path, requestTimeout: requestTimeout)
    }

    /// The state of the supervisor itself.
    public mutating func status() throws(NightbellError) -> SupervisorStatus {
        SupervisorStatus(try wireStatus())
    }

    private mutating func wireStatus() throws(NightbellError) -> WireSupervisorStatus {
        guard case .supervisorStatus(let status)? = try connection.ask(.status(WireStatus())) else {
            throw .unexpectedAnswer(to: "Status")
        }
        return status
    }

    /// All clients that the caller may see, without their sockets, in the supervisor's order.
    public mutating func list() throws(NightbellError) -> [ClientInfo] {
        var clients: [ClientInfo] = []
        let request = try connection.send(.list(WireList()))
        while true {
            switch try connection.answer(to: request) {
            case .clientInfos(let part)?: clients += part.clients.map(ClientInfo.init)
            case .done?: return clients
            default: throw .unexpectedAnswer(to: "List")
            }
        }
    }

    /// Everything about one client.
    ///
    /// - Throws: ``NightbellError/Code/noSuchClient``, as do all calls that name a client, even if it is
    ///   another user's.
    public mutating func show(_ identifier: String) throws(NightbellError) -> ClientInfo {
        try show(.with { $0.identifier = identifier })
    }

    /// The user of a client, also of one that is only declared, or was quit.
    package mutating func owner(of identifier: String) throws(NightbellError) -> UInt32 {
        let message = WireShow.with {
            $0.identifier = identifier
            $0.ownerOnly = true
        }
        return try show(message).uid
    }

    private mutating func show(_ message: WireShow) throws(NightbellError) -> ClientInfo {
        guard case .clientInfo(let info)? = try connection.ask(.show(message)) else {
            throw .unexpectedAnswer(to: "Show")
        }
        return ClientInfo(info)
    }

    /// Wakes a suspended client, or notifies a running one of the request.
    public mutating func wake(_ identifier: String) throws(NightbellError) {
        var message = WireWakeClient()
        message.identifier = identifier
        try connection.expectDone(.wakeClient(message), "WakeClient")
    }

    /// Begins the suspension of a client in the background without waiting for its linger time. It returns
    /// when the suspension has begun, not when it is complete; background tasks still hold it off.
    public mutating func suspend(_ identifier: String) throws(NightbellError) {
        var message = WireSuspendClient()
        message.identifier = identifier
        try connection.expectDone(.suspendClient(message), "SuspendClient")
    }

    /// Ends a client as its user would: with notice if it runs, without if it is suspended.
    public mutating func quit(_ identifier: String) throws(NightbellError) {
        var message = WireQuitClient()
        message.identifier = identifier
        try connection.expectDone(.quitClient(message), "QuitClient")
    }

    /// Launches a client that has no process: a dormant one, or one that a manifest declares. Nothing happens
    /// if it runs.
    public mutating func launch(_ identifier: String) throws(NightbellError) {
        var message = WireLaunchClient()
        message.identifier = identifier
        try connection.expectDone(.launchClient(message), "LaunchClient")
    }

    /// Forgets a client that has no process: its sockets are closed, its state is dropped, and another user
    /// may take its identifier.
    public mutating func forget(_ identifier: String) throws(NightbellError) {
        var message = WireForgetClient()
        message.identifier = identifier
        try connection.expectDone(.forgetClient(message), "ForgetClient")
    }

    /// Leaves a message for a client at the push service, as a sender would: the client is woken or launched
    /// for it, as often as it may be in an hour. For a client that its user has quit it waits.
    ///
    /// - Parameters:
    ///   - body: at most 4,096 bytes.
    ///   - lifetime: how long it is kept, in whole seconds; 28 days at most, and 5 s
    ///     at least.
    ///   - topic: replaces a waiting message of the same topic; at most 32 characters of base64url.
    /// - Returns: the number of the message (``PushMessage/id``).
    /// - Throws: ``NightbellError/Code/pushUnavailable`` if there is no push service,
    ///   ``NightbellError/Code/pushRefused`` if it refuses: too many messages wait, or a value is out of its
    ///   range.
    @discardableResult
    public mutating func push(
        _ body: [UInt8], to identifier: String, _ urgency: PushUrgency = .normal,
        lifetime: Duration = .seconds(86_400), topic: String = ""
    ) throws(NightbellError) -> UInt64 {
        let (path, user) = (try status().pushSocket, try owner(of: identifier))
        let connection = try PushConnection(
            path: path, client: identifier, user: user, timeout: requestTimeout.wholeNanoseconds)
        let answer = try connection.ask(
            .send(
                .with {
                    $0.body = body.asField
                    $0.urgency = urgency.wire
                    $0.lifetimeS = UInt32(clamping: lifetime.components.seconds)
                    $0.topic = topic
                }))
        guard case .accepted(let accepted)? = answer else { throw .unexpectedAnswer(to: "Send") }
        return accepted.id
    }

    /// Has the supervisor treat a client as if something had happened to the machine, to try the client with.
    ///
    /// - Throws: ``NightbellError/Code/modeRequired`` if the client has not declared the mode that this
    ///   needs; ``NightbellError/Code/invalidArgument`` if the client has not asked to be told of other
    ///   networks; ``NightbellError/Code/illegalState`` if nothing follows from the event now.
    public mutating func simulate(_ event: SimulatedEvent, _ identifier: String) throws(NightbellError) {
        var message = WireSimulate()
        message.identifier = identifier
        message.event =
            switch event {
            case .networkChange: .networkChange
            case .sleep: .sleep
            case .unlock: .unlock
            case .fetch: .fetch
            case .fetchLaunch: .fetchLaunch
            }
        try connection.expectDone(.simulate(message), "Simulate")
    }

    /// Has the supervisor treat a client as if something had happened to the subject of one of its
    /// observations.
    ///
    /// - Throws: ``NightbellError/Code/noSuchObservation``; ``NightbellError/Code/illegalState`` if the
    ///   client is not to be told of it now, such as of a movement in the background, or has yet to be told
    ///   what has really happened.
    public mutating func simulate(_ occurrence: Occurrence, _ identifier: String) throws(NightbellError) {
        var message = WireSimulate()
        message.identifier = identifier
        message.occurrence = occurrence.wire
        try connection.expectDone(.simulate(message), "Simulate")
    }

    /// The notifications that are pending or shown, of one client or of all that the caller may see, also of
    /// clients that do not run. Without their payloads.
    public mutating func notifications(
        of identifier: String? = nil
    ) throws(NightbellError) -> [NotificationInfo] {
        var all: [NotificationInfo] = []
        while true {
            var message = WireShowNotifications()
            message.identifier = identifier ?? ""
            message.after = all.last?.number ?? 0
            guard case .notificationList(let list)? = try connection.ask(.showNotifications(message)) else {
                throw .unexpectedAnswer(to: "ShowNotifications")
            }
            all += list.notifications.map { NotificationInfo($0) }
            guard list.hasMore_p, !list.notifications.isEmpty else { return all }
        }
    }

    /// Has the supervisor relieve memory pressure: it ends a few of the largest suspended clients that can be
    /// launched again.
    public mutating func relieveMemory() throws(NightbellError) {
        try connection.expectDone(.relieveMemory(WireRelieveMemory()), "RelieveMemory")
    }

    /// Has the supervisor read its configuration and the manifests again, and do at once what it can.
    ///
    /// - Throws: ``NightbellError/Code/reloadFailed`` if the configuration cannot be used, in which case
    ///   nothing changes;
    ///   ``NightbellError/Code/permissionDenied`` unless called by root or the supervisor's own user.
    public mutating func reload() throws(NightbellError) -> ReloadReport {
        guard case .reloaded(let report)? = try connection.ask(.reload(WireReload())) else {
            throw .unexpectedAnswer(to: "Reload")
        }
        return ReloadReport(report)
    }

    /// Replaces the supervisor's program by the one that is now installed at its path. Clients notice
    /// nothing.
    ///
    /// - Returns: the state of the supervisor after the upgrade.
    /// - Throws: ``NightbellError/Code/upgradeFailed`` with the reason if nothing was replaced;
    ///   ``NightbellError/Code/permissionDenied`` unless called by root or the supervisor's own user.
    public mutating func upgrade() throws(NightbellError) -> SupervisorStatus {
        let before = try wireStatus().programNumber
        for _ in 1...Self.upgradeAttempts {
            // The supervisor tries the new program first, which can take several seconds.
            var patient = try AdministrationConnection(path: socketPath, requestTimeout: .seconds(20))
            do throws(NightbellError) {
                try patient.expectDone(.upgrade(WireUpgrade()), "Upgrade")
            } catch {
                // The worker that took the request has ended, as requested.
                guard error.code == .connectionLost else { throw error }
            }
            connection = try AdministrationConnection(path: socketPath, requestTimeout: .seconds(20))
            let status = try wireStatus()
            // It may have died for another reason. A supervisor that does not count programs cannot tell.
            if status.programNumber != before || before == 0 {
                connection.requestTimeout = requestTimeout
                return SupervisorStatus(status)
            }
        }
        throw NightbellError(.upgradeFailed, "the worker ends before the upgrade is done")
    }

    private static let upgradeAttempts = 3

    /// Turns the connection into a stream of the events from now on.
    ///
    /// - Parameter identifier: only this client's events; nil: the events of all clients.
    public consuming func watch(_ identifier: String? = nil) throws(NightbellError) -> ClientEvents {
        var connection = self.connection
        var message = WireWatch()
        message.identifier = identifier ?? ""
        let request = try connection.send(.watch(message))
        guard case .done? = try connection.answer(to: request) else { throw .unexpectedAnswer(to: "Watch") }
        return ClientEvents(connection: connection)
    }
}

/// Events of clients, as they happen. It belongs to one thread at a time.
public struct ClientEvents: ~Copyable {
    private var connection: AdministrationConnection
    /// Events that have come together with the last one that was returned, the latest first.
    private var rest: [ClientEvent] = []

    init(connection: consuming AdministrationConnection) {
        self.connection = connection
    }

    /// Readable when events arrive: ``nextPending()`` returns them one by one until there are none. Do not
    /// read from it.
    public var fileDescriptor: CInt { connection.rawValue }

    /// Waits for the next event; nil when the supervisor has ended.
    public mutating func next() throws(NightbellError) -> ClientEvent? {
        while true {
            switch try nextPending() {
            case .event(let event): return event
            case .nothing: connection.waitUntilReadable()
            case .end: return nil
            }
        }
    }

    /// The result of ``nextPending()``.
    public enum Pending: Sendable, Hashable {
        case event(ClientEvent)
        /// No event has arrived.
        case nothing
        /// The supervisor has ended: there will be no more events.
        case end
    }

    /// The next event if it has already arrived. Never blocks.
    public mutating func nextPending() throws(NightbellError) -> Pending {
        while true {
            if let event = rest.popLast() { return .event(event) }
            switch try connection.receive() {
            case .message(let message): rest = try events(in: message).reversed()
            case .nothing: return .nothing
            case .end: return .end
            }
        }
    }

    /// Ignores messages other than events: they belong to later versions of the protocol.
    private func events(in message: WireSupervisorMessage) throws(NightbellError) -> [ClientEvent] {
        switch message.body {
        case .watchEvents(let events)?: return events.events.map(ClientEvent.init)
        case .error(let error)?: throw NightbellError(error)
        default: return []
        }
    }
}

extension NightbellError {
    fileprivate static func unexpectedAnswer(to request: String) -> NightbellError {
        NightbellError(.malformedAnswer, "the answer to \(request) is of another kind")
    }
}
