package import NightbellCore

/// A core with a few clients and records, time and chance: the part that all lives have in common.
package struct SmallWorld {
    /// A client's process.
    struct Client {
        let registration: Registration
        var id: ClientID?
        var isAlive = false
        var isAsleep = false
        var isForeground = false
        /// Its user has quit it, and neither has started it again, nor has the supervisor.
        var isQuit = false
        /// It ended too often to be launched again.
        var hasGivenUp = false
        /// The last wake that it was told of.
        var lastWakeID: UInt64 = 0
    }

    let settings: Settings
    private let invariant: Invariant
    private let mutation: Mutation?
    private let narrator: ((String) -> Void)?
    /// The first violated rule.
    package private(set) var violation: Violation?
    fileprivate var steps = 0
    var core: Supervision
    var log = SimulatedRecoveryLog()
    var random: SplitMix64
    private(set) var now = Instant(nanoseconds: 1_000_000_000_000)
    var clients: [Client]
    fileprivate(set) var actions = ActionBuffer()
    /// The supervisor has still to be told of these.
    var events: [Event] = []
    fileprivate var asked: [UInt64: (client: Int, message: ClientMessage)] = [:]
    private var requests: UInt64 = 0
    private var supervisors: UInt64 = 0

    /// The rules of `invariant`, for clients that register as `clients`.
    init(
        seed: UInt64, _ invariant: Invariant, _ settings: Settings, clients: [Registration],
        mutation: Mutation?, narrator: ((String) -> Void)?
    ) {
        self.invariant = invariant
        self.settings = settings
        self.mutation = mutation
        self.narrator = narrator
        self.clients = clients.map { Client(registration: $0) }
        random = SplitMix64(seed: seed)
        core = Supervision(settings: settings, mutation: mutation)
        core.notesChanges = true
    }

    /// Clients of one user with these modes, all of which can be launched.
    static func registrations(_ modes: [Modes], user: UserID = 1_000) -> [Registration] {
        modes.enumerated().compactMap { index, modes in
            guard let identifier = ClientIdentifier("client.\(index)") else { return nil }
            var registration = Registration(identifier: identifier, user: user, modes: modes)
            registration.isLaunchable = true
            return registration
        }
    }

    mutating func require(_ condition: Bool, _ words: String) {
        guard violation == nil, !condition else { return }
        let violation = Violation(invariant: invariant, step: steps, at: now, message: words)
        self.violation = violation
        note("VIOLATED \(violation)")
    }

    func note(_ line: @autoclosure () -> String) {
        if let narrator { narrator(line()) }
    }

    func name(_ index: Int) -> String { "client.\(index)" }

    func index(of id: ClientID) -> Int? { clients.firstIndex { $0.id == id } }

    /// It runs, and can speak.
    func isRunning(_ index: Int) -> Bool { clients[index].isAlive && !clients[index].isAsleep }

    /// The number of the last request of any client.
    var lastRequest: UInt64 { requests }

    mutating func key(_ index: Int) -> RequestKey {
        requests += 1
        return RequestKey(connection: UInt64(index + 1), request: requests)
    }

    /// A message that needs no answer.
    mutating func tell(_ message: ClientMessage, _ id: ClientID) {
        events.append(.message(message, from: id, RequestKey(connection: 0, request: 0)))
    }

    fileprivate var isTimerDue: Bool { core.nextDeadline.map { $0 <= now } ?? false }

    /// Moves on by a random time of at most `limit`, not beyond the core's next deadline and `instants`.
    fileprivate mutating func passTime(upTo limit: Duration, _ instants: [Instant?]) {
        let chosen = now + random.duration(upTo: limit)
        now = (instants + [core.nextDeadline]).compactMap(\.self).reduce(chosen) { min($0, max($1, now)) }
    }

    /// Moves on to the first of `instants`, not beyond the core's next deadline.
    fileprivate mutating func passTime(to instants: [Instant?]) {
        guard let first = (instants + [core.nextDeadline]).compactMap(\.self).min() else { return }
        now = max(now, first)
    }

    fileprivate mutating func handle(_ event: Event) { core.handle(event, at: now, into: &actions) }

    fileprivate mutating func endTurn() { core.endTurn(at: now, into: &actions) }

    /// Stores the changes of a turn, which are lost with the supervisor until they are flushed.
    mutating func persist() { core.persistChanges(in: &log) }

    fileprivate mutating func admit(_ id: ClientID, _ index: Int) {
        let registration = clients[index].registration
        let record = SimulatedRecoveryLog.ClientRecord(
            registration: registration, registeredAt: now,
            ownership: core.owner(of: registration.identifier)?.number ?? 0)
        log.admit(id, record, canRepeat: false, of: core)
    }

    fileprivate mutating func forget(_ id: ClientID, _ identifier: ClientIdentifier) {
        log.forget(id, identifier, of: core)
    }

    fileprivate mutating func ask(_ message: ClientMessage, _ id: ClientID, _ index: Int) -> Event {
        let key = key(index)
        asked[key.request] = (index, message)
        return .message(message, from: id, key)
    }

    /// Another supervisor takes over from the records.
    fileprivate mutating func replaceSupervisor() {
        _ = log.die()
        var snapshot = log.snapshot
        supervisors += 1
        snapshot.lastNotification = supervisors * 1_000_000
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
        endTurn()
    }
}

