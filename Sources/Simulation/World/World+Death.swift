package import NightbellCore

/// What outlives a supervisor that dies: what it wrote through before it acted.
struct Held {
    var clients: [ClientID: Legacy.Client] = [:]
    var sockets: [SocketToken: Legacy.Socket] = [:]
    var offloads: [SocketToken: Legacy.Offload] = [:]
    /// By their numbers.
    var owners: [UInt64: Legacy.Owner] = [:]
    var gone = Progress.CounterWords(repeating: 0)
    var clientGeneration: UInt32 = 0
    var socketGeneration: UInt32 = 0
    /// Requests that had been carried out when the supervisor died, and not been answered.
    var carriedOut: Set<UInt64> = []
    /// Requests that the next supervisor reads for the first time, and then again.
    var unread: Set<UInt64> = []
    /// What had been counted at the end of the last whole turn.
    var counted = Counters()
}

/// The supervisor dies at any moment, and another takes over.
extension World {
    /// Whether this is the moment at which it dies. From then on nothing is done any more.
    mutating func isLastMoment() -> Bool {
        guard let left = momentsLeft else { return false }
        if left > 0 { momentsLeft = left - 1 }
        return left == 0
    }

    /// It may thaw whoever is certain to be woken, and die before it has decided anything.
    mutating func diesAfterThaw(_ event: Event) -> Bool {
        guard momentsLeft != nil, case .fired(let token, _) = event, let id = core.certainToThaw(by: token),
            let client = client(id), client.execution != .running, random.once(in: 2)
        else { return false }
        client.execution = .running
        note("\(client.name) is thawed")
        return true
    }

    // MARK: Writing through

    /// What has changed, before it is acted upon.
    mutating func writeThrough(_ event: Event?) {
        var held = Held()
        swap(&held, &self.held)
        core.takeChanged { id, core in
            held.clients[id]?.progress = (core.progress(of: id), core.figures(of: id))
            held.clients[id]?.tasks = core.tasks(of: id)
        }
        core.takeChangedOffloads { token, offload in held.offloads[token] = offload }
        switch event {
        case .fired(let token, _), .judged(let token, _): noteEnd(of: token, &held)
        default: break
        }
        swap(&held, &self.held)
    }

    func noteEnd(of token: SocketToken, _ held: inout Held) {
        guard core.condition(of: token) == .ended, let socket = held.sockets[token], socket.endedInWake == 0
        else { return }
        held.sockets[token]?.endedInWake = SocketToken.mark(of: core.wakeID(of: socket.owner))
    }

    mutating func keep(_ action: Action) {
        switch action {
        case .registered(let id, _):
            guard let client = client(id) else { return }
            var kept = Legacy.Client(id: id, registration: client.registration, registeredAt: now)
            kept.progress = (core.progress(of: id), core.figures(of: id))
            kept.ownership = core.owner(of: client.registration.identifier)?.number ?? 0
            held.clients[id] = kept
            held.clientGeneration = max(held.clientGeneration, UInt32(id.rawValue >> 32))
            keepOwner(of: client.registration.identifier)
        case .close(let token):
            held.sockets[token] = nil
            held.offloads[token] = nil
        case .forget(let id, let identifier, _):
            if held.clients[id] != nil { keepOwner(of: identifier) }
            held.clients[id] = nil
            held.gone = core.figuresOfGone
        case .park, .launch, .rejoined, .declared, .keepState, .dropState:
            keepLaunch(action)
        case .refuseRegistration, .answer, .handedOver, .commandAnswer, .notify, .arm, .freeze, .checkFreeze,
            .thaw, .kill, .trace, .beginOffload, .endOffload, .ping, .lookForAnswer:
            break
        }
    }

    mutating func keepOwner(of identifier: ClientIdentifier) {
        for number in core.takeEndedOwnerships() { held.owners[number] = nil }
        guard let owner = core.owner(of: identifier) else { return }
        // The record of its client says it.
        held.owners[owner.number] = owner.givenUp == 0 && !owner.isQuit ? nil : owner
    }

    mutating func keep(
        _ token: SocketToken, _ offer: SocketOffer, _ owner: ClientID, _ key: RequestKey, _ index: Int
    ) {
        held.sockets[token] = Legacy.Socket(
            token: token, owner: owner, tag: offer.tag, isStream: offer.isStream, request: key.request,
            index: UInt16(index), survives: offer.survives)
        held.socketGeneration = max(held.socketGeneration, UInt32(token.rawValue >> 32))
    }

