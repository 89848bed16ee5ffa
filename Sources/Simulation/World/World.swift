package import NightbellCore

/// A small world around a core, all of it drawn from one seed: clients that behave well, badly or not at all,
/// peers that send, close and reset, a kernel that stops processes at once, later, or not, administrators,
/// and a supervisor that is stopped and started again. It carries out the actions of the core, and records
/// every violation of an invariant.
package struct World: ~Copyable {
    /// The longest time for which anything significant may wait in a sleeping client's socket: the loop may
    /// be slow to report it, the core may not.
    package static let wakeBound: Duration = .milliseconds(50)

    package internal(set) var core: Supervision
    /// A second core that gets the same events, turn by turn: its actions and state must be the same.
    var replay: Supervision
    package internal(set) var now = Instant(nanoseconds: 1_000_000_000_000)
    /// The time for which the machine has slept.
    package internal(set) var slept = Duration.seconds(50)
    package internal(set) var steps = 0
    package internal(set) var violations: [Violation] = []
    /// The counts of all lives of the supervisor.
    package internal(set) var totals = Counters()
    package internal(set) var coverage = Coverage()
    /// Over all actions so far: the same on every machine.
    package internal(set) var digest = Digest()

    /// Its type is known only at run time, which keeps the compiler from loading the whole world, six
    /// kilobytes, wherever a part of it is read; that took a third of the time.
    private let readInPlace: Any = ()

    let parameters: WorldParameters
    let settings: Settings
    let mutation: Mutation?
    let fault: Fault?
    var random: SplitMix64
    var clients: [SimulatedClient] = []
    var clientsBySlot: [SimulatedClient?] = []
    var socketsBySlot: [SimulatedSocket?] = []
    /// The latest generation of each slot: a token never names two sockets.
    var generations: [UInt64] = []
    var formerTokens: [SocketToken] = []
    var traffic: [UserID: UserTraffic] = [:]
    /// Events of the kernel, each with the time since which, or from which on, it can be reported.
    var queue: [(event: Event, since: Instant)] = []
    var events: [Event] = []
    /// The number of these events that the core has got.
    var taken = 0
    var actions = ActionBuffer()
    var replayed = ActionBuffer()
    var interpreted = 0

    /// The requests of this turn that have not been answered.
    var unanswered: [(key: RequestKey, sender: ClientID?)] = []
    var requests: UInt64 = 0
    var registrations: [RequestKey: Registration] = [:]
    /// Sockets that fired in this turn while their owner slept: it must be told of each.
    var mustBeTold: [(client: SimulatedClient, token: SocketToken)] = []
    /// Sockets of which a client may be told in this turn, and need not be.
    var mayBeTold: Set<SocketToken> = []
    /// The current event must not wake this sleeping client.
    var undisturbed: SimulatedClient?
    /// … nor any other one: it is about media.
    var isAboutMedia = false
    /// Events that result from actions still belong to this turn.
    var isGathering = false
    /// A client was woken in this turn.
    var hasThawed = false
    /// The current event comes from a client or from the network.
    var isTraffic = false
    /// The client that has asked, in the current event, to release a socket.
    var releasing: SimulatedClient?
    /// The current request, and the state before it was handled.
    var asked = Asked()
    /// The sockets of the current request.
    var offered: [SocketOffer] = []
    /// The whole machine stood still before this step.
    var isStalled = false
    /// The machine has slept before this step.
    var hasSlept = false
    /// Thaws that `Fault.thawAfterWake` delays.
    var lateThaws: [SimulatedClient] = []
    var isUsageTouched = true
    /// Memory is short until then.
    var pressedUntil = World.unpressed
    static let unpressed = Instant(nanoseconds: .min)
    /// For each user with a launch that waited at the end of the last turn only for its user's turn: how
    /// often each other user has had its turn since.
    var waiting: [Waiting: [UserID: Int]] = [:]
    /// The clients that must be ended because memory is short.
    var mustBeEnded: [SimulatedClient] = []
    /// The registration that is being declared, or sent by a process that takes over.
    var declared: Registration?
    var declaredReasons: WakeReasons = []
    var declaredNotBefore = Instant(nanoseconds: .min)
    /// The size of the state that is being saved.
    var saved = 0
    /// The counts that this life of the supervisor must have.
    var expected = Counters()
    var socketCount = 0
    /// The owner of each identifier.
    var owners: [ClientIdentifier: Ownership] = [:]
    var identifiersGivenUp = 0
    /// The identifiers that were forgotten on request in this turn.
    var disowned: [ClientIdentifier: Ownership] = [:]
    /// The indices of those events of this turn after which the wakes decided so far were delivered.
    var portionEnds: [Int] = []
    var isEndingPortion = false
    /// Clients to which a welcome is on its way.
    var welcomedInTurn: [ClientID] = []
    var machine = SimulatedMachine()
    /// The reasons that clients have to be told in this turn.
    var mustHear: [(client: SimulatedClient, reasons: WakeReasons)] = []
    /// The state that outlives the supervisor.
    var log = SimulatedRecoveryLog()
    var held = Held()
    /// The number of moments that this turn has left before the supervisor dies.
    var momentsLeft: Int?
    /// The messages of this turn, by their request.
    var sent: [RequestKey: ClientMessage] = [:]
    /// The sockets that the supervisor has adopted, by request.
    var adoptedFor: [UInt64: [SocketToken?]] = [:]
    /// Another supervisor is taking over at this moment.
    var isTakingOver = false
    /// A supervisor has taken over in this turn.
    var isRestoring = false
    /// The step in which the supervisor exits, once it has been stopped.
    var endOfLife: Int?
    /// Gets the trace, line by line.
    var narrator: ((String) -> Void)?

    struct Waiting: Hashable {
        var user: UserID
        var room: LaunchRoom
    }

    struct Ownership {
        let user: UserID
        /// `nil` while it is in use; otherwise the larger, the later it was given up.
        var givenUp: Int?
        /// Its user had quit its client when it was given up.
        var isQuit = false
    }

    package init(
        seed: UInt64, mutation: Mutation? = nil, fault: Fault? = nil, narrator: ((String) -> Void)? = nil
    ) {
        random = SplitMix64(seed: seed)
        parameters = WorldParameters(&random)
        settings = parameters.settings
        self.mutation = mutation
        self.fault = fault
        self.narrator = narrator
        core = Supervision(settings: settings, mutation: mutation)
        core.notesChanges = true
        core.handle(.machineSlept(total: slept), at: now, into: &actions)
        replay = core
    }

    /// The same moment on the clock that continues while the machine sleeps.
    var elapsed: Instant { now + slept }

    func client(_ id: ClientID) -> SimulatedClient? {
        guard Int(id.slot) < clientsBySlot.count, let client = clientsBySlot[Int(id.slot)], client.id == id
        else { return nil }
        return client
    }

    func socket(_ token: SocketToken) -> SimulatedSocket? {
        guard Int(token.slot) < socketsBySlot.count, let socket = socketsBySlot[Int(token.slot)],
            socket.token == token
        else { return nil }
        return socket
    }

    mutating func violate(_ invariant: Invariant, _ message: String) {
        let violation = Violation(invariant: invariant, step: steps, at: now, message: message)
        violations.append(violation)
        note("VIOLATED \(violation)")
    }

    mutating func require(_ invariant: Invariant, _ condition: Bool, _ message: @autoclosure () -> String) {
        if !condition { violate(invariant, message()) }
    }

    /// Counts an event, for its client and for all together.
    mutating func expect(_ client: SimulatedClient, _ change: (inout Counters) -> Void) {
        change(&client.expected)
        change(&expected)
    }

    func note(_ line: @autoclosure () -> String) {
        if let narrator { narrator("    " + line()) }
    }

    /// One turn of the edge's loop: feeds `events`, carries out the actions and checks everything.
    mutating func turn() {
        actions.removeAll()
        interpreted = 0
        taken = 0
        mustBeTold.removeAll(keepingCapacity: true)
        mustHear.removeAll(keepingCapacity: true)
        unanswered.removeAll(keepingCapacity: true)
        sent.removeAll(keepingCapacity: true)
        disowned.removeAll(keepingCapacity: true)
        portionEnds.removeAll(keepingCapacity: true)
        welcomedInTurn.removeAll(keepingCapacity: true)
        hasThawed = false
        mayBeTold.removeAll()
        isGathering = true
        var index = 0
        while index < events.count {
            if isStale(events[index]) {
                events.remove(at: index)
                continue
            }
            defer { index += 1 }
            undisturbed = nil
            isAboutMedia = false
            if let socket = lookedAt(events[index]) {
                events[index] = .inspected(socket.token, inspect(socket))
            }
            events[index] = thawedEarly(events[index])
            let event = events[index]
            if let narrator { narrator("  > " + TraceFormat.words(event)) }
            if isLastMoment() || diesAfterThaw(event) { return die(before: index) }
            if case .message(_, let sender, let key) = event, log.beginReading(from: sender, of: core) {
                held.beingRead = (key, sender)
                if isLastMoment() { return die(before: index) }
            }
            taken = index + 1
            foresee(event)
            if fault == .senderMistaken { events[index] = mistaken(event) }
            core.handle(events[index], at: now, into: &actions)
            hear(event)
            core.persistChanges(in: &log)
            carryOutActions()
            if momentsLeft == 0 { return die(before: index + 1) }
            if held.beingRead.take() != nil { log.finishReading() }
            releasing = nil
            keepUp(isTimer: event.isTimer)
            if mayEndPortion(event) {
                endPortion(after: index)
                if momentsLeft == 0 { return die(before: index + 1) }
            }
        }
        isGathering = false
        undisturbed = nil
        isAboutMedia = false
        isTraffic = false
        core.endTurn(at: now, into: &actions)
        core.persistChanges(in: &log)
        carryOutActions()
        if momentsLeft != nil { return die(before: events.count) }
        for id in welcomedInTurn { noteWelcome(id) }
        log.flush()
        for client in lateThaws where client.execution != .absent { client.execution = .running }
        lateThaws.removeAll()
        keepUp(isTimer: false)
        for (client, token) in mustBeTold where !client.isKilled && !client.isGone {
            if core.state(of: client.id) == .terminating { continue }
            violate(.wakeBound, "\(client.name) was not told of \(TraceFormat.name(token))")
        }
        checkMachine()
        compareWithReplay()
        check()
    }

    /// The edge handles a large wake burst in portions.
    private mutating func mayEndPortion(_ event: Event) -> Bool {
        switch event {
        case .fired, .thawedEarly, .inspected: random.once(in: 8)
        default: false
        }
    }

    private mutating func endPortion(after index: Int) {
        portionEnds.append(index)
        core.endPortion(at: now, into: &actions)
        core.persistChanges(in: &log)
        isEndingPortion = true
        carryOutActions()
        isEndingPortion = false
    }

    /// The edge thaws an owner that is certain to be woken; the owner may read the input before the core is
    /// told.
    private mutating func thawedEarly(_ event: Event) -> Event {
        guard case .fired(let token, let conditions) = event,
            core.clientAllowingEarlyThaw(by: token) != nil
        else { return event }
        guard conditions.isEmpty else { return .thawedEarly(token, conditions) }
        return random.once(in: 2) ? .thawedEarly(token, .readable) : event
    }

    /// An inspection has already taken the condition for which the socket fired, and the edge no longer
    /// watches it.
    private func isStale(_ event: Event) -> Bool {
        guard case .fired(let token, _) = event, let socket = socket(token) else { return false }
        return !socket.isQueued
    }

    /// Feeds the events of this turn to a second core and compares its actions.
    private mutating func compareWithReplay() {
        replayed.removeAll()
        for (index, event) in events.enumerated() {
            if fault == .replayIncomplete, index == 2 { continue }
            replay.handle(event, at: now, into: &replayed)
            replay.dropChanges()
            if portionEnds.contains(index) { replay.endPortion(at: now, into: &replayed) }
        }
        replay.endTurn(at: now, into: &replayed)
        replay.dropChanges()
        require(
            .replay,
            replayed.actions == actions.actions && replayed.adoptions == actions.adoptions
                && replayed.firedSockets == actions.firedSockets, "the same events gave other actions")
        require(.replay, replay.nextDeadline == core.nextDeadline, "the same events gave another deadline")
        if steps % 64 == 0 { require(.replay, replay == core, "the same events gave another state") }
    }

    /// Now and then, returns the event with another sender.
    private mutating func mistaken(_ event: Event) -> Event {
        guard case .message(let message, let id, let key) = event, client(id) != nil, random.once(in: 16),
            let other = random.pick(clients)
        else { return event }
        return .message(message, from: other.id, key)
    }

    mutating func carryOutActions() {
        while interpreted < actions.actions.count {
            if isLastMoment() { return }
            let action = actions.actions[interpreted]
            if action.isMessage, log.hasPending {
                // The keeper has the records before the client is told.
                log.flush()
                if isLastMoment() { return }
            }
            interpreted += 1
            if let narrator, let words = TraceFormat.words(action, in: actions) { narrator("  < " + words) }
            carryOut(action)
            keep(action)
        }
    }
}