extension Life {
    private static var roundLimit: Int { 1_000 }

    package var violation: Violation? { world.violation }

    package init(seed: UInt64, mutation: Mutation? = nil) {
        self.init(seed: seed, mutation: mutation, narrator: nil)
    }

    package mutating func run(steps: Int) {
        turn(initialFacts)
        for _ in 0..<steps where violation == nil {
            world.note("step \(world.steps) at \(TraceFormat.time(world.now))")
            step()
            world.steps += 1
        }
    }

    // MARK: Time

    /// Moves on by a random time, at most to the next deadline or to the first of `instants`.
    mutating func passTime(upTo limit: Duration, _ instants: [Instant?] = []) {
        world.passTime(upTo: limit, instants)
    }

    /// Moves on to the first of `instants`, at most to the next deadline.
    mutating func passTime(to instants: [Instant?]) { world.passTime(to: instants) }

    /// A client says something, if it runs.
    mutating func say(_ message: ClientMessage, _ index: Int) {
        guard let id = world.clients[index].id, world.isRunning(index) else { return }
        turn([world.ask(message, id, index)])
    }

    /// An administrator asks for something.
    mutating func command(_ command: Command, _ id: ClientID, _ index: Int) {
        if command == .quit { world.clients[index].isQuit = true }
        turn([.command(command, id, world.key(index))])
    }

    /// A client's process starts for the first time, or its user starts it.
    mutating func register(_ index: Int) {
        world.clients[index].isQuit = false
        turn([.registration(world.clients[index].registration, world.key(index))])
    }

    // MARK: Turns

    /// Feeds events, and whatever follows from them, each round in a turn of its own.
    mutating func turn(_ first: [Event]) {
        world.events += first
        var rounds = 0
        while !world.events.isEmpty || world.isTimerDue, violation == nil {
            rounds += 1
            world.require(rounds < Self.roundLimit, "the same instant never ends")
            let batch = world.events.isEmpty ? [.timer] : world.events
            world.events = []
            world.actions.removeAll()
            for event in batch {
                world.note("  > " + TraceFormat.words(event))
                if case .fact(let fact) = event { learn(fact) }
                world.handle(event)
            }
            world.endTurn()
            guard survives(deciding: batch) else { return die() }
            carryOut()
            follow()
        }
        check()
    }

    private mutating func carryOut() {
        world.persist()
        world.log.flush()
        let buffer = world.actions
        for action in buffer.actions {
            world.note("  < " + (TraceFormat.words(action, in: buffer) ?? "\(action)"))
            carryOut(action)
        }
        settle()
        for case .notify(let id, .wake(let wake)) in buffer.actions {
            guard let index = world.index(of: id) else { continue }
            world.require(!world.clients[index].isAsleep, "\(world.name(index)) is told while it is stopped")
            world.log.storeToldWake(wake.wakeID, of: id)
            if take(wake, index) {
                if !delays(wake, index) { world.tell(.wakeDone(wakeID: wake.wakeID), id) }
            } else {
                world.events.append(.ended(id, .failed))
            }
            world.clients[index].lastWakeID = wake.wakeID
        }
        world.log.flush()
    }

