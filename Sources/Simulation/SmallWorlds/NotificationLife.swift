package import NightbellCore

/// The rules of notifications alone: clients that schedule and cancel them, come to the foreground, crash, end
/// and are quit; clocks that are set, and daylight-saving time; notification servers that come and go, and
/// answer late, and people that click; and a supervisor that dies, also between a showing, a click or a
/// cancellation and its consequence.
package struct NotificationLife: Life {
    package static let mutations: [Mutation] = [
        .postsCancelledNotifications, .losesNotificationsWithoutServer, .showsInForeground,
        .dropsSoonestNotifications, .ignoresClockChanges, .ignoresZoneChanges, .showsReplacedDeliveries,
        .restoresWithoutNotifications, .restoresWithoutCloses,
    ]

    package var world: SmallWorld
    package var coverage = Coverage()

    package struct Coverage: Sendable, Equatable {
        package var shown = 0
        package var told = 0
        package var dropped = 0
        package var activations = 0
        package var launches = 0
        package var afterQuit = 0
        package var clockChanges = 0
        package var zoneChanges = 0
        package var deaths = 0
        package var lostReports = 0
        package var lostClicks = 0
        package var lateReports = 0
        package var closes = 0
        package var repeated = 0
        package var renewals = 0

        package init() {}
    }

    /// A client's notifications, by the rules.
    struct Desk {
        /// The latest one scheduled under each identifier.
        var scheduled: [String: Int] = [:]
        /// The one of each identifier that has to be shown or told.
        var owed: [String: Int] = [:]
        /// Of those, the ones that came while it was in the foreground.
        var comeInForeground: Set<Int> = []
        /// The activations that it has to be told of.
        var activations: [Int] = []
        /// The events that it was told of, and has not finished.
        var unfinished: [NotificationEvent] = []
        /// The last wake that it has to finish, and when.
        var open: (wakeID: UInt64, until: Instant)?
        /// The last notification that it has scheduled, in this process, and the number of the request.
        var lastScheduled: (notification: LocalNotification, key: RequestKey)?
        /// The server's numbers of its notifications that the supervisor knew before the last request.
        var remembered: Set<UInt32> = []
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
        /// A supervisor has died before it heard that it is shown. The server may refuse to show it again.
        var isReportLost = false
        /// How often its time has come.
        var times = 0
        /// How often it was shown or told.
        var deliveries = 0
        /// How often it may be once more: a report was lost, or a process has ended with it.
        var repetitions = 0
        var isCancelled = false
        /// It was given to a server that has not answered, and its client was told of the next one instead.
        var isOutdated = false
    }

    /// The server of a user's session.
    struct Server {
        var name: String
        var lastID: UInt32 = 0
        /// The requests that it shows, by its numbers.
        var shown: [UInt32: Int] = [:]
        /// The clients of all that it has shown.
        var owners: [UInt32: Int] = [:]
        /// The monitors of the session know each showing …
        var noted: [Showing: UInt32] = [:]
        /// … and what a person has done with it.
        var ends: [UInt32: NotificationFact] = [:]

        /// The number of the last showing of a notification that has not ended.
        func latest(of number: UInt64) -> UInt32? {
            noted.filter { $0.key.number == number && ends[$0.value] == nil }
                .max { $0.key.revision < $1.key.revision }?.value
        }
    }

    struct Showing: Hashable {
        var number: UInt64
        var revision: UInt64

        init(_ post: NotificationPost) {
            number = post.number
            revision = post.revision
        }
    }

    /// A notification that is shown, and of which the supervisor hears later.
    struct LateReport {
        var user: UserID
        var showing: Showing
        var id: UInt32
        var request: Int
        var at: Instant
        /// The time of a later one of the same identifier has come.
        var isReplaced = false
    }

    /// By client.
    var desks: [Desk]
    var clock = NotificationClock(utc: .seconds(1_750_000_000), zone: .seconds(3_600))
    var requests: [Request] = []
    var servers: [UserID: Server] = [:]
    var serversMade = 0
    /// Names the connections of the monitors, which end with the supervisor.
    var listener = 0
    /// The showings that the monitors were asked for, and have dealt with.
    var given: [UserID: Set<Showing>] = [:]
    var late: [LateReport] = []
    static let users: [UserID] = [1_000, 1_001]

    package init(seed: UInt64, mutation: Mutation?, narrator: ((String) -> Void)?) {
        var settings = Settings()
        settings.launches.relaunches = 200
        settings.quotas.notificationsPerClient = 2
        var clients = SmallWorld.registrations([.voip, [], []])
        for index in clients.indices {
            clients[index].user = Self.users[index % 2]
            clients[index].isLaunchable = index < 2
        }
        desks = clients.map { _ in Desk() }
        world = SmallWorld(
            seed: seed, .notifications, settings, clients: clients, mutation: mutation, narrator: narrator)
    }

    /// The monitors connect to a new supervisor.
    package var initialFacts: [Event] {
        [.fact(.clock(clock))]
            + Self.users.map {
                .fact(.notifications(of: $0, .server(servers[$0]?.name, listener: "\(listener)")))
            }
    }

    // MARK: Chance

    package mutating func step() {
        passTime(upTo: .seconds(600), late.map { $0.at } + desks.map { $0.open?.until })
        comeDue()
        turn([])
        hearLate()
        finishLate()
        if world.random.once(in: 2) { happen(world.random.below(desks.count)) }
        if world.random.once(in: 10) { changeServer(Self.users[world.random.below(2)]) }
        if world.random.once(in: 6) { click() }
        if world.random.once(in: 15) { setClock() }
        if world.random.once(in: 20) {
            die()
            repeatRequest(world.random.below(desks.count))
        }
        checkOwed()
    }

    /// A client has not heard the answer of the supervisor that has died.
    private mutating func repeatRequest(_ index: Int) {
        guard let last = desks[index].lastScheduled, let id = world.clients[index].id,
            world.isRunning(index), violation == nil
        else { return }
        coverage.repeated += 1
        var key = last.key
        key.isRepeated = true
        turn([.message(.schedule(last.notification), from: id, key)])
    }

    private mutating func finishLate() {
        for index in desks.indices {
            guard let open = desks[index].open, open.until <= world.now else { continue }
            desks[index].open = nil
            guard world.isRunning(index) else { continue }
            desks[index].unfinished = []
            say(.wakeDone(wakeID: open.wakeID), index)
        }
    }

    private mutating func happen(_ index: Int) {
        guard let id = world.clients[index].id else { return register(index) }
        let client = world.clients[index]
        switch world.random.below(16) {
        case 0...5: schedule(index)
        case 6: cancel(index)
        case 7...9: say(client.isForeground ? .enterBackground : .enterForeground, index)
        case 10, 11: if client.isForeground { say(.enterBackground, index) }
        case 12:
            guard client.isAlive else { return }
            allowUnfinishedAgain(index)
            turn([.ended(id, .failed)])
        case 13: if client.isAlive { turn([.ended(id, .succeeded)]) }
        case 14:
            // Nothing launches it any more for what its process has failed to handle.
            if !client.isAlive { desks[index].activations = [] }
            desks[index].unfinished.removeAll(where: \.kind.isActivation)
            allowUnfinishedAgain(index)
            command(.quit, id, index)
        default: if client.isAsleep { command(.wake, id, index) }
        }
    }

    private mutating func schedule(_ index: Int) {
        guard world.clients[index].isAlive, !world.clients[index].isAsleep else { return }
        let identifier = "n\(world.random.below(5))"
        let trigger: NotificationTrigger
        switch world.random.below(5) {
        case 0: trigger = .now
        case 1:
            trigger = .time(
                clock.time(at: world.now) + world.random.duration(upTo: .seconds(7_200)).nanoseconds)
        case 2: trigger = .interval(world.random.duration(upTo: .seconds(3_600)), repeats: false)
        case 3: trigger = .interval(.seconds(100 + world.random.below(7_200)), repeats: true)
        default:
            let second = world.random.below(LocalTime.secondsPerDay)
            trigger = .calendar(CalendarTime(secondOfDay: second), repeats: world.random.once(in: 2))
        }
        let content = NotificationContent(title: "\(requests.count)", payload: [UInt8(index)])
        requests.append(Request(client: index, identifier: identifier, trigger: trigger))
        noteRemembered(index)
        let notification = LocalNotification(identifier, content, trigger)
        let key = RequestKey(connection: UInt64(index + 1), request: world.lastRequest + 1)
        desks[index].lastScheduled = (notification, key)
        say(.schedule(notification), index)
    }

    private mutating func cancel(_ index: Int) {
        let identifiers = world.random.once(in: 4) ? nil : ["n\(world.random.below(5))"]
        noteRemembered(index)
        say(.cancelNotifications(identifiers), index)
    }

    private mutating func changeServer(_ user: UserID) {
        for report in late where report.user == user { loseShown(report) }
        late.removeAll { $0.user == user }
        given[user] = nil
        if servers[user] != nil, world.random.once(in: 2) {
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
        let user = Self.users[world.random.below(2)]
        guard let server = servers[user],
            let id = server.shown.keys.sorted().first(where: { id in
                !late.contains { $0.user == user && $0.id == id }
            }), let request = server.shown[id]
        else { return }
        servers[user]?.shown[id] = nil
        let isClosed = world.random.once(in: 3)
        let end = isClosed ? NotificationFact.closed(id) : .activated(id, action: "default", token: "t")
        servers[user]?.ends[id] = end
        if !isClosed {
            let index = requests[request].client
            if isRemembered(request, id, server) {
                coverage.activations += 1
                if world.clients[index].isQuit { coverage.afterQuit += 1 }
                desks[index].activations.append(request)
            }
        }
        // The supervisor may die before it hears of it: the next monitor tells the next one.
        if world.random.once(in: 8) {
            coverage.lostClicks += 1
            return die()
        }
        var events: [Event] = [.fact(.notifications(of: user, end))]
        if !isClosed { events.append(.fact(.notifications(of: user, .closed(id)))) }
        turn(events)
    }

    /// Of those that are shown only the latest are remembered.
    private mutating func isRemembered(_ request: Int, _ id: UInt32, _ server: Server) -> Bool {
        let index = requests[request].client
        let identifier = world.clients[index].registration.identifier
        let isKnown = remembered(index).contains(id)
        let later = server.owners.count { $0.key > id && $0.value == index }
        world.require(
            isKnown || requests[request].isReportLost
                || later >= world.settings.quotas.notificationsPerClient,
            "\(requests[request].identifier) of \(identifier) is forgotten while it is shown")
        return isKnown
    }

    func remembered(_ index: Int) -> Set<UInt32> {
        let identifier = world.clients[index].registration.identifier
        return Set(
            world.core.notificationViews(after: 0, of: identifier) { _ in true }
                .compactMap { $0.presentation?.display?.id })
    }

    private mutating func noteRemembered(_ index: Int) { desks[index].remembered = remembered(index) }

    private mutating func setClock() {
        coverage.clockChanges += 1
        switch world.random.below(5) {
        case 0: clock.utc += world.random.duration(upTo: .seconds(3 * 86_400))
        case 1: clock.utc -= world.random.duration(upTo: .seconds(5_400))
        case 2: clock.utc -= .seconds(4 * 3_600) + world.random.duration(upTo: .seconds(3 * 86_400))
        case 3: clock = NotificationClock(utc: clock.utc, zone: .seconds(3_600 * world.random.below(3)))
        default:
            coverage.zoneChanges += 1
            clock.change = NotificationClock.ZoneChange(
                at: clock.time(at: world.now) + world.random.duration(upTo: .seconds(7_200)).nanoseconds,
                zone: clock.zone + .seconds(world.random.once(in: 2) ? 3_600 : -3_600))
        }
        followClock()
        comeDue()
        turn([.fact(.clock(clock))])
    }
}
