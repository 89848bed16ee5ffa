package import NightbellCore

/// A small world around a core, for the rules of notifications alone: clients that schedule and cancel them,
/// come to the foreground, crash, end and are quit; clocks that are set; notification servers that come and
/// go, and people that click; and a supervisor that dies, also between a showing and its report.
package struct NotificationLife: ~Copyable {
    /// The first violated rule.
    package private(set) var violation: Violation?
    private var steps = 0
    package var coverage = Coverage()

    package struct Coverage: Sendable, Equatable {
        package var shown = 0
        package var told = 0
        package var dropped = 0
        package var activations = 0
        package var launches = 0
        package var afterQuit = 0
        package var clockChanges = 0
        package var deaths = 0
        package var lostReports = 0
        package var renewals = 0

        package init() {}
    }

    struct Client {
        let registration: Registration
        var id: ClientID?
        var isAlive = false
        var isAsleep = false
        var isForeground = true
        var wasQuit = false
        var hasGivenUp = false
        /// The latest one scheduled under each identifier.
        var scheduled: [String: Int] = [:]
        /// The one of each identifier that has to be shown or told.
        var owed: [String: Int] = [:]
        /// Of those, the ones that came while it was in the foreground.
        var comeInForeground: Set<Int> = []
        /// The activations that it has to be told of.
        var activations: [Int] = []
    }

    /// One call of the request to schedule, by the rules. Its content has its index as title.
    struct Request {
        let client: Int
        let identifier: String
        let trigger: NotificationTrigger
        /// When its time comes, in elapsed time; nil: not any more.
        var due: Instant?
        /// Or in local time.
        var local: LocalTime?
        var lastLocal: LocalTime?
        /// How often its time has come.
        var times = 0
        /// How often it was shown or told.
        var deliveries = 0
        /// How often it may be once more: a report was lost, or a process has ended with it.
        var repetitions = 0
        var isCancelled = false
    }

    /// The server of a user's session.
    struct Server {
        var name: String
        var lastID: UInt32 = 0
        /// The requests that it shows, by its numbers.
        var shown: [UInt32: Int] = [:]
    }

    let settings: Settings
    let mutation: Mutation?
    var core: Supervision
    var log = SimulatedRecoveryLog()
    var random: SplitMix64
    var now = Instant(nanoseconds: 1_000_000_000_000)
    var clock = NotificationClock(utc: .seconds(1_750_000_000), zone: .seconds(3_600))
    var clients: [Client] = []
    var requests: [Request] = []
    var servers: [UserID: Server] = [:]
    var serversMade = 0
    /// Names the connections of the monitors, which end with the supervisor.
    var listener = 0
    /// The notifications that are shown, and that the supervisor has not heard of yet.
    var unreported: [(user: UserID, id: UInt32)] = []
    var actions = ActionBuffer()
    var events: [Event] = []
    private var asked: [UInt64: (index: Int, message: ClientMessage, request: Int?)] = [:]
    private var lastKey: UInt64 = 0
    static let users: [UserID] = [1_000, 1_001]

    package init(seed: UInt64, mutation: Mutation? = nil) {
        var settings = Settings()
        settings.launches.relaunches = 200
        settings.quotas.notificationsPerClient = 2
        self.settings = settings
        self.mutation = mutation
        random = SplitMix64(seed: seed)
        core = Supervision(settings: settings, mutation: mutation)
        core.notesChanges = true
        for index in 0..<3 {
            guard let identifier = ClientIdentifier("client.\(index)") else { continue }
            var registration = Registration(
                identifier: identifier, user: Self.users[index % 2], modes: index == 0 ? .voip : [])
            registration.isLaunchable = index < 2
            clients.append(Client(registration: registration))
        }
    }

    package mutating func run(steps: Int) {
        turn([.fact(.clock(clock))])
        for _ in 0..<steps where violation == nil {
            step()
            self.steps += 1
        }
    }

    mutating func require(_ condition: Bool, _ words: String) {
        guard !condition, violation == nil else { return }
        violation = Violation(invariant: .notifications, step: steps, at: now, message: words)
    }

    func name(_ index: Int) -> String { "client.\(index)" }

    // MARK: Time and chance

    private mutating func step() {
        var next = now + random.duration(upTo: .seconds(600))
        if let deadline = core.nextDeadline { next = min(next, max(deadline, now)) }
        now = next
        passTime()
        if core.nextDeadline.map({ $0 <= now }) ?? false { turn([.timer]) }
        if random.once(in: 2) { happen(random.below(clients.count)) }
        if random.once(in: 10) { changeServer(Self.users[random.below(2)]) }
        if random.once(in: 6) { click() }
        if random.once(in: 15) { setClock() }
        if random.once(in: 20) { die() }
        checkOwed()
    }

    private mutating func happen(_ index: Int) {
        guard let id = clients[index].id else {
            clients[index].wasQuit = false
            clients[index].isForeground = true
            return turn([.registration(clients[index].registration, key(index))])
        }
        switch random.below(16) {
        case 0...5: schedule(index)
        case 6: cancel(index)
        case 7...9: say(clients[index].isForeground ? .enterBackground : .enterForeground, index)
        case 10, 11: if clients[index].isForeground { say(.enterBackground, index) }
        case 12: if clients[index].isAlive { turn([.ended(id, .failed)]) }
        case 13: if clients[index].isAlive { turn([.ended(id, .succeeded)]) }
        case 14:
            clients[index].wasQuit = true
            turn([.command(.quit, id, key(index))])
        default: if clients[index].isAsleep { turn([.command(.wake, id, key(index))]) }
        }
    }

    private mutating func schedule(_ index: Int) {
        guard clients[index].isAlive, !clients[index].isAsleep else { return }
        let identifier = "n\(random.below(5))"
        let trigger: NotificationTrigger
        switch random.below(5) {
        case 0: trigger = .now
        case 1:
            trigger = .time(clock.time(at: now) + random.duration(upTo: .seconds(7_200)).nanoseconds)
        case 2: trigger = .interval(random.duration(upTo: .seconds(3_600)), repeats: false)
        case 3: trigger = .interval(.seconds(100 + random.below(7_200)), repeats: true)
        default:
            let second = random.below(LocalTime.secondsPerDay)
            trigger = .calendar(CalendarTime(secondOfDay: second), repeats: random.once(in: 2))
        }
        let content = NotificationContent(title: "\(requests.count)", payload: [UInt8(index)])
        let request = requests.count
        requests.append(Request(client: index, identifier: identifier, trigger: trigger))
        say(.schedule(LocalNotification(identifier, content, trigger)), index, request: request)
    }

    private mutating func cancel(_ index: Int) {
        let identifiers = random.once(in: 4) ? nil : ["n\(random.below(5))"]
        say(.cancelNotifications(identifiers), index)
    }

    private mutating func changeServer(_ user: UserID) {
        if servers[user] != nil, random.once(in: 2) {
            servers[user] = nil
            // All that it has shown is gone.
            turn([.fact(.notifications(of: user, .server(nil)))])
        } else {
            serversMade += 1
            servers[user] = Server(name: "server \(serversMade)")
            turn([
                .fact(.notifications(of: user, .server("server \(serversMade)", listener: "\(listener)")))
            ])
        }
    }

    /// A person clicks on a notification, or closes it.
    private mutating func click() {
        let user = Self.users[random.below(2)]
        guard let shown = servers[user]?.shown, let id = shown.keys.sorted().first, let request = shown[id]
        else { return }
        servers[user]?.shown[id] = nil
        guard !random.once(in: 3) else {
            return turn([.fact(.notifications(of: user, .closed(id)))])
        }
        let index = requests[request].client
        coverage.activations += 1
        if clients[index].wasQuit { coverage.afterQuit += 1 }
        clients[index].activations.append(request)
        turn([
            .fact(.notifications(of: user, .activated(id, action: "default", token: "t"))),
            .fact(.notifications(of: user, .closed(id))),
        ])
    }

    private mutating func setClock() {
        coverage.clockChanges += 1
        switch random.below(4) {
        case 0: clock.utc += random.duration(upTo: .seconds(3 * 86_400))
        case 1: clock.utc -= random.duration(upTo: .seconds(5_400))
        case 2: clock.utc -= .seconds(4 * 3_600) + random.duration(upTo: .seconds(3 * 86_400))
        default: clock.zone = .seconds(3_600 * random.below(3))
        }
        followClock()
        passTime()
        turn([.fact(.clock(clock))])
    }

    // MARK: Turns

    private mutating func key(_ index: Int) -> RequestKey {
        lastKey += 1
        return RequestKey(connection: UInt64(index + 1), request: lastKey)
    }

    private mutating func say(_ message: ClientMessage, _ index: Int, request: Int? = nil) {
        guard let id = clients[index].id, clients[index].isAlive, !clients[index].isAsleep else { return }
        let key = key(index)
        asked[key.request] = (index, message, request)
        turn([.message(message, from: id, key)])
    }

    /// Feeds events, and whatever follows from them, each round in a turn of its own.
    mutating func turn(_ first: [Event]) {
        events = first
        while !events.isEmpty || core.nextDeadline.map({ $0 <= now }) ?? false, violation == nil {
            let batch = events.isEmpty ? [.timer] : events
            events = []
            unreported = []
            actions.removeAll()
            for event in batch { core.handle(event, at: now, into: &actions) }
            core.endTurn(at: now, into: &actions)
            carryOut()
            for user in Self.users { serve(user) }
        }
    }

    mutating func carryOut() {
        core.persistChanges(in: &log)
        log.flush()
        let work = actions
        for action in work.actions { carryOut(action, work) }
        log.flush()
    }

    func index(of id: ClientID) -> Int? { clients.firstIndex { $0.id == id } }

    private mutating func carryOut(_ action: Action, _ work: ActionBuffer) {
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
            clients[index].isForeground = core.state(of: id) == .inactive
            clients[index].wasQuit = false
            admit(id, index)
        case .answer(let answer, _, let key):
            guard let (index, message, request) = asked.removeValue(forKey: key.request) else { return }
            take(answer, to: message, index, request)
        case .notify(let id, let notice):
            if let index = index(of: id) { take(notice, id, index, work) }
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
            if let record = log.written[id] { log.launch(id, record) }
            events.append(.rejoined(id, clients[index].registration, key(index)))
        case .forget(let id, let identifier, _):
            guard let index = index(of: id) else { return }
            log.forget(id, identifier, of: core)
            end(index)
            clients[index].id = nil
        case .trace(let id, .gaveUp):
            if let index = index(of: id) { clients[index].hasGivenUp = true }
        case .refuseRegistration, .handedOver, .commandAnswer, .arm, .armPastEnd, .beginOffload, .endOffload,
            .ping, .lookForAnswer, .close, .checkFreeze, .declared, .storeState, .dropState, .inspectPaths,
            .trace:
            break
        }
    }

    private mutating func admit(_ id: ClientID, _ index: Int) {
        let identifier = clients[index].registration.identifier
        let record = SimulatedRecoveryLog.ClientRecord(
            registration: clients[index].registration, registeredAt: now,
            ownership: core.owner(of: identifier)?.number ?? 0)
        log.admit(id, record, canRepeat: false, of: core)
    }

    /// Needs no answer.
    mutating func tell(_ message: ClientMessage, _ id: ClientID) {
        events.append(.message(message, from: id, RequestKey(connection: 0, request: 0)))
    }
}
