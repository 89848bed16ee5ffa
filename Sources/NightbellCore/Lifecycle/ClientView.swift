/// A client as it is visible outside the core.
package struct ClientView: Sendable {
    package var id: ClientID
    package var identifier: ClientIdentifier
    package var user: UserID
    package var modes: Modes
    package var state: ClientState
    /// In elapsed time.
    package var enteredStateAt: Instant
    package var registeredAt: Instant
    package var holds: Holds
    package var sockets: [SocketToken]
    package var keepAliveTimeout: Duration?
    /// In elapsed time.
    package var keepAliveWindow: Window?
    package var backgroundTasks: [String]
    /// The evidence that its media plays; nil: it does not.
    package var media: MediaWitness?
    /// It should be reachable, but only a request can wake or launch it.
    package var isOutOfReach: Bool
    package var wantsNetworkChanges: Bool
    package var launches: Launches
    /// nil: it has never asked for fetches.
    package var fetch: Fetch?
    package var observations: [Observation]
    /// The number of its pending notifications.
    package var pendingNotifications: Int
    package var counters: Counters

    /// A client's fetches.
    package struct Fetch: Sendable {
        package var state: FetchState
        /// In elapsed time.
        package var window: Window?
        package var isRunning: Bool
        /// Why the planned fetch could not begin now, even if its moment had come.
        package var obstacle: FetchObstacle?
        /// The hours of today in which it is usually brought to the foreground.
        package var usualHours: [Int]
    }

    /// The launch state of a client.
    package struct Launches: Sendable, Equatable {
        package var isPossible: Bool
        /// Why it is to be launched, or is being launched.
        package var reasons: WakeReasons
        /// The earliest time of a delayed launch.
        package var notBefore: Instant?
        /// The deadline for a launched process to identify itself.
        package var until: Instant?
        /// Consecutive launches after a failure.
        package var inRow: Int
        package var stateBytes: Int
        package var hibernates: Bool
        package var exitsOnSuspend: Bool
        package var isWaitingForUnlock: Bool
        /// Until when it waits because memory is short; nil: it does not.
        package var waitsForMemoryUntil: Instant?
        /// Its user has quit it: only its location services launch it.
        package var isQuit: Bool
    }

    /// Reasons that keep a background client from being suspended, besides tasks, media and a fetch: all are
    /// in `Supervision.suspendIfIdle`.
    package struct Holds: OptionSet, Sendable {
        package let rawValue: UInt8

        package init(rawValue: UInt8) {
            self.rawValue = rawValue
        }

        package static let enteringBackground = Holds(rawValue: 1)
        package static let openWake = Holds(rawValue: 2)
        package static let linger = Holds(rawValue: 4)
        /// It was launched, and it has no wake source yet.
        package static let settingUp = Holds(rawValue: 8)
    }
}

extension Supervision {
    /// The clients that run, by slot.
    package var clientIDs: [ClientID] { clients.ids.map(ClientID.init) }

    package var socketCount: Int { sockets.count }

    package func contains(_ client: ClientID) -> Bool { clients.contains(client.id) }

    package func client(named identifier: ClientIdentifier) -> ClientID? { owners[identifier]?.client }

    /// The resources used by the clients of each uid, sorted by uid.
    package var usage: [(user: UserID, usage: UserUsage)] {
        users.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
    }

    package func state(of client: ClientID) -> ClientState {
        clients.contains(client.id) ? clients[client.id].lifecycle.state : .notRunning
    }

    package func identifier(of client: ClientID) -> ClientIdentifier? {
        clients.contains(client.id) ? owners.identifier(at: clients[client.id].owner) : nil
    }

    package func user(of client: ClientID) -> UserID? {
        clients.contains(client.id) ? clients[client.id].user : nil
    }

    /// Whether the supervisor has requested that the client be frozen: it cannot repeat a message before it
    /// is thawed.
    package func mayBeFrozen(_ client: ClientID) -> Bool {
        clients.contains(client.id) && clients[client.id].lifecycle.mayBeFrozen
    }

    /// Whether a client that may be frozen is certain to be thawed when one of its armed sockets fires,
    /// because it cannot be ended for being woken too often. The edge may thaw it before it tells the core
    /// what has happened.
    package func allowsEarlyThaw(of client: ClientID) -> Bool {
        clients.contains(client.id) && clients[client.id].wakeLimitPolicy == .linger
    }

    /// The owner of a socket, if the socket's firing is certain to thaw it.
    package func clientAllowingEarlyThaw(by token: SocketToken) -> ClientID? {
        guard sockets.contains(token.id), sockets[token.id].condition == .armed, !sockets[token.id].hasProfile
        else { return nil }
        let owner = sockets[token.id].owner
        return clients[owner.id].lifecycle.mayBeFrozen && allowsEarlyThaw(of: owner) ? owner : nil
    }

    /// The deadline of a client's background tasks, once their clock runs, and whether it has been warned.
    package func taskClock(of client: ClientID) -> (until: Instant, isWarned: Bool)? {
        guard clients.contains(client.id),
            case .running(let until, let notified) = clients[client.id].assertions.time
        else { return nil }
        return (until, notified)
    }

    /// Until when its media counts as playing.
    package func mediaUntil(of client: ClientID) -> Instant? {
        clients.contains(client.id) ? clients[client.id].assertions.mediaUntil : nil
    }

