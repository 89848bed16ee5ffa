package import NightbellCore

/// The rules of observations alone: clients that observe the machine's location, accessories, Bluetooth and
/// transfers, fall asleep, crash and are quit; devices that come and go, sources that know nothing, and a
/// supervisor that dies, also before it has told what it knows.
package struct ObservationLife: Life {
    package static let mutations: [Mutation] = [
        .observesUndeclared, .observesInBackground, .tellsOtherObservers, .forgetsOccurrences,
        .takesUnknownForAbsent, .forgetsObservers, .relaunchesQuitForAnything, .restoresWithoutObservations,
        .restoresUnknownObservations, .repeatsTransfers, .forgetsTransfers,
        .hurriesDiscretionaryTransfers, .holdsDiscretionaryTransfers,
    ]

    package var world: SmallWorld
    package private(set) var coverage = Coverage()

    package struct Coverage: Sendable, Equatable {
        package var occurrences = 0
        package var wakes = 0
        package var launches = 0
        package var afterQuit = 0
        package var deaths = 0
        package var untoldAtDeath = 0
        package var refusals = 0
        package var held = 0
        package var toldTogether = 0

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
        /// The occurrence that its client has to be told …
        var untold: Occurrence?
        /// … if it sleeps, by then; nil: at once.
        var heldUntil: Instant?
    }

    /// A client's observations, by name, …
    var watches: [[String: Watch]]
    /// … and the wakes that were decided for it, by their reasons.
    var wakes: [[Counter: UInt64]]
    /// The facts that the supervisor was told.
    var facts = Facts()
    /// By client, of the last end of its transfers.
    var mayWait: [Bool]
    /// The clients that were thawed or launched in this turn.
    private var wokenFrom: Set<Int> = []

    package init(seed: UInt64, mutation: Mutation?, narrator: ((String) -> Void)?) {
        var settings = Settings()
        settings.launches.relaunches = 200
        settings.quotas.observationsPerClient = 4
        let clients = SmallWorld.registrations([
            .location, [.bluetoothCentral, .externalAccessory],
            [.location, .bluetoothCentral, .externalAccessory], [],
        ])
        watches = clients.map { _ in [:] }
        wakes = clients.map { _ in [:] }
        mayWait = clients.map { _ in false }
        world = SmallWorld(
            seed: seed, .observations, settings, clients: clients, mutation: mutation, narrator: narrator)
    }

    // MARK: Chance

    package mutating func step() {
        passTime(upTo: .seconds(120))
        turn([])
        switch world.random.below(8) {
        case 0...3: turn([change()])
        case 4: if world.random.once(in: 4) { die() }
        default: happen(world.random.below(watches.count))
        }
    }

    private mutating func happen(_ index: Int) {
        guard let id = world.clients[index].id else { return register(index) }
        let client = world.clients[index]
        switch world.random.below(12) {
        case 0...2:
            if client.isAsleep { command(.wake, id, index) }
            say(world.clients[index].isForeground ? .enterBackground : .enterForeground, index)
        case 3:
            if client.isForeground { say(.enterBackground, index) }
        case 4...6:
            if client.isAsleep { command(.wake, id, index) }
            let subject = Facts.subjects[world.random.below(Facts.subjects.count)]
            say(.observe(name: "watch.\(world.random.below(6))", subject), index)
        case 7:
            say(.stopObserving(name: "watch.\(world.random.below(6))"), index)
        case 8, 9:
            if client.isAlive { turn([.ended(id, .failed)]) }
        case 10:
            guard world.random.once(in: 2) else { return }
            if !client.isAlive { keepLocation(index) }
            command(.quit, id, index)
        default:
            if !client.isAlive { register(index) }
        }
    }

    /// Of the observations of a client that its user has quit. Earlier occurrences are no reason to launch it.
    private mutating func keepLocation(_ index: Int) {
        watches[index] = locationWatches(index)
        for name in watches[index].keys { watches[index][name]?.untold = nil }
    }

    // MARK: What the supervisor does

    package mutating func survives(deciding batch: [Event]) -> Bool {
        guard case .fact? = batch.first, world.random.once(in: 10) else {
            countWakes()
            return true
        }
        // It dies before it has done what it has decided, or even before it has stored all of it.
        let before = world.log
        world.persist()
        if world.random.once(in: 2) { countWakes() } else { world.log = before.flushing(world.log) }
        return false
    }

    package mutating func note(_ action: Action, of index: Int) {
        switch action {
        case .thaw: wokenFrom.insert(index)
        case .launch:
            coverage.launches += 1
            if world.clients[index].isQuit { coverage.afterQuit += 1 }
        case .forget:
            let left = world.clients[index].isQuit ? locationWatches(index) : launchingWatches(index)
            world.require(left.isEmpty, "\(world.name(index)) is forgotten, and observes")
        default: break
        }
    }

    package mutating func end(_ index: Int) {
        if world.clients[index].isQuit { keepLocation(index) }
    }

    package mutating func leave(_ index: Int) {
        watches[index] = [:]
        wakes[index] = [:]
    }

    package mutating func take(_ answer: Answer, to message: ClientMessage, _ index: Int) {
        switch message {
        case .observe(let name, let subject):
            if answer != .done { coverage.refusals += 1 }
            let isDeclared = world.clients[index].registration.modes.contains(subject.mode)
            let isFull =
                watches[index][name] == nil
                && watches[index].count >= world.settings.quotas.observationsPerClient
            let expected: Answer =
                !isDeclared
                ? .refused(.modeRequired(subject.mode)) : isFull ? .refused(.tooManyObservations) : .done
            world.require(
                answer == expected, "\(world.name(index)) observes \(subject), and is answered \(answer)")
            guard answer == .done, watches[index][name]?.subject != subject else { return }
            watches[index][name] = Watch(subject: subject)
        case .stopObserving(let name):
            world.require(answer == .done, "\(world.name(index)) cannot end an observation")
            watches[index][name] = nil
        default:
            break
        }
    }

    package mutating func settle() {
        compare()
        checkHeld()
    }

    /// A client that sleeps is not woken for transfers that can wait, unless another one is.
    private mutating func checkHeld() {
        let woken = world.actions.actions.compactMap { action -> (index: Int, wake: Wake)? in
            guard case .notify(let id, .wake(let wake)) = action else { return nil }
            return world.index(of: id).map { ($0, wake) }
        }
        for (index, wake) in woken where wake.reasons == .transfer && !wake.isRepeated {
            let told = world.actions.observed[wake.observed].compactMap { watches[index][$0.name] }
            guard wokenFrom.contains(index), told.allSatisfy({ $0.heldUntil.map { $0 > world.now } ?? false })
            else { continue }
            coverage.toldTogether += 1
            world.require(woken.count > 1, "\(world.name(index)) is woken for transfers that can wait")
        }
        wokenFrom = []
        guard !woken.isEmpty else { return }
        for (index, client) in world.clients.enumerated() where client.isAsleep {
            world.require(
                !watches[index].values.contains { $0.heldUntil != nil && $0.untold != nil },
                "\(world.name(index)) sleeps on while others are woken")
        }
    }

    package mutating func take(_ wake: Wake, _ index: Int) -> Bool {
        guard !wake.isRepeated || wake.wakeID > world.clients[index].lastWakeID else { return true }
        coverage.wakes += 1
        var reasons: WakeReasons = []
        for observed in world.actions.observed[wake.observed] {
            guard let watch = watches[index][observed.name] else {
                world.require(
                    false, "\(world.name(index)) is told of \(observed.name), which it does not observe")
                return true
            }
            reasons.formUnion(watch.subject.wakeReason)
            coverage.occurrences += 1
            world.require(
                watch.untold == observed.occurrence,
                "\(world.name(index)) is told \(observed.occurrence) instead of \(watch.untold as Any)")
            watches[index][observed.name]?.untold = nil
            watches[index][observed.name]?.heldUntil = nil
        }
        world.require(
            wake.reasons.intersection(.ofObservations) == reasons,
            "\(world.name(index)) is woken because of \(TraceFormat.words(wake.reasons)), and told of nothing"
        )
        return true
    }

    package mutating func check() {
        for (index, client) in world.clients.enumerated() {
            guard let id = client.id, let view = world.core.view(of: id, at: world.now) else { continue }
            for (_, counter) in Self.reasons
            where view.counters[counter] != wakes[index][counter, default: 0] {
                world.require(
                    false, "\(world.name(index)) has \(view.counters[counter]) \(counter.name)")
            }
            // It has failed, and is launched after a pause.
            if view.state == .dormant, view.launches.notBefore != nil { continue }
            for (name, watch) in watches[index] where watch.untold != nil && client.wants(watch.subject) {
                if let until = watch.heldUntil, until > world.now, !world.isRunning(index) {
                    coverage.held += 1
                    continue
                }
                world.require(false, "\(world.name(index)) is not told what has happened to \(name)")
            }
        }
    }

    package mutating func loseSupervisor() {
        coverage.deaths += 1
        for watches in watches where watches.values.contains(where: { $0.untold != nil }) {
            coverage.untoldAtDeath += 1
        }
        let finishes = facts.finishes
        facts = Facts()
        facts.finishes = finishes
    }

    /// The transfer process is another one as well, and reports all.
    package var initialFacts: [Event] { facts.finishes.keys.sorted().map { .fact(ended($0)) } }
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
