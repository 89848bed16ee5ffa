import NightbellCore

/// A core with a clock, and the operations that tests share.
struct Bench {
    var core: Supervision
    var now = Instant(nanoseconds: 1_000_000_000_000)
    var actions = ActionBuffer()
    /// The numbers of the last suspension attempt and the last wake that a client was told.
    var lastEpoch: UInt64 = 0
    var lastWakeID: UInt64 = 0
    private var registrations = 0

    static let key = RequestKey(connection: 1, request: 1)

    init(_ adjust: (inout Settings) -> Void = { _ in }) {
        var settings = Settings()
        adjust(&settings)
        core = Supervision(settings: settings)
    }

    /// Feeds the events of one turn and ends it.
    @discardableResult
    mutating func turn(_ events: Event...) -> [Action] {
        actions.removeAll()
        core.dropChanges()
        for event in events { core.handle(event, at: now, into: &actions) }
        core.endTurn(at: now, into: &actions)
        for case .notify(_, let notice) in actions.actions {
            switch notice {
            case .prepareToSuspend(let epoch, _): lastEpoch = epoch
            case .wake(let wake): lastWakeID = wake.wakeID
            case .didEnterBackground, .suspendCancelled, .suspended, .backgroundTimeExpiring, .willTerminate:
                break
            }
        }
        return actions.actions
    }

    @discardableResult
    mutating func say(_ message: ClientMessage, from client: ClientID) -> [Action] {
        turn(.message(message, from: client, Self.key))
    }

    @discardableResult
    mutating func command(_ command: Command, _ client: ClientID) -> [Action] {
        turn(.command(command, client, Self.key))
    }

    /// Lets time pass; the timer is served at each deadline on the way.
    @discardableResult
    mutating func pass(_ duration: Duration) -> [Action] {
        let end = now + duration
        var all: [Action] = []
        while let deadline = core.nextDeadline, deadline <= end {
            now = max(now, deadline)
            all += turn(.timer)
        }
        now = end
        return all
    }

    mutating func register(
        _ name: String? = nil, user: UserID = 1_000, modes: Modes = [.voip, .audio],
        policy: WakeLimitPolicy = .linger, isLaunchable: Bool = false, exitsOnSuspend: Bool = false,
        wantsNetworkChanges: Bool = false, isUnmodified: Bool = false
    ) throws(Unexpected) -> ClientID {
        registrations += 1
        guard let identifier = ClientIdentifier(name ?? "client.\(registrations)") else {
            throw .noIdentifier
        }
        var registration = Registration(
            identifier: identifier, user: user, modes: modes, wakeLimitPolicy: policy)
        registration.isLaunchable = isLaunchable
        registration.exitsOnSuspend = exitsOnSuspend
        registration.wantsNetworkChanges = wantsNetworkChanges
        registration.isUnmodified = isUnmodified
        for case .registered(let client, _) in turn(.registration(registration, Self.key)) { return client }
        throw .notRegistered
    }

    /// The outcome of handing over one socket.
    mutating func handOver(_ offer: SocketOffer, from client: ClientID) -> Result<SocketToken, Refusal>? {
        say(.handOver([offer]), from: client)
        return actions.adoptions.first
    }

    mutating func handOver(from client: ClientID, survives: Bool = false) throws(Unexpected) -> SocketToken {
        var offer = SocketOffer(tag: .voip)
        offer.survives = survives
        guard case .success(let token) = handOver(offer, from: client) else {
            throw .notAdopted
        }
        return token
    }

    mutating func beginTask(_ client: ClientID) throws(Unexpected) -> UInt64 {
        say(.beginBackgroundTask(name: "test"), from: client)
        guard case .backgroundTask(let task?) = answer else { throw .noTask }
        return task
    }

    /// A violated assumption of a test.
    enum Unexpected: Error {
        case noIdentifier, notRegistered, notAdopted, noTask
    }

    /// The core's answer in the last turn.
    var answer: Answer? {
        for case .answer(let answer, _, _) in actions.actions { return answer }
        return nil
    }

    /// Puts a running client to sleep, from any state.
    mutating func suspend(_ client: ClientID) {
        if core.state(of: client) != .background { say(.enterBackground, from: client) }
        say(.backgroundEntered, from: client)
        say(.wakeDone(wakeID: lastWakeID), from: client)
        if core.state(of: client) == .background { command(.suspend, client) }
        say(.readyToSuspend(epoch: lastEpoch, notIdle: []), from: client)
        turn(.frozen(client, epoch: lastEpoch))
    }

    func counters(_ client: ClientID) -> Counters {
        core.view(of: client, at: now)?.counters ?? Counters()
    }
}

extension [Action] {
    var wakes: [Wake] {
        compactMap { action in
            if case .notify(_, .wake(let wake)) = action { wake } else { nil }
        }
    }

    var notices: [Notice] {
        compactMap { action in
            if case .notify(_, let notice) = action { notice } else { nil }
        }
    }

    var overruns: [Step] {
        compactMap { action in
            if case .trace(_, .overran(let step)) = action { step } else { nil }
        }
    }

    var kills: [TerminationReason] {
        compactMap { action in
            if case .kill(_, let reason) = action { reason } else { nil }
        }
    }
}