    // MARK: Death

    /// Everything that only the supervisor knew is gone; `index` is the first event that it had not taken in.
    mutating func die(before index: Int) {
        coverage.deaths += 1
        momentsLeft = nil
        note("the supervisor dies")
        noteUnanswered(before: index)
        // Nobody watches any more; the end of a process goes on being true.
        for client in clients {
            for socket in client.sockets {
                socket.isWatched = false
                socket.isQueued = false
            }
        }
        isGathering = false
        undisturbed = nil
        for (token, offload) in held.offloads {
            guard let socket = socket(token) else { continue }
            let wasActive = offload.wasActive
            if !wasActive { socket.stopDealing() }
            // A ping that was sent and not written down, or the other way round.
            socket.isAwaiting = wasActive && offload.wasAwaitingAnswer
            socket.pingedAt = offload.lastPing
            socket.isDealtWith = wasActive
            socket.partialSince = nil
        }
        queue.removeAll { event, _ in
            switch event {
            case .gone, .ended: false
            default: true
            }
        }
        for case .gone(let id) in events where client(id) != nil { queue.append((.gone(id), now)) }
        noteUnheard(before: index)
        for client in lateThaws { client.execution = .running }
        lateThaws.removeAll()
        releasing = nil
        isTraffic = false
        pressedUntil = Instant(nanoseconds: .min)
        mustBeEnded.removeAll()
        waiting.removeAll()

        let outage = random.duration(upTo: random.once(in: 4) ? .milliseconds(200) : .milliseconds(5))
        for client in clients { client.untoldSince = now }
        now = now + outage
        isStalled = true
        for client in clients {
            for socket in client.sockets { socket.waitingSince = socket.waitingSince.map { $0 + outage } }
        }
        takeOver()
    }

    private mutating func noteUnanswered(before index: Int) {
        for action in actions.actions[interpreted...] {
            if case .answer(.done, _, let key) = action { held.carriedOut.insert(key.request) }
        }
        for client in clients {
            for index in client.toRepeat.indices { client.toRepeat[index].isUnread = false }
        }
        var unread: [(ClientMessage, ClientID, RequestKey)] = []
        for event in events[index...] {
            if case .message(let message, let id, let key) = event { unread.append((message, id, key)) }
            if case .registration(_, let key) = event { registrations[key] = nil }
        }
        for (key, sender) in unanswered {
            guard let sender, let message = sent[key] else { continue }
            noteRepetition(message, sender, key, isUnread: false)
        }
        for (message, sender, key) in unread {
            noteRepetition(message, sender, key, isUnread: !key.isRepeated && random.once(in: 2))
        }
        held.unread.removeAll()
        for client in clients { client.toRepeat.sort { $0.request < $1.request } }
    }

    private mutating func noteRepetition(
        _ message: ClientMessage, _ sender: ClientID, _ key: RequestKey, isUnread: Bool
    ) {
        // Who has no process repeats nothing; another one of its has nothing to repeat.
        guard let client = client(sender), client.execution != .absent else { return }
        switch message {
        case .readyToSuspend, .mediaActivity, .restartNoted: return
        default: break
        }
        client.toRepeat.removeAll { $0.request == key.request }
        client.toRepeat.append(.init(message: message, request: key.request, isUnread: isUnread))
    }

    /// Once a client runs and has heard of it, it repeats what was not answered, before anything new.
    mutating func repeatRequests(_ client: SimulatedClient) {
        guard client.execution == .running, !client.isKilled, !client.toRepeat.isEmpty || client.isToRejoin
        else { return }
        var said: [Event] = []
        if client.isToRejoin { said.append(.rejoined(client.id, client.registration, nextKey())) }
        client.isToRejoin = false
        for repetition in client.toRepeat where repetition.isUnread {
            held.unread.insert(repetition.request)
            said.append(.message(repetition.message, from: client.id, key(repetition.request, false)))
        }
        for repetition in client.toRepeat {
            said.append(.message(repetition.message, from: client.id, key(repetition.request, true)))
        }
        said.append(.message(.restartNoted, from: client.id, nextKey()))
        events.insert(contentsOf: said, at: 0)
        client.toRepeat.removeAll()
    }

