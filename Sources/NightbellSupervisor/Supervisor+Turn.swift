import EventLoop
import Keeper
import LinuxSystem
import NightbellCore
import NightbellParking
import Suspension

/// One turn of the loop: everything that has happened is fed to the core, and its actions are carried out.
extension Supervisor {
    func turn(_ batch: [Ready]) {
        let isFirst = !hasBegun
        now = Instant(nanoseconds: clocks.read())
        takeOver()
        updateMachineSleep()
        if isInput(batch) {
            guard handleInput(batch) else { return }
        } else {
            dispatch(batch)
        }
        advance()
        housekeep()
        if isFirst, hasBegun { configuration.onStarted() }
    }

    /// Feeds in everything that has happened: fired sockets come before the backlog of the last turn.
    private func dispatch(_ batch: [Ready]) {
        hasFired = false
        socketQuota.beginTurn()
        let isBehind = !backlog.isEmpty
        var inputs: [Ready] = []
        for ready in batch {
            // The first ones of a turn need not wait for their users' turns.
            let isFirst = !isBehind && inputs.count < Self.inspectionsAtOnce
            if isFirst, WatchToken(rawValue: ready.token).kind == .offloadedSocket {
                inputs.append(ready)
            } else {
                handle(ready)
            }
        }
        if hasFired {
            // A backlog may hold these wakes up.
            if isBehind { endTurn() } else { flush() }
        }
        if !inputs.isEmpty { _ = handleInputs(inputs) }
        serveBacklog()
        continueSurvey()
        endFailedLaunches()
    }

    /// Feeds in everything that is due, and lets the core end the turn: afterwards all its actions are
    /// carried out.
    private func advance() {
        if !hasBegun { begin() }
        forgetHungUp()
        thawAbandonedUnits()
        launchMissing()
        if let kill = launches.nextKill, kill <= now || supervision.isStopping { killLaunches(dueBy: now) }
        lookAtMachine()
        lookAtClock()
        if let deadline = ask({ $0.nextDeadline }), deadline <= now { feed(.timer) }
        disconnectSilent()
        superviseMonitor()
        superviseTransfers()
        if upgrade.quiesceOrder != nil { supervision.prepareForSilence(of: Self.longestSilence, at: now) }
        endTurn()
        if launchActivated() { endTurn() }
        parked.endTurn()
        suspender.finishDeferredWork()
    }

    /// Does the work that no client waits for, and prepares for the next turn.
    private func housekeep() {
        sendEvents()
        inspectLocks()
        giveMemoryBack()
        if case .lameDuck(let until) = phase, now >= until || isLameDuckOver { finish() }
        setTimer()
        forgetUnusedSettings()
        journal?.link.flush()
        quiesce()
        // The keeper may have ended it meanwhile.
        if case .lameDuck = phase {
            sendEvents()
            setTimer()
        }
    }

    /// The first part of a turn, of which the rest is still to come. Some clients run already while the core
    /// still takes them for asleep: everything else that is due waits until the core has been told.
    func handlePortion(_ batch: [Ready]) {
        now = Instant(nanoseconds: clocks.read())
        updateMachineSleep()
        // It contains only sockets.
        for ready in batch { handle(ready) }
        feedFollowUps()
        supervision.endPortion(at: now, into: &buffer)
        flush()
        parked.endTurn()
        suspender.finishDeferredWork()
        journal?.link.flush()
    }

    private func endFailedLaunches() {
        for client in launches.takeEnded() {
            // It may have said Hello, which has not been read yet.
            if let attempt = launches.attempt(of: client), let connection = connections[attempt.connection],
                connection.isWaiting
            {
                receiveMessages(connection)
            }
            guard let attempt = launches.attempt(of: client), attempt.process.hasExited else { continue }
            launchEnded(client)
        }
    }

    func handle(_ ready: Ready) {
        let token = WatchToken(rawValue: ready.token)
        switch token.kind {
        case .listener:
            acceptConnections()
        case .timer where token.names(WatchToken.clock):
            clockWasSet()
        case .timer where token.names(WatchToken.zone):
            zoneMayHaveChanged()
        case .timer:
            timer.clear()
        case .signal:
            beginLameDuck()
        case .reload:
            reloadUnasked()
        case .reloaded where token.names(WatchToken.locks):
            noteLocks()
        case .reloaded where token.names(WatchToken.departed):
            departedEnded()
        case .reloaded:
            continueReload()
        case .connectionReadable:
            if let connection = connections[token] { connectionReadable(connection) }
        case .connectionWritable:
            if let connection = connections[token] { continueSending(connection) }
        case .processExit:
            guard let connection = connections[token] else { return }
            connection.hasProcessEnded = true
            enqueue(connection)
        case .launchExit:
            if let client = launches.client(for: token) { launches.noteEnd(of: client) }
        case .memoryPressure:
            relieveMemory()
        case .socket:
            if ready.wasHandledEarly, let owner = token.owner, unsafe earlyWaker.hasThawed(owner) {
                suspender.markThawed(slot: owner)
            }
            if let socket = parked.token(for: token) {
                hasFired = true
                socketReady(socket, ready)
            }
        case .offloadedSocket:
            if let socket = parked.token(for: token) { enqueueInspection(socket, ready) }
        case .keeper:
            receiveFromKeeper()
        case .monitor:
            receiveReports(UInt64(token.slot))
        case .monitorExit:
            monitorExited(UInt64(token.slot))
        case .transfers:
            transfersReady(token)
        case nil:
            preconditionFailure("the loop made up a token")
        }
    }

    /// The first turn: it comes as soon as the loop runs.
    private func begin() {
        hasBegun = true
        recallOwnership()
        if journal?.hasBegun != true { launchDeclared() } else { continueWaiting() }
        resumeTransfers()
        journal?.hasBegun = true
    }

    /// Finds out what has happened, without reading or clearing anything, and tells the core. The sockets of
    /// a batch share one `flush`.
    func socketFired(_ token: SocketToken, _ ready: Ready) {
        guard let descriptor = parked.descriptor(of: token) else { return }
        if parked.isArmedPastEnd(token), !SocketTraffic.hasUnread(descriptor) { return }
        parked.noteFired(token)
        let conditions = Conditions(Poll.now(descriptor))
        guard ready.wasHandledEarly else {
            return supervision.handle(.fired(token, conditions), at: now, into: &buffer)
        }
        // The input that its owner was thawed for counts, even if that, or another process that shares the
        // socket, has read it since.
        let seen: Conditions = ready.readable ? .readable : .peerClosed
        supervision.handle(
            .thawedEarly(token, conditions.isEmpty ? seen : conditions), at: now, into: &buffer)
    }

    /// Feeds one event to the core and carries out its actions.
    func feed(_ event: Event) {
        var context = RequestContext()
        feed(event, &context)
    }

    /// Feeds the event of a request, and carries out its actions with the rest of the request.
    func feed(_ event: Event, _ context: inout RequestContext) {
        supervision.handle(event, at: now, into: &buffer)
        flush(&context)
    }

    /// Lets the core end the turn, and feeds in the outcomes of its actions until there are none.
    func endTurn() {
        repeat {
            feedFollowUps()
            supervision.endTurn(at: now, into: &buffer)
            flush()
        } while !followUps.isEmpty
    }

    private func feedFollowUps() {
        while !followUps.isEmpty {
            let events = followUps
            followUps.removeAll(keepingCapacity: true)
            for event in events { feed(event) }
        }
    }
}
