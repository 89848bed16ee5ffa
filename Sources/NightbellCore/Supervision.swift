/// The whole of Nightbell's behaviour, without any I/O: events in, actions out.
///
/// It is deterministic and copyable: the same events at the same instants give the same actions, so that any
/// run can be replayed. Sockets are tokens and processes are client IDs; descriptors, pids and the clock belong
/// to the edge, which feeds what happened in one turn of its loop to `handle`, then calls `endTurn`, carries out
/// the actions in order, and reports what came of them as further events.
public struct Supervision: Sendable, Equatable {
    public internal(set) var settings: Settings
    public internal(set) var counters = Counters()
    public internal(set) var isStopping = false

    var clients = SlotMap<Client>()
    var sockets = SlotMap<ParkedSocket>()
    var users: [UserID: UserUsage] = [:]
    var owners = Owners()
    /// How many identifiers have been given up so far.
    var identifiersGivenUp: UInt64 = 0
    var deadlines = DeadlineQueue()
    var schedule: KeepAliveSchedule
    /// Sockets whose pings are dealt with while their owner sleeps.
    var pings: PingBook
    /// Those of each client that has any, by its slot.
    var offloaded: [UInt32: [SocketToken]] = [:]
    /// What was found out about sockets with a profile, by slot; only ever looked up, so that its order does not show.
    var findings: [UInt32: Finding] = [:]
    /// Sockets of which something has changed that outlives this supervisor.
    var touchedOffloads: [SocketToken] = []
    /// Clients with a wake that is told at the end of the turn, in the order of the decisions.
    var pendingWakes: [ClientID] = []
    /// Clients that were told of theirs before the end of it.
    var toldInTurn: Set<ClientID> = []
    var hasThawedInTurn = false
    var launchQueue = LaunchQueue()
    /// How long the machine has slept since it was started: elapsed time is ahead of running time by this.
    public internal(set) var machineSlept = Duration.zero
    /// Memory is short until then.
    var pressedUntil = Supervision.unpressed
    var lastOwnership: UInt64 = 0
    /// Whether changes are persisted.
    public var notesChanges = false
    /// Clients of which something that outlives this supervisor has changed.
    var touched: [ClientID] = []
    /// What a request of a client may be the repetition of.
    var inherited: [ClientID: InheritedRequests] = [:]
    /// Ownerships that came to an end, by their numbers.
    var endedOwnerships: [UInt64] = []
    /// What the clients that are gone had counted.
    var goneCounters = Counters()
    #if NIGHTBELL_MUTATIONS
        var mutation: Mutation?
    #endif

    /// The owner of an identifier, and the client that has it now.
    struct Ownership: Sendable, Equatable {
        let user: UserID
        var client: ClientID?
        /// Its user has quit it, and it was not started since.
        var isQuit = false
        /// Names the ownership, for records of it.
        let number: UInt64
        /// The number under which it was given up last; 0 while it is in use, which it is while it has a client.
        var givenUp: UInt64 = 0
    }

    public init(settings: Settings) {
        self.settings = settings
        schedule = KeepAliveSchedule(lead: settings.keepAlive.lead)
        pings = PingBook(settings)
    }

    /// From now on these numbers count. What was decided by the others stays: a budget that runs, a timeout that is set.
    public mutating func change(_ settings: Settings) {
        self.settings = settings
        schedule.lead = settings.keepAlive.lead
        pings.change(settings)
    }

    /// When `Event.timer` must be fed at the latest; the loop's only timer is set to it.
    public var nextDeadline: Instant? {
        guard !isStopping else { return nil }
        let own = deadlines.first?.instant
        if mutated(.forgetsKeepAliveTimer), own != nil { return own }
        let elapsing = earlier(schedule.nextDeadline, pings.nextDeadline).map { $0 - machineSlept }
        return earlier(earlier(own, launchDeadline), elapsing)
    }

    /// The same moment on the clock that goes on while the machine sleeps.
    public func elapsed(at now: Instant) -> Instant {
        mutated(.chargesSleep) || mutated(.ignoresSleep) ? now : now + machineSlept
    }

    /// Gives up memory that many clients and sockets needed which are gone. It takes time in proportion to those that are
    /// not.
    public mutating func giveMemoryBack() {
        clients.giveMemoryBack()
        sockets.giveMemoryBack()
    }

