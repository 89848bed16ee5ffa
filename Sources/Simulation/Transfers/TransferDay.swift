package import NightbellCore
import TransferModel

/// The plan of transfers that can wait, over a day or more of one machine: the supervisor's core, and the queue and
/// the subscriptions of the transfer process, on a virtual clock. `ObservationLife` has the rules of the core's
/// part; this measures how good the moments are.
package struct TransferDay: Life {
    /// How clients ask for transfers.
    package enum Policy: Sendable {
        /// They can wait.
        case planned
        /// They cannot, as a client asks by default.
        case atOnce
    }

    package static let mutations: [Mutation] = []

    static let user: UserID = 1_000
    static let session = "backup"
    /// In bytes per second, of all transfers together.
    static let bandwidth = 2_500_000.0
    /// The clock on the wall, when the elapsed time is 0.
    static let epoch: Int64 = 1_790_000_000
    private static let interval: Int64 = 86_400

    /// A transfer that is not released.
    struct Transfer {
        let client: Int
        let size: Double
        let asked: Instant
        var received = 0.0
        var isRunning = false
        var isFinished: Bool { received >= size }
    }

    /// A client's session.
    struct Backlog {
        var transfers: Set<TaskID> = []
        var ends: UInt64 = 0
        /// Ends of which it has not been told, and the first of them.
        var untold: (count: Int, since: Instant)?
    }

    package var world: SmallWorld
    package private(set) var tally = TransferTally()
    let policy: Policy
    private let subscribers: Range<Int>
    private let end: Instant
    private let start: Instant
    private var day: DrawnDay
    private var hindrances: [DrawnDay.Hindrance: Int] = [:]
    var queue = TransferQueue(.init())
    private var plan: SubscriptionPlan
    var transfers: [TaskID: Transfer] = [:]
    var backlogs: [Backlog]
    private var lastTask: Int64 = 0
    /// Until then bytes are counted.
    private var counted: Instant
    /// The supervisor knows that transfers wait.
    private var isWaitKnown = false
    private var wakes = WakeInstant()

    /// The reasons for which clients were woken at an instant.
    private struct WakeInstant {
        var instant: Instant?
        var isForTransfers = false
        var isForOthers = false
    }

    package init(seed: UInt64, mutation: Mutation?, narrator: ((String) -> Void)?) {
        self.init(seed: seed, clients: 20, days: 1, .planned, mutation: mutation, narrator: narrator)
    }

    /// The same seed gives the same machine, clients and requests, whatever the policy.
    ///
    /// - Parameters:
    ///   - count: clients; a quarter of them subscribe to issues instead of asking for transfers.
    package init(
        seed: UInt64, clients count: Int, days: Int, _ policy: Policy, mutation: Mutation? = nil,
        narrator: ((String) -> Void)? = nil
    ) {
        self.policy = policy
        var settings = Settings()
        settings.launches.relaunches = 200
        settings.quotas.observationsPerUser = count
        subscribers = (count - count / 4)..<count
        var random = SplitMix64(seed: seed)
        var clients = SmallWorld.registrations(
            (0..<count).map { [subscribers] in subscribers.contains($0) ? .newsstand : .voip },
            user: Self.user)
        for index in 0..<subscribers.lowerBound {
            clients[index].keepAliveTimeout = .seconds(600 + random.below(1_200))
        }
        world = SmallWorld(
            seed: seed, .observations, settings, clients: clients, mutation: mutation, narrator: narrator)
        start = world.now
        counted = start
        end = start + .seconds(days * 86_400)
        day = DrawnDay(
            days: days, askers: 0..<subscribers.lowerBound, subscribers: subscribers, from: start, &random)
        backlogs = clients.map { _ in Backlog() }
        let wall = Self.wall(start)
        var begun: [String: Int64] = [:]
        var subscriptions: [String: Subscription] = [:]
        for index in subscribers {
            guard let url = TransferURL("https://issues.example/\(index)") else { continue }
            let name = clients[index].identifier.description
            begun[name] = wall - Int64(random.below(Int(Self.interval)))
            subscriptions[name] = Subscription(url, interval: Self.interval)
        }
        plan = SubscriptionPlan(begun: begun)
        plan.replace(with: subscriptions)
        tally.dueIssues = begun.values.reduce(0) { sum, begun in
            sum + Int((wall + Int64(days) * Self.interval - 1 - begun) / Self.interval)
        }
    }

    private static func wall(_ instant: Instant) -> Int64 { epoch + instant.nanoseconds / 1_000_000_000 }

    package var initialFacts: [Event] { facts }

    private var facts: [Event] {
        func has(_ hindrance: DrawnDay.Hindrance) -> Bool { hindrances[hindrance, default: 0] > 0 }
        return [
            .fact(.power(isOnBattery: has(.battery))),
            .fact(
                .network(
                    NetworkFact(
                        fingerprint: has(.meteredNetwork) ? 2 : 1, isUp: !has(.noNetwork),
                        isMetered: has(.meteredNetwork)))),
            .fact(.shortage(has(.shortage))),
        ]
    }

    /// By the machine, whatever the supervisor thinks.
    private var isGoodMoment: Bool { hindrances.values.allSatisfy { $0 == 0 } }

    // MARK: Time

    /// Runs all of it.
    package mutating func run() {
        turn(initialFacts)
        for index in world.clients.indices {
            register(index)
            if !subscribers.contains(index) {
                say(.observe(name: Self.session, .transfers(session: Self.session)), index)
            }
            say(.enterBackground, index)
        }
        while world.now < end || hasUntold && world.now < last, violation == nil { step() }
        countWakes()
        tally.goodShare /= Double(world.now.since(start).nanoseconds) / 1e9
        tally.finish()
    }

    /// Clients that wait to be told when all is over still have time for it.
    private var last: Instant { end + world.settings.discretionary.patience }
    private var hasUntold: Bool { backlogs.contains { $0.untold != nil } }

    package mutating func step() {
        let issue = plan.nextDue.map { due in
            Instant(nanoseconds: (due - Self.epoch) * 1_000_000_000)
        }
        passTime(to: [day.happenings.last?.instant, nextEnd, issue, world.now < end ? end : last])
        advance()
        beginIssues()
        serve()
        while let happening = day.next(at: world.now) { happen(happening) }
    }

    private var running: [TaskID] { transfers.filter(\.value.isRunning).keys.sorted() }

    /// The bytes per second of each transfer that runs.
    private var rate: Double { Self.bandwidth / Double(max(running.count, 1)) }

    /// When the next transfer ends, if nothing changes.
    private var nextEnd: Instant? {
        guard hindrances[.noNetwork, default: 0] == 0 else { return nil }
        return running.compactMap { transfers[$0] }.map { $0.size - $0.received }.min().map { bytes in
            counted + .nanoseconds(Int64((bytes / rate * 1e9).rounded(.up)))
        }
    }

    /// Moves the bytes of the time that has passed.
    private mutating func advance() {
        let seconds = Double(world.now.since(counted).nanoseconds) / 1e9
        counted = world.now
        guard seconds > 0 else { return }
        let running = running
        if isGoodMoment {
            tally.goodShare += seconds
            if running.isEmpty, transfers.values.contains(where: { !$0.isFinished }) {
                tally.idleSeconds += seconds
            }
        }
        guard hindrances[.noNetwork, default: 0] == 0 else { return }
        let bytes = rate * seconds
        for id in running {
            guard let transfer = transfers[id] else { continue }
            // The last byte comes within the nanosecond that was rounded up.
            let isLast = transfer.size - transfer.received <= bytes + 1
            let received = isLast ? transfer.size - transfer.received : bytes
            transfers[id]?.received += received
            if isGoodMoment { tally.goodBytes += received } else { tally.badBytes += received }
            if isLast { finish(id, transfer) }
        }
    }

    private mutating func finish(_ id: TaskID, _ transfer: Transfer) {
        transfers[id]?.isRunning = false
        queue.rest(id)
        tally.finished += 1
        tally.waits.append(Double(world.now.since(transfer.asked).nanoseconds) / 1e9)
        let client = transfer.client
        guard backlogs[client].transfers.allSatisfy({ transfers[$0]?.isFinished ?? true }) else { return }
        backlogs[client].ends += 1
        tally.ends += 1
        let first = backlogs[client].untold ?? (0, world.now)
        backlogs[client].untold = (first.count + 1, first.since)
        world.events.append(
            .fact(
                .transfers(
                    EndedTransfers(
                        of: Self.user, world.clients[client].registration.identifier,
                        session: subscribers.contains(client) ? Supervision.newsstand : Self.session,
                        number: backlogs[client].ends, mayWait: policy == .planned))))
    }

    // MARK: Requests

    private mutating func happen(_ happening: DrawnDay.Happening) {
        switch happening {
        case .begin(let hindrance):
            hindrances[hindrance, default: 0] += 1
            turn(facts)
        case .end(let hindrance):
            hindrances[hindrance, default: 0] -= 1
            turn(facts)
        case .wake(let client):
            wake(client)
        case .ask(let client, let sizes):
            wake(client)
            for size in sizes { add(size, client) }
            serve()
        case .failure(let client):
            guard let id = world.clients[client].id, world.clients[client].isAlive else { return }
            turn([.ended(id, .failed)])
        }
    }

    /// The transfer process has something new, though the core may have nothing to do.
    private mutating func serve() {
        follow()
        turn([])
    }

    private mutating func wake(_ client: Int) {
        guard let id = world.clients[client].id, world.clients[client].isAsleep else { return }
        command(.wake, id, client)
    }

    private mutating func add(_ size: Int64, _ client: Int) {
        lastTask += 1
        let id = TaskID(lastTask)
        tally.asked += 1
        transfers[id] = Transfer(client: client, size: Double(size), asked: world.now)
        backlogs[client].transfers.insert(id)
        queue.add(
            id, of: SessionID(Int64(client)), host: "host\(client % 3)", isDiscretionary: policy == .planned)
    }

    private mutating func beginIssues() {
        let now = Self.wall(world.now)
        for name in plan.due(at: now) {
            plan.begin(name, at: now)
            guard
                let client = subscribers.first(where: {
                    world.clients[$0].registration.identifier.description == name
                })
            else { continue }
            guard backlogs[client].transfers.isEmpty else { continue }
            tally.issues += 1
            add(Int64(5 + world.random.below(35)) * 1_000_000, client)
        }
    }

    /// The transfer process, and its supervisor, after a turn of the core.
    package mutating func follow() {
        if queue.hasDiscretionary != isWaitKnown {
            isWaitKnown = queue.hasDiscretionary
            world.events.append(.fact(.discretionaryTransfers(of: Self.user, isWaitKnown)))
        }
        let isGood = world.core.isGoodMomentForTransfers
        if queue.isGoodMoment, !isGood, policy == .planned {
            for id in running {
                transfers[id]?.isRunning = false
                queue.wait(id, until: 0)
            }
        }
        queue.isGoodMoment = isGood
        for id in queue.start(at: world.now.nanoseconds) { transfers[id]?.isRunning = true }
    }

    // MARK: Clients

    package mutating func note(_ action: Action, of index: Int) {
        switch action {
        case .launch: if backlogs[index].untold != nil { tally.launches += 1 }
        case .thaw: break
        default: return
        }
        if wakes.instant != world.now {
            countWakes()
            wakes = WakeInstant(instant: world.now)
        }
    }

    private mutating func countWakes() {
        guard wakes.instant != nil else { return }
        if wakes.isForOthers {
            tally.otherInstants += 1
        } else if wakes.isForTransfers {
            tally.extraInstants += 1
        }
        wakes.instant = nil
    }

    package mutating func take(_ wake: Wake, _ index: Int) -> Bool {
        if wakes.instant == world.now {
            if wake.reasons == .transfer || wake.reasons == [.transfer, .relaunched] {
                wakes.isForTransfers = true
            } else {
                wakes.isForOthers = true
            }
        }
        guard wake.reasons.contains(.transfer), let untold = backlogs[index].untold else { return true }
        let delay = world.now.since(untold.since)
        tally.told += untold.count
        tally.delays.append(Double(delay.nanoseconds) / 1e9)
        if delay > world.settings.discretionary.patience { tally.late += untold.count }
        backlogs[index].untold = nil
        for id in backlogs[index].transfers where transfers[id]?.isFinished ?? true {
            queue.remove(id)
            transfers[id] = nil
            backlogs[index].transfers.remove(id)
        }
        return true
    }

    package mutating func take(_ answer: Answer, to message: ClientMessage, _ index: Int) {
        world.require(answer == .done, "\(world.name(index)) is answered \(answer)")
    }
}
