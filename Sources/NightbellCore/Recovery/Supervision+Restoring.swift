extension Supervision {
    /// Recovers the state of a previous supervisor, which may have ended at any point: clients and sockets
    /// keep their names, and operations under way are finished or cancelled. Feed `actions` to the edge, and
    /// then `endTurn`. Changes are noted from the start.
    package init(
        settings: Settings, restoring snapshot: RecoverySnapshot, at now: Instant,
        into actions: inout ActionBuffer
    ) throws(RecoverySnapshotError) {
        try self.init(settings: settings, restoring: snapshot, mutation: nil, at: now, into: &actions)
    }

    package init(
        settings: Settings, restoring snapshot: RecoverySnapshot, mutation: Mutation?, at now: Instant,
        into actions: inout ActionBuffer
    ) throws(RecoverySnapshotError) {
        self.init(settings: settings, mutation: mutation)
        notesChanges = true
        machineSlept = snapshot.machineSlept
        pressedUntil = snapshot.pressedUntil ?? Self.unpressed
        machine.handledNetwork = mutated(.restoresWithoutNetwork) ? nil : snapshot.handledNetwork
        restoreOwners(snapshot.owners)
        goneCounters = PackedCounters(words: snapshot.gone).counters
        counters = goneCounters
        pings.gone = OffloadTotals(words: snapshot.offloadsOfGone)
        let forgetsNames = mutated(.restoresNames)
        clients = SlotMap(
            try snapshot.clients.map { (old) throws(RecoverySnapshotError) in
                (old.id.id, try restored(old, at: now))
            },
            after: forgetsNames ? 0 : snapshot.clientGeneration)
        for old in snapshot.clients { lastOwnership = max(lastOwnership, old.ownership) }
        for old in snapshot.clients {
            add(old)
            restoreMedia(of: old.id, at: now)
        }
        sockets = SlotMap(
            try snapshot.sockets.map { (old) throws(RecoverySnapshotError) in
                (old.token.id, try restored(old))
            },
            after: forgetsNames ? 0 : snapshot.socketGeneration)
        addSockets(snapshot.sockets)
        let fetches = restoreFetches(snapshot.fetches)
        numberNotifications(from: snapshot.lastNotification)
        restoreNotifications(snapshot.notifications)
        var waiting: [ClientID: [RecoverySnapshot.Socket]] = [:]
        for socket in snapshot.sockets where !socket.conditions.isEmpty {
            waiting[socket.owner, default: []].append(socket)
        }
        for old in snapshot.clients.sorted(by: { $0.id.slot < $1.id.slot }) {
            resume(old, waiting[old.id] ?? [], fetches[old.id.slot], at: now, into: &actions)
        }
        resumeAbsentEvents(at: now)
        // A process that has not been told of an end yet is told when the socket fires again.
        for old in snapshot.sockets where old.endedInWake != 0 && sockets.contains(old.token.id) {
            let isPastEnd = condition(of: old.token)?.isPastEnd == true
            if !isPastEnd { noteEnd(old.token) }
        }
    }

    private mutating func restoreOwners(_ old: [RecoverySnapshot.Owner]) {
        for owner in old.sorted(by: { $0.givenUp < $1.givenUp }) {
            // An identifier in use is given up here, and taken back when its client is restored.
            let givenUp = max(owner.givenUp, 1)
            owners[owner.identifier] = Ownership(
                user: owner.user, isQuit: owner.isQuit, number: owner.number, givenUp: givenUp)
            users[owner.user, default: UserUsage()].identifiers += 1
            if let place = owners.place(of: owner.identifier) {
                users[owner.user]?.givenUp.append(
                    .init(place: place, number: givenUp), isQuit: owner.isQuit)
            }
            lastOwnership = max(lastOwnership, owner.number)
            identifiersGivenUp = max(identifiersGivenUp, givenUp)
        }
    }

    private func restored(_ old: RecoverySnapshot.Client, at now: Instant) throws(RecoverySnapshotError)
        -> Client
    {
        // Its identifier has no index yet.
        var client = Client(
            old.registration, owner: .max, at: old.registeredAt, elapsed: elapsed(at: old.registeredAt))
        client.lifecycle.register()
        if let state = old.state {
            let known = mutated(.restoresWithoutTasks) ? [] : old.tasks
            let tasks = known.map { Assertions.Task(id: $0.id, request: $0.request, name: $0.name) }
            guard client.restore(state.row, state.statistics, tasks: tasks, settings.wakes) else {
                throw .unintelligible(old.id)
            }
        }
        if mutated(.restoresTaskTime) { client.assertions.restoreTime() }
        client.launches.stateBytes = Int32(clamping: old.stateBytes)
        if !mutated(.restoresWelcome) || old.presence == .registered || old.presence == .absent {
            client.reconcile(old, at: now, elapsed: elapsed(at: now), settings.launches)
        }
        return client
    }

    private mutating func add(_ old: RecoverySnapshot.Client) {
        let identifier = old.registration.identifier
        if owners[identifier] == nil {
            let number = old.ownership == 0 ? lastOwnership + 1 : old.ownership
            lastOwnership = max(lastOwnership, number)
            owners[identifier] = Ownership(user: old.registration.user, number: number)
            users[old.registration.user, default: UserUsage()].identifiers += 1
        }
        owners[identifier]?.client = old.id
        owners[identifier]?.givenUp = 0
        if let place = owners.place(of: identifier) { clients[old.id.id].owner = place }
        users[old.registration.user, default: UserUsage()].clients += 1
        users[old.registration.user]?.stateBytes += old.stateBytes
        countWishes(of: old.id, 1)
        counters += clients[old.id.id].counters
        // The previous supervisor may have ended before the record of the quit had left it.
        if case .terminating(let terminating) = clients[old.id.id].lifecycle.stage,
            terminating.reason == .quitByUser
        {
            setQuit(true, identifier)
        }
        inherited[old.id] = InheritedRequests(last: clients[old.id.id].lastRequest)
    }

    private func restored(_ old: RecoverySnapshot.Socket) throws(RecoverySnapshotError) -> ParkedSocket {
        guard clients.contains(old.owner.id) else { throw .withoutOwner(old.token) }
        // A new process has not been told that the socket ended.
        let isEnded = old.endedInWake != 0 && clients[old.owner.id].launches.isRejoined
        return ParkedSocket(
            owner: old.owner, tag: old.tag, isStream: old.isStream, survives: old.survives,
            isRouted: old.isRouted, condition: isEnded ? .ended : .unwatched, index: 0)
    }

    /// Makes room first: growing step by step would take as long as all the rest.
    private mutating func addSockets(_ old: [RecoverySnapshot.Socket]) {
        var counts = [Int](repeating: 0, count: clients.slotCount)
        for socket in old { counts[Int(socket.owner.slot)] += 1 }
        for id in Array(clients.ids) where counts[Int(id.slot)] > 0 {
            let count = counts[Int(id.slot)]
            clients[id].sockets.reserveCapacity(count)
            clients[id].unarmed.reserveCapacity(count)
            inherited[ClientID(id)]?.adoptions.reserveCapacity(count)
            users[clients[id].user]?.sockets += count
        }
        for socket in old { add(socket, of: socket.owner) }
    }

    private mutating func add(_ old: RecoverySnapshot.Socket, of client: ClientID) {
        sockets[old.token.id].index = Int32(clients[client.id].sockets.count)
        clients[client.id].sockets.append(old.token)
        clients[client.id].unarmed.append(old.token)
        inherited[client]?.adoptions[.init(request: old.request, index: old.index)] = old.token
        if old.isRouted { machine.wishes.routedSockets += 1 }
        if let offload = old.offload { add(offload, old.token, of: client) }
    }

    // MARK: Resuming

    private mutating func resume(
        _ old: RecoverySnapshot.Client, _ waiting: [RecoverySnapshot.Socket], _ fetch: FetchRun?,
        at now: Instant, into actions: inout ActionBuffer
    ) {
        let client = old.id
        // The kernel's view of stopped processes takes precedence over the records.
        let sleepsOn = sleepsOn(old)
        let lifecycle = clients[client.id].lifecycle
        let isThawed = old.execution != .running && !sleepsOn
        let isOffloaded = sleepsOn || !isThawed && !lifecycle.mayBeFrozen && lifecycle.permitsOffload
        if !isOffloaded { endOffloads(client, into: &actions) }
        if isThawed { actions.append(.thaw(client)) }
        recovering = client
        defer { recovering = nil }
        resumeFetch(old, fetch, at: now)
        switch clients[client.id].lifecycle.stage {
        case .notRunning, .inactive, .active:
            repeatWakes(old, waiting, at: now)
        case .background(let background):
            if let until = background.enteringUntil {
                let budget = max(.zero, until.since(now))
                actions.append(.notify(client, .didEnterBackground(budget: budget)))
            }
            repeatWakes(old, waiting, at: now)
            warnAgain(client, at: now, into: &actions)
        case .suspending(let suspending):
            resumeSuspending(suspending, old, at: now, into: &actions)
        case .suspended:
            continueSleeping(old, waiting, at: now, into: &actions)
        case .terminating(.noticed(let until, let reason)):
            forgetUntoldWake(old)
            let budget = max(.zero, until.since(now))
            actions.append(.notify(client, .willTerminate(budget: budget, reason)))
        case .terminating(.killed(let reason)):
            forgetUntoldWake(old)
            actions.append(.kill(client, reason))
        case .dormant, .launching:
            continueWithoutProcess(client, into: &actions)
        }
        // The previous supervisor may not have told it.
        if sleepsOn { tellSuspended(client, into: &actions) }
        restoreObservations(old, at: now)
        resumeEvents(old, at: now)
        if wasBeingForgotten(client) { return forget(client, at: now, into: &actions) }
        // Once it runs it learns of the new supervisor, and repeats its messages.
        if old.hasMessageInFlight { callBack(client, at: now, into: &actions) }
        if isOffloaded {
            for token in offloadedSockets(of: client) where pings[token.slot].isActive {
                actions.append(.beginOffload(token))
            }
        }
        // At once, because a later event of this turn is a separate wake, which the client must not skip as a
        // repetition.
        if clients[client.id].pendingWake == .repeated { deliverWake(client, at: now, into: &actions) }
        resumeInspection(of: client, into: &actions)
        scheduleKeepAlive(client)
        scheduleFetch(client, at: now)
        suspendIfIdle(client, at: now, into: &actions)
    }

    /// Whether the previous supervisor ended while it forgot a client that was quit: some of its sockets may
    /// be closed already.
    private func wasBeingForgotten(_ client: ClientID) -> Bool {
        clients[client.id].lifecycle.isDormant && (isQuit(client) || clients[client.id].launches.isLeft)
            && !staysForLocation(client) && !staysForNotifications(client) && !staysAsDeclared(client)
    }

    /// Whether the process is stopped, or treated as such, and stays so.
    private func sleepsOn(_ old: RecoverySnapshot.Client) -> Bool {
        guard !old.hasMessageInFlight else { return false }
        switch clients[old.id.id].lifecycle.stage {
        case .suspended:
            return old.execution != .running
        case .suspending(let suspending):
            switch suspending.phase {
            case .preparing: return false
            case .freezing: return old.execution == .stopped || mutated(.restoresBelieving)
            }
        case .notRunning, .inactive, .active, .background, .terminating, .dormant, .launching:
            return false
        }
    }

    /// The wake is not delivered any more. If the client comes back, its wake numbers continue without a gap.
    private mutating func forgetUntoldWake(_ old: RecoverySnapshot.Client) {
        clients[old.id.id].lastWakeID = min(clients[old.id.id].lastWakeID, old.toldWakeID)
    }

    private mutating func resumeSuspending(
        _ suspending: Lifecycle.Suspending, _ old: RecoverySnapshot.Client, at now: Instant,
        into actions: inout ActionBuffer
    ) {
        let client = old.id
        switch suspending.phase {
        case .freezing where old.execution == .stopped || mutated(.restoresBelieving):
            // The requested freeze has completed.
            freezeConfirmed(client, epoch: suspending.epoch, at: now, into: &actions)
            armSockets(client, into: &actions)
        case .preparing, .freezing:
            let pause = clients[client.id].backoff.next(settings.suspension)
            cancelSuspension(client, epoch: suspending.epoch, pause: pause, at: now, into: &actions)
        }
    }

    private mutating func continueSleeping(
        _ old: RecoverySnapshot.Client, _ waiting: [RecoverySnapshot.Socket], at now: Instant,
        into actions: inout ActionBuffer
    ) {
        let client = old.id
        if old.execution != .running {
            if !mutated(.restoresUnarmed) { armSockets(client, into: &actions) }
            return
        }
        // It was thawed for a wake that was never decided. The conditions that woke it still hold.
        for socket in waiting where sockets[socket.token.id].condition == .unwatched {
            sockets[socket.token.id].condition = .armed
            clients[client.id].unarmed.removeAll { $0 == socket.token }
            socketFired(socket.token, socket.conditions, at: now, into: &actions)
        }
        guard case .suspended = clients[client.id].lifecycle.stage else { return }
        // Or another process resumed it.
        endOffloads(client, into: &actions)
        noteEndOfSleep(client, at: now)
        runOn(client, until: now + settings.suspension.retry, at: now, into: &actions)
        actions.append(.notify(client, .suspendCancelled(epoch: clients[client.id].lastEpoch)))
    }

    /// Repeats a wake that was decided and perhaps not delivered, under its old number. There are several if
    /// the client did not read what it was sent: then the last one also reports what the others did.
    private mutating func repeatWakes(
        _ old: RecoverySnapshot.Client, _ waiting: [RecoverySnapshot.Socket], at now: Instant
    ) {
        let client = old.id
        let wakeID = clients[client.id].lastWakeID
        guard wakeID > old.toldWakeID, !mutated(.restoresWithoutWake) else { return }
        let count = wakeID - old.toldWakeID
        func isUntold(_ mark: UInt32) -> Bool { UInt64(SocketToken.mark(of: wakeID) &- mark) < count }
        clients[client.id].pendingWake = .repeated
        let isOfSockets = count > 1 || !clients[client.id].lastWakeReasons.isDisjoint(with: .ofSockets)
        for socket in waiting where isOfSockets {
            var conditions = socket.conditions
            switch sockets[socket.token.id].condition {
            case .ended, .armedPastEnd:
                guard isUntold(socket.endedInWake) else { continue }
            case .unwatched, .armed:
                // A client that knows this wake skips the repetition. So an end that came since is reported
                // when it fires, not here.
                if sockets[socket.token.id].isFinal(conditions) {
                    conditions.formIntersection([.readable, .pathLost])
                }
                guard !conditions.isEmpty else { continue }
            }
            if conditions.contains(.pathLost) {
                sockets[socket.token.id].isPathLost = true
                clients[client.id].hasLostPaths = true
            }
            clients[client.id].fired.append(FiredSocket(token: socket.token, conditions: conditions))
        }
        for token in offloadedSockets(of: client) where isOfSockets {
            guard let finding = foundConditions[token.slot], isUntold(finding.wake) else { continue }
            noteFired(token, finding.conditions, of: client)
        }
        if count > 1 {
            for fired in clients[client.id].fired {
                clients[client.id].lastWakeReasons.formUnion(fired.conditions.wakeReasons)
            }
        }
        // The time limit of the wake starts again, because the client may not know of it yet.
        clients[client.id].lifecycle.repeatWake(.init(wakeID: wakeID, until: now + wakeBudget))
    }

    /// Repeats the warning, so that no client is ended for its background tasks without one.
    private mutating func warnAgain(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) {
        let notice = settings.budgets.expirationNotice
        guard let remaining = clients[client.id].assertions.warnAgain(at: now, notice: notice) else { return }
        actions.append(.notify(client, .backgroundTimeExpiring(remaining: remaining)))
    }
}