    package func owner(of token: SocketToken) -> ClientID? {
        sockets.contains(token.id) ? sockets[token.id].owner : nil
    }

    package func isStream(_ token: SocketToken) -> Bool {
        sockets.contains(token.id) && sockets[token.id].isStream
    }

    private func launches(_ client: ClientID) -> ClientView.Launches {
        let record = clients[client.id]
        var notBefore: Instant?
        if case .dormant(.waiting(let instant)) = record.lifecycle.stage { notBefore = instant }
        var waitsForMemoryUntil: Instant?
        if case .dormant(.queued) = record.lifecycle.stage, !record.launches.kind.isUrgent,
            pressedUntil != Self.unpressed
        {
            waitsForMemoryUntil = pressedUntil
        }
        var until: Instant?
        if case .launching(let instant) = record.lifecycle.stage { until = instant }
        return ClientView.Launches(
            isPossible: record.isLaunchable, reasons: record.launches.reasons, notBefore: notBefore,
            until: until,
            inRow: Int(record.launches.inRow), stateBytes: Int(record.launches.stateBytes),
            hibernates: record.hibernates, exitsOnSuspend: record.exitsOnSuspend,
            isWaitingForUnlock: isWaitingForUnlock(client), waitsForMemoryUntil: waitsForMemoryUntil,
            isQuit: isQuit(client))
    }

    /// The client's sockets that survive its process, in the order in which they were handed over, unless one
    /// was released since.
    package func survivors(of client: ClientID) -> [SocketToken] {
        clients.contains(client.id) ? clients[client.id].sockets.filter { sockets[$0.id].survives } : []
    }

    package func sockets(of client: ClientID) -> [SocketToken] {
        clients.contains(client.id) ? Array(clients[client.id].sockets) : []
    }

    /// The still relevant parts of its registration.
    package func registration(of client: ClientID) -> Registration? {
        guard clients.contains(client.id) else { return nil }
        let record = clients[client.id]
        var registration = Registration(
            identifier: owners.identifier(at: record.owner), user: record.user, modes: record.modes,
            wakeLimitPolicy: record.wakeLimitPolicy)
        registration.isLaunchable = record.isLaunchable
        registration.isDeclared = record.isDeclared
        registration.exitsOnSuspend = record.exitsOnSuspend
        registration.wantsNetworkChanges = record.wantsNetworkChanges
        registration.waitsForUnlock = record.waitsForUnlock
        registration.isUnmodified = record.isUnmodified
        return registration
    }

    package func registeredAt(_ client: ClientID) -> Instant? {
        clients.contains(client.id) ? clients[client.id].registeredAt : nil
    }

    package func survives(_ token: SocketToken) -> Bool {
        sockets.contains(token.id) && sockets[token.id].survives
    }

    package func isRouted(_ token: SocketToken) -> Bool {
        sockets.contains(token.id) && sockets[token.id].isRouted
    }

    package func tag(of token: SocketToken) -> SocketTag? {
        sockets.contains(token.id) ? sockets[token.id].tag : nil
    }

    package func condition(of token: SocketToken) -> SocketCondition? {
        sockets.contains(token.id) ? sockets[token.id].condition : nil
    }

    package func view(of client: ClientID, at now: Instant) -> ClientView? {
        guard clients.contains(client.id) else { return nil }
        let record = clients[client.id]
        var holds: ClientView.Holds = []
        if case .background(let background) = record.lifecycle.stage {
            if background.enteringUntil != nil { holds.insert(.enteringBackground) }
            if background.wake != nil { holds.insert(.openWake) }
            if background.holdUntil.map({ $0 > now }) ?? false { holds.insert(.linger) }
        }
        if endOfSetUp(client, at: now) != nil { holds.insert(.settingUp) }
        var counters = record.counters
        if case .suspended(let since) = record.lifecycle.stage {
            counters.asleepNanoseconds += UInt64(max(0, elapsed(at: now).since(since).nanoseconds))
        }
        return ClientView(
            id: client, identifier: owners.identifier(at: record.owner), user: record.user,
            modes: record.modes,
            state: record.lifecycle.state, enteredStateAt: record.enteredStateAt,
            registeredAt: record.registeredAt, holds: holds, sockets: Array(record.sockets),
            keepAliveTimeout: record.keepAlive?.timeout, keepAliveWindow: keepAliveWindow(client),
            backgroundTasks: record.assertions.tasks.map(\.name),
            media: record.assertions.mediaPlays(at: now) ? record.assertions.mediaWitness : nil,
            isOutOfReach: isOutOfReach(client),
            wantsNetworkChanges: record.wantsNetworkChanges, launches: launches(client),
            fetch: fetch(record, client, at: now), observations: observations(of: client),
            pendingNotifications: pending(at: record.owner).count, counters: counters)
    }

    private func fetch(_ record: Client, _ client: ClientID, at now: Instant) -> ClientView.Fetch? {
        guard let state = fetches.state(at: record.owner) else { return nil }
        let hours = fetches.clock.map { clock in
            state.habit.usualHours(on: clock.local(elapsed(at: now)).day, atMost: 6).sorted()
        }
        return ClientView.Fetch(
            state: state, window: fetches.window(at: record.owner), isRunning: isFetching(client),
            obstacle: fetchObstacle(record, at: now), usualHours: hours ?? [])
    }
}