    /// Takes in one event. Wakes are gathered until `endTurn`.
    public mutating func handle(_ event: Event, at now: Instant, into actions: inout ActionBuffer) {
        let now = mutated(.chargesSleep) ? now + machineSlept : now
        switch event {
        case .registration(let registration, let key):
            register(registration, key, at: now, into: &actions)
        case .message(let message, let client, let key):
            guard clients.contains(client.id), !isDuplicate(key, of: client) else { return }
            catchUp(client, at: now, into: &actions)
            guard clients[client.id].launches.isRejoined else {
                let state = clients[client.id].lifecycle.state
                actions.append(.answer(.refused(.illegalState(state)), client, key))
                return settle(client, at: now, into: &actions)
            }
            let wasSettingUp = endOfSetUp(client, at: now) != nil
            receive(message, from: client, key, at: now, into: &actions)
            if wasSettingUp { lingerAfterSetUp(client, at: now) }
            settle(client, at: now, into: &actions)
        case .command(let command, let client, let key):
            guard clients.contains(client.id) else {
                return actions.append(.commandAnswer(.noSuchClient, key))
            }
            catchUp(client, at: now, into: &actions)
            obey(command, client, key, at: now, into: &actions)
            settle(client, at: now, into: &actions)
        case .fired(let token, let conditions):
            guard sockets.contains(token.id) else { return }
            let owner = sockets[token.id].owner
            catchUp(owner, at: now, into: &actions)
            socketFired(token, conditions, at: now, into: &actions)
            settle(owner, at: now, into: &actions)
        case .judged(let token, let judgement):
            guard sockets.contains(token.id) else { return }
            let owner = sockets[token.id].owner
            catchUp(owner, at: now, into: &actions)
            judged(token, judgement, at: now, into: &actions)
            settle(owner, at: now, into: &actions)
        case .offloadBegan(let token, let terms, let isAwaitingAnswer):
            offloadBegan(token, terms, isAwaitingAnswer: isAwaitingAnswer, at: now)
        case .pingFailed(let token):
            catchUp(ownerOf: token, at: now, into: &actions)
            pingFailed(token, at: now, into: &actions)
        case .loanLost(let token):
            catchUp(ownerOf: token, at: now, into: &actions)
            loanLost(token, at: now, into: &actions)
        case .pingOmitted(let token):
            pingOmitted(token, at: now)
        case .answerLookedFor(let token):
            catchUp(ownerOf: token, at: now, into: &actions)
            answerMissing(token, at: now, into: &actions)
        case .frozen(let client, let epoch):
            guard clients.contains(client.id) else { return }
            freezeConfirmed(client, epoch: epoch, at: now, into: &actions)
            settle(client, at: now, into: &actions)
        case .notFrozenYet(let client, let epoch):
            guard clients.contains(client.id) else { return }
            freezePending(client, epoch: epoch, at: now)
            settle(client, at: now, into: &actions)
        case .freezeFailed(let client, let epoch):
            guard clients.contains(client.id) else { return }
            freezeFailed(client, epoch: epoch, at: now, into: &actions)
            settle(client, at: now, into: &actions)
        case .foundRunning(let client):
            guard clients.contains(client.id) else { return }
            foundRunning(client, at: now, into: &actions)
            settle(client, at: now, into: &actions)
        case .gone(let client):
            guard clients.contains(client.id) else { return }
            forget(client, at: now, into: &actions)
        case .ended(let client, let ending):
            guard clients.contains(client.id) else { return }
            processEnded(client, ending, at: now, into: &actions)
            settle(client, at: now, into: &actions)
        case .rejoined(let client, let registration, let key):
            guard clients.contains(client.id) else {
                return actions.append(.refuseRegistration(.noSuchClient, key))
            }
            catchUp(client, at: now, into: &actions)
            rejoin(client, registration, key, at: now, into: &actions)
            settle(client, at: now, into: &actions)
        case .launch(let registration, let key):
            launch(registration, key, at: now, into: &actions)
        case .quitAbsent(let identifier, let key):
            quitAbsent(identifier, key, into: &actions)
        case .disown(let identifier, let key):
            disown(identifier, key, at: now, into: &actions)
        case .memoryPressure(let sizes):
            relieve(sizes, at: now, into: &actions)
        case .machineSlept(let total):
            machineSlept = total
        case .timer:
            reachDeadlines(at: now, into: &actions)
        case .stop:
            stop(at: now, into: &actions)
        }
    }