    private mutating func carryOut(_ action: Action) {
        switch action {
        case .registered(let id, let key):
            let index = Int(key.connection) - 1
            world.clients[index].id = id
            world.clients[index].lastWakeID = 0
            begin(id, index)
        case .rejoined(let id, _):
            if let index = world.index(of: id) { begin(id, index) }
        case .answer(let answer, _, let key):
            guard let (index, message) = world.asked.removeValue(forKey: key.request) else { return }
            if case .enterForeground = message, answer == .done { world.clients[index].isForeground = true }
            take(answer, to: message, index)
            if case .enterBackground = message, answer == .done { world.clients[index].isForeground = false }
        case .notify(let id, .prepareToSuspend(let epoch, _)):
            world.tell(.readyToSuspend(epoch: epoch, notIdle: []), id)
        case .notify(let id, .didEnterBackground):
            world.tell(.backgroundEntered, id)
        case .notify(let id, .willTerminate):
            world.events.append(.ended(id, .succeeded))
        case .freeze(let id, let epoch):
            guard let index = world.index(of: id) else { return }
            note(action, of: index)
            world.clients[index].isAsleep = true
            world.events.append(.frozen(id, epoch: epoch))
        case .thaw(let id):
            guard let index = world.index(of: id) else { return }
            note(action, of: index)
            world.clients[index].isAsleep = false
        case .kill(let id, _):
            guard let index = world.index(of: id) else { return }
            note(action, of: index)
            world.clients[index].isAlive = false
            world.events.append(.ended(id, .failed))
        case .makeDormant(let id):
            guard let index = world.index(of: id) else { return }
            note(action, of: index)
            finish(index)
            if let record = world.log.written[id] { world.log.makeDormant(id, record) }
        case .launch(let id):
            guard let index = world.index(of: id) else { return }
            note(action, of: index)
            world.clients[index].isQuit = false
            if let record = world.log.written[id] { world.log.launch(id, record) }
            world.events.append(.rejoined(id, world.clients[index].registration, world.key(index)))
        case .forget(let id, let identifier, _):
            guard let index = world.index(of: id) else { return }
            world.forget(id, identifier)
            note(action, of: index)
            finish(index)
            world.clients[index].id = nil
            leave(index)
        case .trace(let id, let trace):
            guard let index = world.index(of: id) else { return }
            if case .gaveUp = trace { world.clients[index].hasGivenUp = true }
            note(action, of: index)
        case .notify, .refuseRegistration, .handedOver, .commandAnswer, .arm, .armPastEnd, .beginOffload,
            .endOffload, .ping, .lookForAnswer, .close, .checkFreeze, .declared, .storeState, .dropState,
            .inspectPaths:
            break
        }
    }

    private mutating func begin(_ id: ClientID, _ index: Int) {
        world.clients[index].isAlive = true
        world.clients[index].isAsleep = false
        world.clients[index].isForeground = world.core.state(of: id) == .inactive
        world.clients[index].isQuit = false
        world.clients[index].hasGivenUp = false
        world.admit(id, index)
        begin(index)
    }

    private mutating func finish(_ index: Int) {
        world.clients[index].isAlive = false
        world.clients[index].isAsleep = false
        end(index)
        world.clients[index].isForeground = false
    }

    // MARK: Death

    /// The supervisor dies, and another takes over, which may die at once.
    mutating func die() {
        world.note("  the supervisor dies")
        // The messages of clients wait in their connections, and the ends of processes are found again.
        world.events = world.events.filter(\.isFromClient)
        loseSupervisor()
        repeat {
            world.replaceSupervisor()
            guard violation == nil, survives(deciding: []) else { return }
            world.persist()
        } while world.random.once(in: 4)
        carryOut()
        turn(initialFacts + [.timer])
    }
}

extension Event {
    fileprivate var isFromClient: Bool {
        switch self {
        case .message, .ended: true
        default: false
        }
    }
}
