package import NightbellCore

/// A small world around a core, for the rules of observations alone: clients that observe the machine's
/// location, accessories, Bluetooth and transfers, fall asleep, crash and are quit; devices that come and go,
/// sources that know nothing, and a supervisor that dies, also before it has told what it knows.
package struct ObservationLife: ~Copyable {
    /// The first violated rule.
    package private(set) var violation: Violation?
    private var steps = 0
    package private(set) var coverage = Coverage()

    package struct Coverage: Sendable, Equatable {
        package var occurrences = 0
        package var wakes = 0
        package var launches = 0
        package var afterQuit = 0
        package var deaths = 0
        package var untoldAtDeath = 0
        package var refusals = 0

        package init() {}
    }

    /// An observation, by the rules.
    struct Watch {
        let subject: Subject
        var position: (known: Position, since: Instant)?
        var isInside: Bool?
        var presence: Presence?
        /// The number of the last end of the transfers.
        var finish: UInt64 = 0
        /// The occurrence that its client has to be told.
        var untold: Occurrence?
    }

    struct Client {
        let registration: Registration
        var id: ClientID?
        var isAlive = false
        var isAsleep = false
        var isForeground = false
        var isQuit = false
        var hasGivenUp = false
        var lastWakeID: UInt64 = 0
        /// By name.
        var watches: [String: Watch] = [:]
        /// The wakes that were decided for it, by their reasons.
        var wakes: [Counter: UInt64] = [:]
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
    private var asked: [UInt64: (index: Int, message: ClientMessage)] = [:]
    private var requests: UInt64 = 0
    /// The facts that the supervisor was told.
    var facts = Facts()

    package init(seed: UInt64, mutation: Mutation? = nil) {
        var settings = Settings()
        settings.launches.relaunches = 200
        settings.quotas.observationsPerClient = 4
        self.settings = settings
        self.mutation = mutation
        random = SplitMix64(seed: seed)
        core = Supervision(settings: settings, mutation: mutation)
        core.notesChanges = true
        let modes: [Modes] = [
            .location, [.bluetoothCentral, .externalAccessory],
            [.location, .bluetoothCentral, .externalAccessory], [],
        ]
        for (index, modes) in modes.enumerated() {
            guard let identifier = ClientIdentifier("client.\(index)") else { continue }
            var registration = Registration(identifier: identifier, user: 1_000, modes: modes)
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
        violation = Violation(invariant: .observations, step: steps, at: now, message: words)
    }

    func name(_ index: Int) -> String { "client.\(index)" }

    // MARK: Time and chance

    private mutating func step() {
        var next = now + random.duration(upTo: .seconds(120))
        if let deadline = core.nextDeadline { next = min(next, max(deadline, now)) }
        now = next
        if core.nextDeadline.map({ $0 <= now }) ?? false { turn([.timer]) }
        switch random.below(8) {
        case 0...3: turn([change()])
        case 4: if random.once(in: 4) { die() }
        default: happen(random.below(clients.count))
        }
    }

    private mutating func happen(_ index: Int) {
        guard let id = clients[index].id else {
            clients[index].isQuit = false
            return turn([.registration(clients[index].registration, key(index))])
        }
        switch random.below(12) {
        case 0...2:
            if clients[index].isAsleep { turn([.command(.wake, id, key(index))]) }
            say(clients[index].isForeground ? .enterBackground : .enterForeground, index)
        case 3:
            if clients[index].isForeground { say(.enterBackground, index) }
        case 4...6:
            if clients[index].isAsleep { turn([.command(.wake, id, key(index))]) }
            let subject = Facts.subjects[random.below(Facts.subjects.count)]
            say(.observe(name: "watch.\(random.below(6))", subject), index)
        case 7:
            say(.stopObserving(name: "watch.\(random.below(6))"), index)
        case 8, 9:
            if clients[index].isAlive { turn([.ended(id, .failed)]) }
        case 10:
            guard random.once(in: 2) else { return }
            clients[index].isQuit = true
            if !clients[index].isAlive { end(index) }
            turn([.command(.quit, id, key(index))])
        default:
            if !clients[index].isAlive {
                turn([.registration(clients[index].registration, key(index))])
            }
        }
    }

    private mutating func key(_ index: Int) -> RequestKey {
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
            let before = log
            core.persistChanges(in: &log)
            guard case .fact? = batch.first, random.once(in: 10) else {
                countWakes()
                carryOut()
                continue
            }
            if random.once(in: 2) { countWakes() } else { log = before.flushing(log) }
            return die()
        }
        checkTold()
    }

    private mutating func carryOut() {
        log.flush()
        let all = actions.actions
        for action in all { carryOut(action) }
        compare()
        for case .notify(let id, .wake(let wake)) in all {
            if let index = index(of: id) { tell(wake, id, index) }
        }
        log.flush()
    }

    func index(of id: ClientID) -> Int? { clients.firstIndex { $0.id == id } }

    private mutating func carryOut(_ action: Action) {
        switch action {
        case .registered(let id, let key):
            let index = Int(key.connection) - 1
            clients[index].id = id
            clients[index].lastWakeID = 0
            clients[index].wakes = [:]
            begin(id, index, isForeground: true)
        case .rejoined(let id, _):
            guard let index = index(of: id) else { return }
            // Either it was launched, or its user has started it.
            begin(id, index, isForeground: core.state(of: id) == .inactive)
        case .answer(let answer, _, let key):
            take(answer, key)
        case .notify(let id, let notice):
            if let index = index(of: id) { take(notice, id, index) }
        case .freeze(let id, let epoch):
            guard let index = index(of: id) else { return }
            clients[index].isAsleep = true
            events.append(.frozen(id, epoch: epoch))
        case .thaw(let id):
            if let index = index(of: id) { clients[index].isAsleep = false }
        case .kill(let id, _):
            guard let index = index(of: id) else { return }
            clients[index].isAlive = false
            events.append(.ended(id, .failed))
        case .makeDormant(let id):
            guard let index = index(of: id) else { return }
            end(index)
            if let record = log.written[id] { log.makeDormant(id, record) }
        case .launch(let id):
            guard let index = index(of: id) else { return }
            coverage.launches += 1
            if clients[index].isQuit { coverage.afterQuit += 1 }
            clients[index].isQuit = false
            if let record = log.written[id] { log.launch(id, record) }
            events.append(.rejoined(id, clients[index].registration, key(index)))
        case .forget(let id, let identifier, _):
            guard let index = index(of: id) else { return }
            log.forget(id, identifier, of: core)
            let client = clients[index]
            let left = client.isQuit ? client.locationWatches : client.launchingWatches
            require(left.isEmpty, "\(name(index)) is forgotten, and observes")
            end(index)
            clients[index].watches = [:]
            clients[index].id = nil
        case .refuseRegistration, .handedOver, .commandAnswer, .arm, .armPastEnd, .beginOffload, .endOffload,
            .ping, .lookForAnswer, .close, .checkFreeze, .declared, .storeState, .dropState, .inspectPaths,
            .trace:
            break
        }
    }

    private mutating func begin(_ id: ClientID, _ index: Int, isForeground: Bool) {
        clients[index].isAlive = true
        clients[index].isAsleep = false
        clients[index].isForeground = isForeground
        clients[index].isQuit = false
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
        guard clients[index].isQuit else { return }
        // Earlier occurrences are no reason to launch it.
        clients[index].watches = clients[index].locationWatches
        for name in clients[index].watches.keys { clients[index].watches[name]?.untold = nil }
    }

    // MARK: What clients hear

    private mutating func take(_ answer: Answer, _ key: RequestKey) {
        guard let (index, message) = asked.removeValue(forKey: key.request) else { return }
        switch message {
        case .enterForeground where answer == .done:
            clients[index].isForeground = true
        case .enterBackground where answer == .done:
            clients[index].isForeground = false
        case .observe(let name, let subject):
            if answer != .done { coverage.refusals += 1 }
            let isKnown = clients[index].watches[name] != nil
            let isDeclared = clients[index].registration.modes.contains(subject.mode)
            let isFull = !isKnown && clients[index].watches.count >= settings.quotas.observationsPerClient
            let expected: Answer =
                !isDeclared
                ? .refused(.modeRequired(subject.mode)) : isFull ? .refused(.tooManyObservations) : .done
            require(answer == expected, "\(self.name(index)) observes \(subject), and is answered \(answer)")
            guard answer == .done, clients[index].watches[name]?.subject != subject else { return }
            clients[index].watches[name] = Watch(subject: subject)
        case .stopObserving(let name):
            require(answer == .done, "\(self.name(index)) cannot end an observation")
            clients[index].watches[name] = nil
        default:
            break
        }
    }

    private mutating func take(_ notice: Notice, _ id: ClientID, _ index: Int) {
        switch notice {
        case .prepareToSuspend(let epoch, _):
            answer(.readyToSuspend(epoch: epoch, notIdle: []), id)
        case .didEnterBackground:
            answer(.backgroundEntered, id)
        case .willTerminate:
            events.append(.ended(id, .succeeded))
        case .wake, .suspendCancelled, .suspended, .backgroundTimeExpiring:
            break
        }
    }

    /// Needs no answer.
    private mutating func answer(_ message: ClientMessage, _ id: ClientID) {
        events.append(.message(message, from: id, RequestKey(connection: 0, request: 0)))
    }

    private mutating func tell(_ wake: Wake, _ id: ClientID, _ index: Int) {
        require(!clients[index].isAsleep, "\(name(index)) is told while it is stopped")
        log.storeToldWake(wake.wakeID, of: id)
        answer(.wakeDone(wakeID: wake.wakeID), id)
        guard !wake.isRepeated || wake.wakeID > clients[index].lastWakeID else { return }
        clients[index].lastWakeID = wake.wakeID
        coverage.wakes += 1
        var reasons: WakeReasons = []
        for observed in actions.observed[wake.observed] {
            guard let watch = clients[index].watches[observed.name] else {
                return require(false, "\(name(index)) is told of \(observed.name), which it does not observe")
            }
            reasons.formUnion(watch.subject.wakeReason)
            coverage.occurrences += 1
            require(
                watch.untold == observed.occurrence,
                "\(name(index)) is told \(observed.occurrence) instead of \(watch.untold as Any)")
            clients[index].watches[observed.name]?.untold = nil
        }
        require(
            wake.reasons.intersection(.ofObservations) == reasons,
            "\(name(index)) is woken because of \(TraceFormat.words(wake.reasons)), and told of nothing")
    }

    /// Once all has been done that follows from an event.
    private mutating func checkTold() {
        for index in clients.indices {
            guard let id = clients[index].id, let view = core.view(of: id, at: now) else { continue }
            for counter in Self.reasons.map(\.counter) {
                require(
                    view.counters[counter] == clients[index].wakes[counter, default: 0],
                    "\(name(index)) has \(view.counters[counter]) \(counter.name)")
            }
            // It has failed, and is launched after a pause.
            if view.state == .dormant, view.launches.notBefore != nil { continue }
            for (watch, known) in clients[index].watches where clients[index].wants(known.subject) {
                require(known.untold == nil, "\(name(index)) is not told what has happened to \(watch)")
            }
        }
    }

    // MARK: Death

    /// The supervisor dies, between two turns or before it has done what it has decided, and another takes
    /// over.
    mutating func die() {
        coverage.deaths += 1
        for client in clients where client.watches.values.contains(where: { $0.untold != nil }) {
            coverage.untoldAtDeath += 1
        }
        events = []
        _ = log.die()
        var snapshot = log.snapshot
        log.finishForgetting(&snapshot)
        for index in snapshot.clients.indices {
            guard let client = self.index(of: snapshot.clients[index].id) else { continue }
            snapshot.clients[index].execution = clients[client].isAsleep ? .stopped : .running
        }
        let finishes = facts.finishes
        facts = Facts()
        facts.finishes = finishes
        actions.removeAll()
        do throws(RecoverySnapshotError) {
            core = try Supervision(
                settings: settings, restoring: snapshot, mutation: mutation, at: now, into: &actions)
        } catch {
            return require(false, "the records cannot be restored: \(error)")
        }
        core.endTurn(at: now, into: &actions)
        countWakes()
        core.persistChanges(in: &log)
        if random.once(in: 4) { return die() }
        carryOut()
        // The transfer process is another one as well, and reports all.
        turn(events + finishes.keys.sorted().map { .fact(ended($0)) } + [.timer])
    }
}

extension Subject {
    /// The reason of a wake that tells of it.
    fileprivate var wakeReason: WakeReasons {
        switch self {
        case .location, .region: .location
        case .bluetoothDevice, .characteristic: .bluetooth
        case .accessory: .device
        case .transfers: .transfer
        case .pushes: .push
        }
    }
}