    /// Ends a turn: each client inside its keep-alive window runs along with what is awake now, and every client
    /// that was woken in this turn is told of everything at once.
    public mutating func endTurn(at now: Instant, into actions: inout ActionBuffer) {
        let now = mutated(.chargesSleep) ? now + machineSlept : now
        let runsAlong = hasThawedInTurn && !mutated(.sleepsThroughWindow)
        let isDue = runsAlong || schedule.isDue(at: elapsed(at: now)) || pings.isDue(at: elapsed(at: now))
        if !isStopping, isDue { runKeepAlives(at: now, into: &actions) }
        hasThawedInTurn = false
        if !isStopping { startLaunches(at: now, into: &actions) }
        tellWakes(into: &actions)
        toldInTurn.removeAll()
        // Behind the wakes, which are in a hurry.
        if !isStopping, isDue { runPings(at: now, into: &actions) }
    }

    /// Delivers the wakes decided so far in mid-turn; call it only while fired sockets are still queued, and handle nothing
    /// else until the queue is empty. A client that has another of these sockets is told of it in another wake.
    public mutating func endPortion(into actions: inout ActionBuffer) {
        toldInTurn.formUnion(pendingWakes)
        tellWakes(into: &actions)
    }

    private mutating func tellWakes(into actions: inout ActionBuffer) {
        for client in pendingWakes where clients.contains(client.id) {
            tellWake(client, into: &actions)
            touch(client)
        }
        pendingWakes.removeAll(keepingCapacity: true)
    }

    /// The supervisor may be down for a while from the end of this turn on. If any keep-alive handler would be late by then,
    /// all clients inside their window run now.
    public mutating func prepareForSilence(of duration: Duration, at now: Instant) {
        if schedule.isDue(at: elapsed(at: now) + duration) { hasThawedInTurn = true }
    }

    /// Puts a client into another state.
    mutating func enter(
        _ lifecycle: Lifecycle, _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) {
        let previous = clients[client.id].lifecycle.state
        if case .launching(until: .some) = clients[client.id].lifecycle, !mutated(.keepsLaunchSlots),
            !mutated(.launchesAll)
        {
            launchQueue.end(clients[client.id].user, clients[client.id].launches.kind)
        }
        clients[client.id].lifecycle = lifecycle
        guard previous != lifecycle.state else { return }
        clients[client.id].enteredStateAt = elapsed(at: now)
        actions.append(.trace(client, .state(from: previous, to: lifecycle.state)))
    }

    /// Changes the counters of a client and those of all together.
    mutating func count(_ client: ClientID, _ change: (inout Counters) -> Void) {
        change(&clients[client.id].counters)
        change(&counters)
    }

    /// After anything that happened to a client: suspends it if nothing holds that off any more, and sets its
    /// timer.
    mutating func settle(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        guard clients.contains(client.id) else { return }
        if case .background(let background) = clients[client.id].lifecycle {
            clients[client.id].assertions.runClock(at: now, budget: settings.budgets.backgroundTasks)
            let holds = clients[client.id].assertions.holds(at: now) && !mutated(.suspendsInSpiteOfTasks)
            if background.isIdle(at: now), !holds, !isStopping, endOfSetUp(client, at: now) == nil {
                prepareToSuspend(client, at: now, into: &actions)
            }
        }
        let own = clients[client.id].nextDeadline(settings.budgets)
        deadlines.set(client.slot, to: earlier(own, endOfSetUp(client, at: now)))
        touch(client)
    }

    /// Notes that something of a client has changed.
    mutating func touch(_ client: ClientID) {
        guard notesChanges, !clients[client.id].isTouched else { return }
        clients[client.id].isTouched = true
        touched.append(client)
    }

    /// Gives the numbers of the ownerships of identifiers that have come to an end since the last time.
    public mutating func takeEndedOwnerships() -> [UInt64] {
        if endedOwnerships.isEmpty { return [] }
        defer { endedOwnerships.removeAll() }
        return endedOwnerships
    }

    /// Gives every client that has changed since the last time, once.
    public mutating func takeChanged(_ body: (ClientID, borrowing Supervision) -> Void) {
        guard !touched.isEmpty else { return }
        for client in touched where clients.contains(client.id) {
            clients[client.id].isTouched = false
            body(client, self)
        }
        touched.removeAll(keepingCapacity: true)
    }
}
