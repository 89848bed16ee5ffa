/// The whole of Nightbell's behaviour, without any I/O: events in, actions out.
///
/// It is deterministic and copyable: the same events at the same instants give the same actions, so that any
/// run can be replayed. Sockets are tokens and processes are client IDs; descriptors, pids and the clock
/// belong to the edge. The edge passes the events of one turn of its loop to `handle`, then calls `endTurn`,
/// carries out the actions in order, and reports their results as further events.
package struct Supervision: Sendable, Equatable {
    package internal(set) var settings: Settings {
        get { sharedSettings.value }
        set { sharedSettings = Shared(newValue) }
    }
    private var sharedSettings: Shared<Settings>
    package internal(set) var counters = Counters()
    package internal(set) var isStopping = false

    var clients = SlotMap<Client>()
    var sockets = SlotMap<ParkedSocket>()
    var users: [UserID: UserUsage] = [:]
    var owners = Owners()
    /// How many identifiers have been given up so far.
    var identifiersGivenUp: UInt64 = 0
    var deadlines = DeadlineQueue()
    var schedule: KeepAliveSchedule
    /// The fetches of each identifier, and when the next ones are due.
    package internal(set) var fetches: FetchScheduler
    package internal(set) var observations = Observations()
    package internal(set) var notifications = NotificationTable()
    /// The fetches that are going on, by the client's slot.
    var fetchRuns = SideTable<FetchRun>()
    /// The scheduler of the pings of sockets with a suspended owner.
    var pings: PingScheduler
    /// The offloaded sockets of each client that has any, by the client's slot.
    var offloaded: [UInt32: [SocketToken]] = [:]
    /// Results of inspecting sockets with a profile, by slot; only looked up, so that the order has no
    /// effect.
    var foundConditions: [UInt32: FoundConditions] = [:]
    /// Clients with a wake to be delivered at the end of the turn, in the order of the decisions.
    var pendingWakes: [ClientID] = []
    /// Clients with a wake delivered before the end of the turn.
    var toldInTurn: Set<ClientID> = []
    var runsKeepAlivesAlong = false
    var launchQueue = LaunchQueue()
    /// How long the machine has slept since it was started: elapsed time is ahead of running time by this.
    package internal(set) var machineSlept: Duration {
        get { .nanoseconds(machineSleptNanoseconds) }
        set { machineSleptNanoseconds = newValue.nanoseconds }
    }
    private var machineSleptNanoseconds: Int64 = 0
    /// The facts about the machine that are known.
    package internal(set) var machine = MachineState()
    /// The end of the pause after memory pressure.
    var pressedUntil = Supervision.unpressed
    var lastOwnership: UInt64 = 0
    /// Whether changes are persisted.
    package var notesChanges = false
    /// The changes since the last call of `persistChanges`.
    var changes = ChangeSet()
    /// The client that is being recovered: it runs, or has been thawed already.
    var recovering: ClientID?
    /// Requests from before a recovery that clients may repeat.
    var inherited: [ClientID: InheritedRequests] = [:]
    /// The totals of the counters of clients that are gone.
    var goneCounters = Counters()
    /// The memory of clients that were ended because it was short.
    package internal(set) var bytesOfEnded: UInt64 = 0
    #if NIGHTBELL_MUTATIONS
        var mutation: Mutation?
    #endif

    /// The owner of an identifier, and the client that has it now.
    struct Ownership: Sendable, Equatable {
        let user: UserID
        var client: ClientID?
        /// Its user has quit it, and it has not been started since.
        var isQuit = false
        /// Identifies the ownership in persisted records.
        let number: UInt64
        /// The number under which it was given up last; 0 while it is in use, which it is while it has a
        /// client.
        var givenUp: UInt64 = 0
    }

    package init(settings: Settings) {
        sharedSettings = Shared(settings)
        schedule = KeepAliveSchedule(lead: settings.keepAlive.lead)
        pings = PingScheduler(settings)
        fetches = FetchScheduler(settings.fetch)
    }

    /// Applies new settings. Earlier decisions stay, such as running budgets and accepted timeouts.
    package mutating func change(_ settings: Settings) {
        self.settings = settings
        schedule.lead = settings.keepAlive.lead
        pings.change(settings)
        // The movements to be reported may have changed.
        observations.unsettled.formUnion(observations.table.slots)
    }

    /// When the next keep-alive handler must run, in elapsed time: the machine wakes for it.
    package var nextKeepAlive: Instant? { isStopping ? nil : schedule.nextDeadline }

    /// When `Event.timer` must be fed at the latest; the loop's only timer is set to it.
    package var nextDeadline: Instant? {
        guard !isStopping else { return nil }
        let own = deadlines.first?.instant
        if mutated(.forgetsKeepAliveTimer), own != nil { return own }
        let elapsing = earlier(
            earlier(schedule.nextDeadline, pings.nextDeadline),
            earlier(observations.due, notifications.nextDeadline)
        ).map { $0.advanced(byNanoseconds: -machineSleptNanoseconds) }
        let prepared = earlier(machine.sleepPreparation?.until, fetchDeadline)
        return earlier(earlier(earlier(own, launchDeadline), elapsing), prepared)
    }

    /// Converts running time to elapsed time, which goes on while the machine sleeps.
    package func elapsed(at now: Instant) -> Instant {
        mutated(.chargesSleep) || mutated(.ignoresSleep)
            ? now : now.advanced(byNanoseconds: machineSleptNanoseconds)
    }

    /// Frees the memory of clients and sockets that are gone. It takes time in proportion to the remaining
    /// ones.
    package mutating func giveMemoryBack() {
        clients.giveMemoryBack()
        sockets.giveMemoryBack()
    }

    /// Handles one event. Wakes are collected until `endTurn`.
    package mutating func handle(_ event: Event, at now: Instant, into actions: inout ActionBuffer) {
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
                return suspendIfIdle(client, at: now, into: &actions)
            }
            let wasSettingUp = endOfSetUp(client, at: now) != nil
            receive(message, from: client, key, at: now, into: &actions)
            if wasSettingUp { lingerAfterSetUp(client, at: now) }
            suspendIfIdle(client, at: now, into: &actions)
        case .command(let command, let client, let key):
            guard clients.contains(client.id) else {
                return actions.append(.commandAnswer(.noSuchClient, key))
            }
            catchUp(client, at: now, into: &actions)
            obey(command, client, key, at: now, into: &actions)
            suspendIfIdle(client, at: now, into: &actions)
        case .simulate(let occurrence, let name, let client, let key):
            simulate(occurrence, name, client, key, at: now, into: &actions)
        case .fired(let token, let conditions), .thawedEarly(let token, let conditions):
            guard sockets.contains(token.id) else { return }
            let owner = sockets[token.id].owner
            catchUp(owner, at: now, into: &actions)
            socketFired(token, conditions, at: now, into: &actions)
            suspendIfIdle(owner, at: now, into: &actions)
        case .inspected(let token, let inspection):
            noteInspection(token, inspection, at: now, into: &actions)
        case .offloadBegan(let token, let terms, let isAwaitingAnswer):
            offloadBegan(token, terms, isAwaitingAnswer: isAwaitingAnswer, at: now)
        case .pingFailed(let token):
            catchUp(ownerOf: token, at: now, into: &actions)
            pingFailed(token, at: now, into: &actions)
        case .delegatedStateLost(let token):
            catchUp(ownerOf: token, at: now, into: &actions)
            delegatedStateLost(token, at: now, into: &actions)
        case .pingOmitted(let token):
            pingOmitted(token, at: now)
        case .answerLookedFor(let token):
            catchUp(ownerOf: token, at: now, into: &actions)
            answerMissing(token, at: now, into: &actions)
        case .frozen(let client, let epoch):
            guard clients.contains(client.id) else { return }
            freezeConfirmed(client, epoch: epoch, at: now, into: &actions)
            suspendIfIdle(client, at: now, into: &actions)
        case .notFrozenYet(let client, let epoch):
            guard clients.contains(client.id) else { return }
            freezePending(client, epoch: epoch, at: now)
            suspendIfIdle(client, at: now, into: &actions)
        case .freezeFailed(let client, let epoch):
            guard clients.contains(client.id) else { return }
            freezeFailed(client, epoch: epoch, at: now, into: &actions)
            suspendIfIdle(client, at: now, into: &actions)
        case .foundRunning(let client):
            guard clients.contains(client.id) else { return }
            foundRunning(client, at: now, into: &actions)
            suspendIfIdle(client, at: now, into: &actions)
        case .gone(let client):
            guard clients.contains(client.id) else { return }
            forget(client, at: now, into: &actions)
        case .ended(let client, let ending):
            guard clients.contains(client.id) else { return }
            processEnded(client, ending, at: now, into: &actions)
            suspendIfIdle(client, at: now, into: &actions)
        case .rejoined(let client, let registration, let key):
            guard clients.contains(client.id) else {
                return actions.append(.refuseRegistration(.noSuchClient, key))
            }
            catchUp(client, at: now, into: &actions)
            rejoin(client, registration, key, at: now, into: &actions)
            suspendIfIdle(client, at: now, into: &actions)
        case .launch(let registration, let key):
            launch(registration, key, at: now, into: &actions)
        case .declare(let registration, let notBefore, let reasons):
            declare(registration, notBefore: notBefore, reasons, at: now, into: &actions)
        case .quitAbsent(let identifier, let key):
            quitAbsent(identifier, key, into: &actions)
        case .disown(let identifier, let key):
            disown(identifier, key, at: now, into: &actions)
        case .memoryPressure(let sizes):
            endLargestSleepers(sizes, at: now, into: &actions)
        case .fact(let fact):
            learn(fact, at: now, into: &actions)
        case .pathsInspected(let client, let broken):
            guard clients.contains(client.id) else { return }
            catchUp(client, at: now, into: &actions)
            pathsInspected(client, broken, at: now, into: &actions)
            suspendIfIdle(client, at: now, into: &actions)
        case .machineSlept(let total):
            let hasSlept = total > machineSlept
            machineSlept = total
            if hasSlept { inspectPathsAfterSleep(into: &actions) }
        case .timer:
            reachDeadlines(at: now, into: &actions)
        case .stop:
            stop(at: now, into: &actions)
        }
    }

    /// Ends a turn: each client inside its keep-alive window runs if any client was thawed, a window is about
    /// to end, a ping is due, or an upgrade is near; and every client woken in this turn gets all its reasons
    /// in one wake.
    package mutating func endTurn(at now: Instant, into actions: inout ActionBuffer) {
        let now = mutated(.chargesSleep) ? now + machineSlept : now
        // Before the keep-alives, which run along with any wake.
        if !isStopping {
            runFetches(at: now, into: &actions)
            runNotifications(at: now, into: &actions)
            // Some of their wakes wait for others.
            runObservations(at: now, into: &actions)
        }
        prepareForSleep(at: now, into: &actions)
        let runsAlong = runsKeepAlivesAlong && !mutated(.sleepsThroughWindow)
        let isDue = runsAlong || schedule.isDue(at: elapsed(at: now)) || pings.isDue(at: elapsed(at: now))
        if !isStopping, isDue { runKeepAlives(at: now, into: &actions) }
        runsKeepAlivesAlong = false
        if !isStopping { startLaunches(at: now, into: &actions) }
        finishSleepPreparation(at: now)
        deliverWakes(at: now, into: &actions)
        toldInTurn.removeAll()
        // After the wakes, which are urgent.
        if !isStopping, isDue { runPings(at: now, into: &actions) }
    }

    /// Delivers the wakes decided so far in mid-turn; call it only while fired sockets are still queued, and
    /// handle nothing else until the queue is empty. If another of these sockets belongs to a client already
    /// notified, it gets another wake.
    package mutating func endPortion(at now: Instant, into actions: inout ActionBuffer) {
        toldInTurn.formUnion(pendingWakes)
        deliverWakes(at: now, into: &actions)
    }

    private mutating func deliverWakes(at now: Instant, into actions: inout ActionBuffer) {
        for client in pendingWakes where clients.contains(client.id) {
            deliverWake(client, at: now, into: &actions)
            touch(client)
        }
        pendingWakes.removeAll(keepingCapacity: true)
    }

    /// Prepares for the supervisor to be down for `duration` after this turn. If any keep-alive handler would
    /// be late by then, all clients inside their window run now.
    package mutating func prepareForSilence(of duration: Duration, at now: Instant) {
        if schedule.isDue(at: elapsed(at: now) + duration) { runsKeepAlivesAlong = true }
    }

    /// Gives a client's life cycle an input that may lead to another state.
    mutating func advance(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer,
        _ input: (inout Lifecycle) -> Void
    ) {
        let previous = clients[client.id].lifecycle.state
        let heldLaunchSlot = clients[client.id].lifecycle.holdsLaunchSlot
        countMedia(of: client, -1)
        input(&clients[client.id].lifecycle)
        countMedia(of: client, 1)
        if heldLaunchSlot, !clients[client.id].lifecycle.holdsLaunchSlot, !mutated(.keepsLaunchSlots),
            !mutated(.launchesAll)
        {
            launchQueue.end(clients[client.id].user, clients[client.id].launches.kind)
        }
        let state = clients[client.id].lifecycle.state
        guard previous != state else { return }
        clients[client.id].enteredStateAt = elapsed(at: now)
        actions.append(.trace(client, .state(from: previous, to: state)))
        noteForFetch(client, from: previous, to: state, at: now)
        if !state.observesSame(as: previous) { lookAtObservations(of: client, at: now) }
    }

    /// Counts an event of a client.
    mutating func count(_ counter: Counter, of client: ClientID) {
        clients[client.id].packedCounters.count(counter)
        counters.count(counter)
    }

    mutating func countWake(_ reasons: WakeReasons, of client: ClientID) {
        count(.wakes, of: client)
        if reasons.contains(.socket) { count(.wakesSocket, of: client) }
        if reasons.contains(.keepAlive) { count(.wakesKeepAlive, of: client) }
        if reasons.contains(.request) { count(.wakesRequest, of: client) }
        if reasons.contains(.clientMessage) { count(.wakesClientMessage, of: client) }
        if !reasons.isDisjoint(with: [.unanswered, .pathLost]) { count(.wakesPathLost, of: client) }
        if reasons.contains(.location) { count(.wakesLocation, of: client) }
        if reasons.contains(.bluetooth) { count(.wakesBluetooth, of: client) }
        if reasons.contains(.device) { count(.wakesDevice, of: client) }
        if reasons.contains(.transfer) { count(.wakesTransfer, of: client) }
        if reasons.contains(.push) { count(.wakesPush, of: client) }
        if reasons.contains(.notification) { count(.wakesNotification, of: client) }
    }

    mutating func countSleep(of client: ClientID, _ nanoseconds: UInt64) {
        clients[client.id].packedCounters.countSleep(nanoseconds)
        counters.asleepNanoseconds += nanoseconds
    }

    /// Called after each event of a client: suspends it if nothing holds that off any more, and sets its
    /// timer.
    ///
    /// Only a client in the background is suspended, and these hold it off: entering the background, an open
    /// wake, lingering or the pause after a refused attempt (`LifecycleStage.Background`); background tasks
    /// and media (`Assertions`); a fetch (`isFetching`) or a push (`isHandlingPush`); the set-up after a launch
    /// (`endOfSetUp`); and the end of the supervisor.
    mutating func suspendIfIdle(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        guard clients.contains(client.id) else { return }
        if case .background(let background) = clients[client.id].lifecycle.stage {
            clients[client.id].assertions.runClock(at: now, budget: settings.budgets.backgroundTasks)
            let isHeld =
                isFetching(client) && !mutated(.suspendsWhileFetching)
                || isHandlingPush(client) && !mutated(.suspendsDuringPushes)
            let holds =
                isHeld
                || clients[client.id].assertions.holds(at: now) && !mutated(.suspendsInSpiteOfTasks)
            if background.isIdle(at: now), !holds, !isStopping, endOfSetUp(client, at: now) == nil {
                prepareToSuspend(client, at: now, into: &actions)
            }
        }
        setDeadline(client, at: now)
        touch(client)
    }

    mutating func setDeadline(_ client: ClientID, at now: Instant) {
        let own = clients[client.id].nextDeadline(settings.budgets)
        let endOfFetch = isFetching(client) ? fetchRuns[client.slot].until : nil
        let endOfWork = earlier(endOfFetch, endOfPush(client))
        deadlines.set(client.slot, to: earlier(earlier(own, endOfWork), endOfSetUp(client, at: now)))
    }
}
