package import NightbellCore

/// The rules of pushes alone: clients that are told of pushes, handle them or not, fall asleep, crash and are
/// quit; a push service with messages that come, are replaced and expire; power and networks that change; memory
/// that is short; and a supervisor that dies.
package struct PushLife: Life {
    package static let mutations: [Mutation] = [
        .repeatsPushes, .ignoresPushLimit, .ignoresUrgency, .launchesForPastMoments, .suspendsDuringPushes,
        .permitsEndlessPushes,
        .forgetsUnhandledPushes, .forgivesSlowPushesInUse, .tellsOneProcessOfPushes, .believesAnyPush,
    ]

    package var world: SmallWorld
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

    /// A client's messages, by the rules.
    struct Inbox {
        var isObserving = false
        /// Its process has asked for its address, as each does.
        var hasAsked = false
        /// At the push service.
        var waiting: [PushUrgency] = []
        var number: UInt64 = 0
        /// The last report that the supervisor has taken note of, while there is a service.
        var known: UInt64?
        /// The urgency of that report.
        var reported: PushUrgency?
        /// It has to be told.
        var isUntold = false
        /// It has been launched to be told, and has yet to be.
        var isLaunched = false
        var run: PushMemory.Run?
        var retryAt: Instant?
        /// When it was told in the background.
        var told: [Instant] = []
    }

    /// By client.
    var inboxes: [Inbox]
    var isOnBattery: Bool?
    var isBatteryLow: Bool?
    var isMetered: Bool?

    static let observation = "pushes"

    package init(seed: UInt64, mutation: Mutation?, narrator: ((String) -> Void)?) {
        var settings = Settings()
        settings.launches.relaunches = 200
        settings.push.perHour = 3
        // Long enough for a launch to wait while its moment passes.
        settings.memoryPressure.pause = .seconds(300)
        let clients = SmallWorld.registrations([[], [], []])
        inboxes = clients.map { _ in Inbox() }
        world = SmallWorld(
            seed: seed, .pushes, settings, clients: clients, mutation: mutation, narrator: narrator)
    }

    // MARK: Chance

    package mutating func step() {
        passTime(upTo: .seconds(world.random.once(in: 8) ? 3_600 : 40))
        turn([])
        switch world.random.below(12) {
        case 11: if world.random.once(in: 4) { turn([.memoryPressure([])]) }
        case 10:
            // The service is replaced, and reports everything at once or later.
            turn([.fact(.pushServiceChanged)])
            if world.random.once(in: 2) { turn(initialFacts) }
        case 0...2: turn([arrive(world.random.below(inboxes.count))])
        case 3: turn([expire(world.random.below(inboxes.count))])
        case 4: turn([change()])
        case 5: if world.random.once(in: 4) { die() }
        default: happen(world.random.below(inboxes.count))
        }
    }

    private mutating func happen(_ index: Int) {
        guard let id = world.clients[index].id else { return register(index) }
        if world.isRunning(index), !inboxes[index].hasAsked {
            return say(.observe(name: Self.observation, .pushes), index)
        }
        switch world.random.below(12) {
        case 0...1: if world.clients[index].isAsleep { command(.wake, id, index) }
        case 2...3: if world.clients[index].isForeground { say(.enterBackground, index) }
        case 4: say(.enterForeground, index)
        case 5...8: handle(index)
        case 9: if world.clients[index].isAlive { turn([.ended(id, .failed)]) }
        case 10: if world.random.once(in: 3) { command(.quit, id, index) }
        // One that it was not told of.
        default: say(.pushDone(wakeID: 1_000_000, .newData), index)
        }
    }

    /// A client takes its messages, and says so to the service and to the supervisor, in any order.
    private mutating func handle(_ index: Int) {
        guard let run = inboxes[index].run, world.isRunning(index) else { return }
        if world.random.once(in: 6) { return say(.pushDone(wakeID: run.wakeID, .failed), index) }
        // It leaves them for its next process, which its user starts.
        if world.random.once(in: 6) {
            say(.pushDone(wakeID: run.wakeID, .newData), index)
            if let id = world.clients[index].id { turn([.ended(id, .failed)]) }
            if !world.clients[index].isAlive { register(index) }
            return
        }
        inboxes[index].waiting = []
        let isServiceFirst = world.random.once(in: 2)
        if isServiceFirst { turn([report(index)]) }
        say(.pushDone(wakeID: run.wakeID, .newData), index)
        if !isServiceFirst { turn([report(index)]) }
    }

    private mutating func arrive(_ index: Int) -> Event {
        coverage.pushes += 1
        let urgency = PushUrgency.allCases[world.random.below(PushUrgency.allCases.count)]
        if !inboxes[index].waiting.isEmpty { coverage.merged += 1 }
        inboxes[index].waiting.append(urgency)
        inboxes[index].number += 1
        return report(index)
    }

    /// Some are too old, or nothing has changed.
    private mutating func expire(_ index: Int) -> Event {
        let count = world.random.below(inboxes[index].waiting.count + 1)
        inboxes[index].waiting.removeFirst(count)
        return report(index)
    }

    private mutating func change() -> Event {
        let value: Bool? = world.random.once(in: 4) ? nil : world.random.once(in: 2)
        if world.random.once(in: 2) {
            let isLow: Bool? = world.random.once(in: 4) ? nil : world.random.once(in: 2)
            return .fact(.power(isOnBattery: value, isLow: isLow))
        }
        return .fact(.network(NetworkFact(fingerprint: 1, isUp: true, isMetered: value)))
    }

    func report(_ index: Int) -> Event {
        .fact(
            .pushes(
                WaitingPushes(
                    of: 1_000, world.clients[index].registration.identifier,
                    number: max(1, inboxes[index].number), urgency: inboxes[index].waiting.max())))
    }

    /// The push service tells a new supervisor everything.
    package var initialFacts: [Event] { inboxes.indices.map(report) }
}