    private func key(_ request: UInt64, _ isRepeated: Bool) -> RequestKey {
        RequestKey(connection: request & 7, request: request, isRepeated: isRepeated)
    }

    /// A repetition of what this very supervisor has answered gets no second answer.
    func isAnswerDue(_ key: RequestKey) -> Bool { !key.isRepeated || !held.unread.contains(key.request) }

    // MARK: The next one

    private mutating func takeOver() {
        actions.removeAll()
        interpreted = 0
        unanswered.removeAll()
        mustBeTold.removeAll()
        isTakingOver = true
        isRestoring = true
        do throws(LegacyError) {
            core = try Supervision(
                settings: settings, taking: legacy, mutation: mutation, at: now, into: &actions)
        } catch {
            return violate(.restart, "what was left is not understood: \(error)")
        }
        var held = Held()
        swap(&held, &self.held)
        for token in Array(held.sockets.keys) { noteEnd(of: token, &held) }
        swap(&held, &self.held)
        traffic.removeAll()
        for client in clients { believeTasks(client) }
        writeThrough(nil)
        events.removeAll()
        isGathering = true
        carryOutActions()
        isTakingOver = false
        takeInFollowUps()
        // Nobody came to write down that it was given up.
        for (identifier, owner) in disowned where core.ownership(of: identifier) != nil {
            owners[identifier] = owner
        }
        foresee(.timer)
        if let deadline = core.nextDeadline, deadline <= now {
            core.handle(.timer, at: now, into: &actions)
            writeThrough(nil)
            carryOutActions()
        }
        takeInFollowUps()
        isGathering = false
        keepUp(isTimer: true)
        isTraffic = false
        core.endTurn(at: now, into: &actions)
        writeThrough(nil)
        carryOutActions()
        keepUp(isTimer: true)
        isRestoring = false
        hasThawed = false
        for client in clients { believe(client) }
        checkCounters()
        expected = core.counters
        replay = core
    }

    private mutating func takeInFollowUps() {
        while !events.isEmpty {
            let event = events.removeFirst()
            foresee(event)
            core.handle(event, at: now, into: &actions)
            writeThrough(event)
            carryOutActions()
        }
    }

    /// What the edge finds, in a fixed order.
    package var legacy: Legacy {
        var legacy = Legacy()
        legacy.clients = held.clients.values.sorted { $0.id.rawValue < $1.id.rawValue }
        for index in legacy.clients.indices {
            switch client(legacy.clients[index].id)?.execution {
            case .running, .absent, nil: legacy.clients[index].execution = .running
            case .stopping: legacy.clients[index].execution = .stopping
            case .stopped: legacy.clients[index].execution = .stopped
            }
        }
        legacy.sockets = held.sockets.values.sorted { $0.token.rawValue < $1.token.rawValue }
        for index in legacy.sockets.indices {
            legacy.sockets[index].conditions = socket(legacy.sockets[index].token)?.conditions ?? []
            legacy.sockets[index].offload = held.offloads[legacy.sockets[index].token]
        }
        legacy.owners = held.owners.values.sorted { $0.number < $1.number }
        legacy.gone = held.gone
        legacy.clientGeneration = held.clientGeneration
        legacy.socketGeneration = held.socketGeneration
        return legacy
    }