extension Action {
    /// Whether it sends a message, and nothing is recorded in between.
    fileprivate var isMessage: Bool {
        switch self {
        case .refuseRegistration, .answer, .commandAnswer, .notify: true
        case .registered, .handedOver, .arm, .armPastEnd, .inspectPaths, .beginOffload, .endOffload, .ping,
            .lookForAnswer,
            .close,
            .freeze, .checkFreeze, .thaw, .kill, .makeDormant, .launch, .rejoined, .declared, .storeState,
            .dropState,
            .forget,
            .trace:
            false
        }
    }
}

extension Event {
    var isTimer: Bool {
        if case .timer = self { true } else { false }
    }

    /// A ping could not be sent: the edge feeds this event before anything else can happen to the socket.
    var isFailedPing: Bool {
        switch self {
        case .pingFailed, .pingOmitted: true
        default: false
        }
    }

    /// Whether a wake that it causes is one by traffic, which counts against the limit.
    var isTraffic: Bool {
        switch self {
        case .message, .fired, .thawedEarly, .inspected: true
        // The timer wakes clients for incomplete messages, which were traffic.
        case .timer: true
        // Media that begins while its client is being frozen is a message of the client's.
        case .fact(.media): true
        case .registration, .command, .frozen, .notFrozenYet, .freezeFailed, .foundRunning, .gone, .stop,
            .ended, .rejoined, .launch, .declare, .quitAbsent, .disown, .memoryPressure, .offloadBegan,
            .pingFailed,
            .pingOmitted, .delegatedStateLost, .answerLookedFor, .machineSlept, .fact,
            .pathsInspected, .simulate:
            false
        }
    }
}
