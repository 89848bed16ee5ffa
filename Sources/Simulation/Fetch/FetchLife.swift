package import NightbellCore

/// A small world around a core, for the rules of fetches alone: clients that fetch, complete it or do not,
/// are opened, crash and are quit, a network that goes down, and a supervisor that dies between two turns.
/// `FetchWorld` measures how good the moments are; this finds mistakes.
package struct FetchLife: ~Copyable {
    /// The first violated rule.
    package private(set) var violation: Violation?
    private var steps = 0
    package private(set) var coverage = Coverage()

    package struct Coverage: Sendable, Equatable {
        package var fetches = 0
        package var launches = 0
        package var completions = 0
        package var terminations = 0
        package var deaths = 0
        package var continued = 0

        package init() {}
    }

    private struct Client {
        let registration: Registration
        var id: ClientID?
        var interval: FetchInterval?
        var isAlive = false
        var isForeground = false
        var isAsleep = false
        var isQuit = false
        var hasGivenUp = false
        var isLaunchedForFetch = false
        var fetch: (wakeID: UInt64, until: Instant)?
        /// When the last fetch began, or it last left the foreground.
        var floorBase: Instant
        /// When it completes the fetch that is going on.
        var completesAt: Instant?
    }

    private let settings: Settings
    private let mutation: Mutation?
    private var core: Supervision
    private var log = SimulatedRecoveryLog()
    private var random: SplitMix64
    private var now = Instant(nanoseconds: 1_000_000_000_000)
    private var clients: [Client] = []
    private var actions = ActionBuffer()
    private var events: [Event] = []
    private var asked: [UInt64: (index: Int, message: ClientMessage)] = [:]
    private var requests: UInt64 = 0
    private var network: Bool?

    package init(seed: UInt64, mutation: Mutation? = nil) {
        var settings = Settings()
        settings.launches.relaunches = 200
        self.settings = settings
        self.mutation = mutation
        random = SplitMix64(seed: seed)
        core = Supervision(settings: settings, mutation: mutation)
        core.notesChanges = true
        for index in 0..<3 {
            guard let identifier = ClientIdentifier("client.\(index)") else { continue }
            var registration = Registration(identifier: identifier, user: 1_000, modes: .fetch)
            registration.isLaunchable = true
            clients.append(Client(registration: registration, floorBase: now))
        }
    }

    package mutating func run(steps: Int) {
        turn([.fact(.wallClock(offset: .seconds(1_750_000_000)))])
        for _ in 0..<steps where violation == nil {
            step()
            self.steps += 1
        }
    }

    private mutating func require(_ condition: Bool, _ words: String) {
        guard !condition, violation == nil else { return }
        violation = Violation(invariant: .fetches, step: steps, at: now, message: words)
    }

    private func name(_ index: Int) -> String { "client.\(index)" }

    // MARK: Time and chance

    private mutating func step() {
        var next = now + random.duration(upTo: .seconds(1_200))
        if let deadline = core.nextDeadline { next = min(next, max(deadline, now)) }
        for client in clients { if let instant = client.completesAt { next = min(next, max(instant, now)) } }
        now = next
        if core.nextDeadline.map({ $0 <= now }) ?? false { turn([.timer]) }
        for index in clients.indices {
            if let instant = clients[index].completesAt, instant <= now { complete(index) }
        }
        if random.once(in: 3) { happen(random.below(clients.count)) }
        if random.once(in: 12) {
            network = random.once(in: 4) ? nil : random.once(in: 2)
            turn([.fact(.network(network.map { NetworkFact(fingerprint: 1, isUp: $0) }))])
        }
        if random.once(in: 20) { die() }
        checkOverruns()
    }

    private mutating func complete(_ index: Int) {
        clients[index].completesAt = nil
        guard let fetch = clients[index].fetch, clients[index].isAlive, !clients[index].isAsleep else {
            return
        }
        let result = FetchResult.allCases[random.below(FetchResult.allCases.count)]
        say(.fetchDone(wakeID: fetch.wakeID, result), index)
    }

    private mutating func happen(_ index: Int) {
        guard let id = clients[index].id else {
            clients[index].isQuit = false
            return turn([.registration(clients[index].registration, key(index))])
        }
        switch random.below(16) {
        case 0...3:
            if clients[index].isAsleep { turn([.command(.wake, id, key(index))]) }
            guard clients[index].isAlive else { return }
            say(clients[index].isForeground ? .enterBackground : .enterForeground, index)
        case 4...6:
            if clients[index].isForeground { say(.enterBackground, index) }
        case 7, 8:
            guard clients[index].isAlive, !clients[index].isAsleep else { return }
            let intervals: [FetchInterval] = [
                .minimum, .atLeast(.seconds(3_600)), .atLeast(.seconds(5_400)), .never,
            ]
            say(.setMinimumFetchInterval(intervals[random.below(intervals.count)]), index)
        case 9...11:
            // A fetch that it was not told of.
            guard clients[index].isAlive, !clients[index].isAsleep else { return }
            say(.fetchDone(wakeID: 1_000_000, .newData), index)
        case 12, 13:
            if clients[index].isAlive { turn([.ended(id, .failed)]) }
        case 14:
            if random.once(in: 3) {
                clients[index].isQuit = true
                turn([.command(.quit, id, key(index))])
            }
        default:
            // The user does nothing for hours.
            now = now + .seconds(1)
        }
    }

    private mutating func key(_ index: Int) -> RequestKey {
        requests += 1
        return RequestKey(connection: UInt64(index + 1), request: requests)
    }

    private mutating func say(_ message: ClientMessage, _ index: Int) {
        guard let id = clients[index].id, clients[index].isAlive else { return }
        let key = key(index)
        asked[key.request] = (index, message)
        turn([.message(message, from: id, key)])
    }

    // MARK: Turns

    /// Feeds events, and whatever follows from them, each round in a turn of its own.
    private mutating func turn(_ first: [Event]) {
        events = first
        while !events.isEmpty, violation == nil {
            let batch = events
            events = []
            actions.removeAll()
            for event in batch { core.handle(event, at: now, into: &actions) }
            core.endTurn(at: now, into: &actions)
            carryOut()
        }
    }

    private mutating func carryOut() {
        core.persistChanges(in: &log)
        log.flush()
        let all = actions.actions
        for action in all { carryOut(action, among: all) }
        log.flush()
    }

    private func index(of id: ClientID) -> Int? { clients.firstIndex { $0.id == id } }

    private mutating func carryOut(_ action: Action, among all: [Action]) {
        switch action {
        case .registered(let id, let key):
            let index = Int(key.connection) - 1
            clients[index].id = id
            clients[index].isAlive = true
            clients[index].hasGivenUp = false
            admit(id, index)
        case .rejoined(let id, _):
            guard let index = index(of: id) else { return }
            clients[index].isAlive = true
            admit(id, index)
        case .answer(let answer, _, let key):
            take(answer, key)
        case .notify(let id, let notice):
            if let index = index(of: id) { take(notice, id, index) }
        case .freeze(let id, let epoch):
            guard let index = index(of: id) else { return }
            require(clients[index].fetch == nil, "\(name(index)) is suspended while it fetches")
            clients[index].isAsleep = true
            events.append(.frozen(id, epoch: epoch))
        case .thaw(let id):
            if let index = index(of: id) { clients[index].isAsleep = false }
        case .kill(let id, let reason):
            guard let index = index(of: id) else { return }
            if reason == .fetchOverran { coverage.terminations += 1 }
            clients[index].isAlive = false
            events.append(.ended(id, .failed))
        case .makeDormant(let id):
            guard let index = index(of: id) else { return }
            end(index)
            if let record = log.written[id] { log.makeDormant(id, record) }
        case .launch(let id):
            guard let index = index(of: id) else { return }
            if let record = log.written[id] { log.launch(id, record) }
            events.append(.rejoined(id, clients[index].registration, key(index)))
        case .forget(let id, let identifier, _):
            guard let index = index(of: id) else { return }
            log.forget(id, identifier, of: core)
            let wants = clients[index].interval.map { $0 != .never } ?? false
            let mayGo = clients[index].isQuit || clients[index].hasGivenUp || !wants
            require(mayGo, "\(name(index)) is forgotten, and wants to fetch")
            end(index)
            clients[index].id = nil
        case .trace(let id, let trace):
            if let index = index(of: id) { take(trace, id, index, among: all) }
        case .refuseRegistration, .handedOver, .commandAnswer, .arm, .armPastEnd, .beginOffload, .endOffload,
            .ping, .lookForAnswer, .close, .checkFreeze, .declared, .storeState, .dropState, .inspectPaths:
            break
        }
    }

    private mutating func end(_ index: Int) {
        clients[index].isAlive = false
        clients[index].isAsleep = false
        if clients[index].isForeground { clients[index].floorBase = now }
        clients[index].isForeground = false
        clients[index].fetch = nil
        clients[index].completesAt = nil
        clients[index].isLaunchedForFetch = false
    }

    private mutating func admit(_ id: ClientID, _ index: Int) {
        let identifier = clients[index].registration.identifier
        let record = SimulatedRecoveryLog.ClientRecord(
            registration: clients[index].registration, registeredAt: now,
            ownership: core.owner(of: identifier)?.number ?? 0)
        log.admit(id, record, canRepeat: false, of: core)
    }

    // MARK: Rules

    private mutating func take(_ answer: Answer, _ key: RequestKey) {
        guard let (index, message) = asked.removeValue(forKey: key.request) else { return }
        switch message {
        case .enterForeground where answer == .done:
            clients[index].isForeground = true
        case .enterBackground where answer == .done && clients[index].isForeground:
            clients[index].isForeground = false
            clients[index].floorBase = max(clients[index].floorBase, now)
        case .setMinimumFetchInterval(let interval):
            require(answer == .done, "\(name(index)) cannot set an interval: \(answer)")
            if clients[index].interval == nil, interval != .never { clients[index].floorBase = now }
            if clients[index].interval != nil || interval != .never { clients[index].interval = interval }
        case .fetchDone(1_000_000, _):
            require(answer == .refused(.noFetch), "\(name(index)) completes a fetch that it was not told of")
        case .fetchDone:
            require(answer == .done, "\(name(index)) cannot complete its fetch: \(answer)")
        default:
            break
        }
    }

    private mutating func take(_ notice: Notice, _ id: ClientID, _ index: Int) {
        switch notice {
        case .prepareToSuspend(let epoch, _):
            tell(.readyToSuspend(epoch: epoch, notIdle: []), id)
        case .didEnterBackground:
            tell(.backgroundEntered, id)
        case .wake(let wake):
            log.storeToldWake(wake.wakeID, of: id)
            tell(.wakeDone(wakeID: wake.wakeID), id)
            if wake.reasons.contains(.fetch) { beginFetch(wake, index) }
        case .willTerminate:
            events.append(.ended(id, .succeeded))
        case .suspendCancelled, .suspended, .backgroundTimeExpiring:
            break
        }
    }

    /// Needs no answer.
    private mutating func tell(_ message: ClientMessage, _ id: ClientID) {
        events.append(.message(message, from: id, RequestKey(connection: 0, request: 0)))
    }

    private mutating func beginFetch(_ wake: Wake, _ index: Int) {
        coverage.fetches += 1
        require(wake.fetchBudget == settings.budgets.fetch, "a fetch has another budget")
        require(clients[index].fetch == nil, "\(name(index)) fetches already")
        if !clients[index].isLaunchedForFetch { checkMoment(index) }
        clients[index].isLaunchedForFetch = false
        clients[index].fetch = (wake.wakeID, now + settings.budgets.fetch)
        clients[index].floorBase = now
        clients[index].completesAt = random.once(in: 4) ? nil : now + random.duration(upTo: .seconds(29))
    }

    private mutating func checkMoment(_ index: Int) {
        require(!clients[index].isForeground, "\(name(index)) is fetched in the foreground")
        require(network ?? true, "\(name(index)) is fetched without a network")
        var floor = settings.fetch.minimumInterval
        switch clients[index].interval {
        case .atLeast(let interval)?: floor = max(floor, interval)
        case .minimum?: break
        case .never?, nil: require(false, "\(name(index)) is fetched, and does not want to be")
        }
        require(now.since(clients[index].floorBase) >= floor, "\(name(index)) is fetched before its floor")
    }

    private mutating func take(_ trace: Trace, _ id: ClientID, _ index: Int, among all: [Action]) {
        switch trace {
        case .gaveUp:
            clients[index].hasGivenUp = true
        case .launching(let reasons) where reasons.contains(.fetch):
            coverage.launches += 1
            checkMoment(index)
            clients[index].isLaunchedForFetch = true
        case .fetchEnded(let result):
            guard let fetch = clients[index].fetch.take() else { return }
            clients[index].completesAt = nil
            if result != nil { coverage.completions += 1 }
            let isOver = result == nil && now >= fetch.until
            if isOver, clients[index].isAlive, !clients[index].isForeground, !clients[index].isQuit {
                let isKilled = all.contains(.kill(id, .fetchOverran))
                require(isKilled, "\(name(index)) does not complete a fetch, and goes on")
            }
        default:
            break
        }
    }

    private mutating func checkOverruns() {
        for index in clients.indices {
            guard let fetch = clients[index].fetch, core.nextDeadline.map({ $0 > now }) ?? true else {
                continue
            }
            require(now < fetch.until, "\(name(index)) fetches for too long")
        }
    }

    // MARK: Death

    /// The supervisor dies between two turns, and another takes over.
    private mutating func die() {
        coverage.deaths += 1
        network = nil
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
        core.endTurn(at: now, into: &actions)
        carryOut()
        // Nothing has told the new one of the network yet.
        turn([.fact(.wallClock(offset: .seconds(1_750_000_000)))] + events)
        for index in clients.indices {
            guard let id = clients[index].id, let view = core.view(of: id, at: now) else { continue }
            let interval = view.fetch?.state.interval
            require(interval == clients[index].interval, "\(name(index)) has lost its interval")
            let isRunning = view.fetch?.isRunning ?? false
            if clients[index].fetch != nil { coverage.continued += 1 }
            require(isRunning == (clients[index].fetch != nil), "\(name(index)) has lost its fetch")
        }
    }
}