    /// From here on the rules count from what the next supervisor knows.
    private mutating func believe(_ client: SimulatedClient) {
        let state = core.state(of: client.id)
        let died = client.untoldSince
        client.isTouched = true
        client.untoldSince = nil
        client.wasBusy = true
        client.busyAt = now
        guard let view = core.view(of: client.id, at: now), let progress = held.clients[client.id]?.progress
        else { return violate(.restart, "\(client.name) is lost") }
        believeLaunches(client, view)
        if client.execution == .running {
            client.freezing = nil
            client.asleepSince = nil
            client.isFailing = false
        } else if state == .suspended {
            // Whatever became of the attempt: it is asleep.
            client.asleepSince = client.asleepSince ?? view.enteredStateAt
            client.isAttempted = false
            client.isFailing = false
        }
        for socket in client.sockets where socket.hasProfile {
            socket.expectedOffload = core.offload(of: socket.token, at: now)?.counters ?? OffloadCounters()
            let mark = SocketToken.mark(of: core.wakeID(of: client.id) + 1)
            let known = core.offloadLegacy(of: socket.token)
            socket.found = known?.foundInWake == mark ? known?.found ?? [] : []
            let isOwed = state == .dormant || state == .launching
            if isOwed, !socket.found.isEmpty { client.owed.append(socket.token) }
            guard client.execution != .running, !client.isKilled, state != .terminating else { continue }
            let wasActive = held.offloads[socket.token]?.wasActive ?? false
            require(
                .restart, !socket.isDealtWith || wasActive,
                "nobody goes on with \(Wording.name(socket.token))")
        }
        let excess = Int(progress.words[0] >> 40 & 0xFF)
        client.traffic = TrafficLimit(progress.figures, excess: excess, settings.wakes)
        believeTime(client, state, since: died)
        client.expected = view.counters
        if let since = client.asleepSince {
            client.expected.asleepNanoseconds -= UInt64(now.since(since).nanoseconds)
        }
        if state != .terminating, state != .launching {
            let wakeID = core.wakeID(of: client.id)
            require(.restart, client.lastWakeID == wakeID, "\(client.name) was not told of wake \(wakeID)")
        }
    }

    /// The one that died may have begun and ended tasks in its last turn, of which nobody has heard.
    private mutating func believeTasks(_ client: SimulatedClient) {
        let tasks = core.tasks(of: client.id).map(\.id)
        var begun = 0
        var ended: [UInt64] = []
        for repetition in client.toRepeat {
            switch repetition.message {
            case .beginBackgroundTask: begun += 1
            case .endBackgroundTask(let task): ended.append(task)
            default: break
            }
        }
        let isOver = client.isBeingEnded || client.execution == .absent
        for task in client.tasks where !isOver && !tasks.contains(task) {
            require(.restart, ended.contains(task), "task \(task) of \(client.name) is lost")
        }
        let new = tasks.count { !client.tasks.contains($0) }
        require(.restart, new <= begun, "\(client.name) holds tasks that it has not begun")
        client.tasks = tasks
    }

    /// What the one that died carried out in its last turn may not have been heard of.
    private mutating func believeTime(
        _ client: SimulatedClient, _ state: ClientState, since died: Instant?
    ) {
        switch state {
        case .inactive: client.stay = .inactive
        case .active: client.stay = .active
        case .background, .suspending, .suspended: client.stay = .background
        case .notRunning, .terminating, .dormant, .launching: break
        }
        if let until = core.mediaUntil(of: client.id) { client.mediaUntil = max(client.mediaUntil, until) }
        let clock = core.taskClock(of: client.id).map {
            SimulatedClient.TaskClock(until: $0.until, isWarned: $0.isWarned)
        }
        if let clock, state == .background {
            let begun = (died ?? now) + settings.budgets.backgroundTasks
            let warned = now + settings.budgets.expirationNotice
            let earliest = client.clock?.until ?? begun
            let latest = client.clock.map { max($0.until, warned) } ?? now + settings.budgets.backgroundTasks
            require(
                .restart, clock.until >= earliest && clock.until <= latest,
                "\(client.name) has another time for its tasks")
        }
        client.clock = clock
        client.dueSince = nil
    }

    /// Nothing that was counted in a whole turn is forgotten.
    private mutating func checkCounters() {
        let (before, after) = (Mirror(reflecting: held.counted), Mirror(reflecting: core.counters))
        for (old, new) in zip(before.children, after.children) {
            guard let old = old.value as? UInt64, let new = new.value as? UInt64 else { continue }
            require(.restart, new >= old, "a counter went back from \(old) to \(new)")
        }
    }

    /// A thaw that the one that died had decided, or that undoes what it had begun.
    mutating func takeUpThaw(_ client: SimulatedClient) {
        client.execution = .running
        client.freezing = nil
        client.asleepSince = nil
        client.isFailing = false
        client.wokenAtStep = steps
    }

    /// One that was killed is killed again, in case it was not.
    mutating func takeUpKill(_ client: SimulatedClient, _ reason: TerminationReason) {
        client.terminating = nil
        if client.ending != .quitByUser { client.ending = reason }
        guard !client.isKilled else { return }
        endSleep(client, isEnd: true)
        client.isKilled = true
        coverage.kills += 1
        queue.append((.ended(client.id, .failed), now))
    }
}
