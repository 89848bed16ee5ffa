package import NightbellCore

/// A small world around a core, for the rules of pushes alone: clients that are told of pushes, handle them or
/// not, fall asleep, crash and are quit; a push service with messages that come, are replaced and expire; power
/// and networks that change; and a supervisor that dies.
package struct PushLife: ~Copyable {
    /// The first violated rule.
    package private(set) var violation: Violation?
    private var steps = 0
    package internal(set) var coverage = Coverage()

    package struct Coverage: Sendable, Equatable {
        package var pushes = 0
        package var told = 0
        package var launches = 0
        package var merged = 0
        package var held = 0
        package var completions = 0
        package var terminations = 0
        package var toldAgain = 0
        package var deaths = 0

        package init() {}
    }

    struct Client {
        let registration: Registration
        var id: ClientID?
        var isAlive = false
        var isAsleep = false
        var isForeground = false
        var isObserving = false
        var lastWakeID: UInt64 = 0
        /// At the push service.
        var waiting: [PushUrgency] = []
        var number: UInt64 = 0
        /// The last report that the supervisor has taken note of, while there is a service.
        var known: UInt64?
        /// The urgency of that report.
        var reported: PushUrgency?
        /// It has to be told.
        var isUntold = false
        var run: PushMemory.Run?
        var retryAt: Instant?
        /// When it was told in the background.
        var told: [Instant] = []
    }

    let settings: Settings
    let mutation: Mutation?
    var core: Supervision
    var log = SimulatedRecoveryLog()
    var random: SplitMix64
    var now = Instant(nanoseconds: 1_000_000_000_000)
    var clients: [Client] = []
    var actions = ActionBuffer()
    var events: [Event] = []
    var isOnBattery: Bool?
    var isMetered: Bool?
    private var asked: [UInt64: (index: Int, message: ClientMessage)] = [:]
    private var requests: UInt64 = 0

    static let observation = "pushes"

    package init(seed: UInt64, mutation: Mutation? = nil) {
        var settings = Settings()
        settings.launches.relaunches = 200
        settings.push.perHour = 3
        self.settings = settings
        self.mutation = mutation
        random = SplitMix64(seed: seed)
        core = Supervision(settings: settings, mutation: mutation)
        core.notesChanges = true
        for index in 0..<3 {
            guard let identifier = ClientIdentifier("client.\(index)") else { continue }
            var registration = Registration(identifier: identifier, user: 1_000, modes: [])
            registration.isLaunchable = true
            clients.append(Client(registration: registration))
        }
    }

    package mutating func run(steps: Int) {
        for _ in 0..<steps where violation == nil {
            step()
            self.steps += 1
        }
    }

    mutating func require(_ condition: Bool, _ words: String) {
        guard !condition, violation == nil else { return }
        violation = Violation(invariant: .pushes, step: steps, at: now, message: words)
    }

    func name(_ index: Int) -> String { "client.\(index)" }

    // MARK: Time and chance

    private mutating func step() {
        var next = now + random.duration(upTo: .seconds(random.once(in: 8) ? 3_600 : 40))
        if let deadline = core.nextDeadline { next = min(next, max(deadline, now)) }
        now = next
        if core.nextDeadline.map({ $0 <= now }) ?? false { turn([.timer]) }
        checkRuns()
        switch random.below(11) {
        case 10:
            // The service is replaced, and reports everything at once or later.
            turn([.fact(.pushServiceChanged)])
            if random.once(in: 2) { turn(clients.indices.map { report($0) }) }
        case 0...2: turn([arrive(random.below(clients.count))])
        case 3: turn([expire(random.below(clients.count))])
        case 4: turn([change()])
        case 5: if random.once(in: 4) { die() }
        default: happen(random.below(clients.count))
        }
    }

    private mutating func happen(_ index: Int) {
        guard let id = clients[index].id else {
            return turn([.registration(clients[index].registration, key(index))])
        }
        if clients[index].isAlive, !clients[index].isAsleep, !clients[index].isObserving {
            return say(.observe(name: Self.observation, .pushes), index)
        }
        switch random.below(12) {
        case 0...1:
            if clients[index].isAsleep { turn([.command(.wake, id, key(index))]) }
        case 2...3:
            if clients[index].isForeground { say(.enterBackground, index) }
        case 4:
            say(.enterForeground, index)
        case 5...8:
            handle(index)
        case 9:
            if clients[index].isAlive { turn([.ended(id, .failed)]) }
        case 10:
            if random.once(in: 3) { turn([.command(.quit, id, key(index))]) }
        default:
            // One that it was not told of.
            say(.pushDone(wakeID: 1_000_000, .newData), index)
        }
    }

    /// A client takes its messages, and says so to the service and to the supervisor, in any order.
    private mutating func handle(_ index: Int) {
        guard let run = clients[index].run, clients[index].isAlive, !clients[index].isAsleep else { return }
        if random.once(in: 6) { return say(.pushDone(wakeID: run.wakeID, .failed), index) }
        clients[index].waiting = []
        let isServiceFirst = random.once(in: 2)
        if isServiceFirst { turn([report(index)]) }
        say(.pushDone(wakeID: run.wakeID, .newData), index)
        if !isServiceFirst { turn([report(index)]) }
    }

    mutating func key(_ index: Int) -> RequestKey {
        requests += 1
        return RequestKey(connection: UInt64(index + 1), request: requests)
    }

    private mutating func say(_ message: ClientMessage, _ index: Int) {
        guard let id = clients[index].id, clients[index].isAlive, !clients[index].isAsleep else { return }
        let key = key(index)
        asked[key.request] = (index, message)
        turn([.message(message, from: id, key)])
    }

    // MARK: Turns

    /// Feeds events, and whatever follows from them, each round in a turn of its own.
    mutating func turn(_ first: [Event]) {
        events = first
        while !events.isEmpty, violation == nil {
            let batch = events
            events = []
            actions.removeAll()
            for event in batch {
                if case .fact(let fact) = event { learn(fact) }
                core.handle(event, at: now, into: &actions)
            }
            core.endTurn(at: now, into: &actions)
            core.persistChanges(in: &log)
            carryOut()
        }
        checkTold()
    }

    private mutating func carryOut() {
        log.flush()
        let all = actions.actions
        for action in all { carryOut(action, among: all) }
        for case .notify(let id, .wake(let wake)) in all {
            if let index = index(of: id) { tell(wake, id, index) }
        }
        log.flush()
    }

    func index(of id: ClientID) -> Int? { clients.firstIndex { $0.id == id } }

    private mutating func carryOut(_ action: Action, among all: [Action]) {
        switch action {
        case .registered(let id, let key):
            let index = Int(key.connection) - 1
            clients[index].id = id
            clients[index].lastWakeID = 0
            begin(id, index)
        case .rejoined(let id, _):
            if let index = index(of: id) { begin(id, index) }
        case .answer(let answer, _, let key):
            if let (index, message) = asked.removeValue(forKey: key.request) { take(answer, message, index) }
        case .notify(let id, let notice):
            take(notice, id)
        case .freeze(let id, let epoch):
            guard let index = index(of: id) else { return }
            require(clients[index].run == nil, "\(name(index)) is suspended while it handles pushes")
            clients[index].isAsleep = true
            events.append(.frozen(id, epoch: epoch))
        case .thaw(let id):
            if let index = index(of: id) { clients[index].isAsleep = false }
        case .kill(let id, let reason):
            guard let index = index(of: id) else { return }
            if reason == .pushOverran { coverage.terminations += 1 }
            clients[index].isAlive = false
            events.append(.ended(id, .failed))
        case .makeDormant(let id):
            guard let index = index(of: id) else { return }
            if clients[index].run != nil { noteFailure(index) }
            end(index)
            if let record = log.written[id] { log.makeDormant(id, record) }
        case .launch(let id):
            guard let index = index(of: id) else { return }
            coverage.launches += 1
            if let record = log.written[id] { log.launch(id, record) }
            events.append(.rejoined(id, clients[index].registration, key(index)))
        case .forget(let id, let identifier, _):
            guard let index = index(of: id) else { return }
            log.forget(id, identifier, of: core)
            end(index)
            leave(index)
        case .trace(let id, .pushEnded(let result)):
            if let index = index(of: id) { endRun(result, id, index, among: all) }
        case .refuseRegistration, .handedOver, .commandAnswer, .arm, .armPastEnd, .beginOffload, .endOffload,
            .ping, .lookForAnswer, .close, .checkFreeze, .declared, .storeState, .dropState, .inspectPaths,
            .trace:
            break
        }
    }

    private mutating func begin(_ id: ClientID, _ index: Int) {
        clients[index].isAlive = true
        clients[index].isAsleep = false
        clients[index].isForeground = core.state(of: id) == .inactive
        let identifier = clients[index].registration.identifier
        let record = SimulatedRecoveryLog.ClientRecord(
            registration: clients[index].registration, registeredAt: now,
            ownership: core.owner(of: identifier)?.number ?? 0)
        log.admit(id, record, canRepeat: false, of: core)
    }

    private mutating func end(_ index: Int) {
        clients[index].isAlive = false
        clients[index].isAsleep = false
        clients[index].isForeground = false
        clients[index].run = nil
    }

    private mutating func take(_ notice: Notice, _ id: ClientID) {
        switch notice {
        case .prepareToSuspend(let epoch, _): answer(.readyToSuspend(epoch: epoch, notIdle: []), id)
        case .didEnterBackground: answer(.backgroundEntered, id)
        case .willTerminate: events.append(.ended(id, .succeeded))
        case .wake, .suspendCancelled, .suspended, .backgroundTimeExpiring: break
        }
    }

    /// Needs no answer.
    func unanswered(_ message: ClientMessage, _ id: ClientID) -> Event {
        .message(message, from: id, RequestKey(connection: 0, request: 0))
    }

    private mutating func answer(_ message: ClientMessage, _ id: ClientID) {
        events.append(unanswered(message, id))
    }

    // MARK: Death

    /// The supervisor dies, and another takes over; the push service tells it everything again.
    private mutating func die() {
        coverage.deaths += 1
        events = []
        _ = log.die()
        var snapshot = log.snapshot
        log.finishForgetting(&snapshot)
        for index in snapshot.clients.indices {
            guard let client = self.index(of: snapshot.clients[index].id) else { continue }
            snapshot.clients[index].execution = clients[client].isAsleep ? .stopped : .running
        }
        actions.removeAll()
        do throws(RecoverySnapshotError) {
            core = try Supervision(
                settings: settings, restoring: snapshot, mutation: mutation, at: now, into: &actions)
        } catch {
            return require(false, "the records cannot be restored: \(error)")
        }
        (isOnBattery, isMetered) = (nil, nil)
        for index in clients.indices { forgetService(index) }
        core.endTurn(at: now, into: &actions)
        core.persistChanges(in: &log)
        carryOut()
        turn(events + clients.indices.map { report($0) } + [.timer])
    }
}
