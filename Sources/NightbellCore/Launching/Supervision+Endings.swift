/// Handles the end of a client's process.
extension Supervision {
    mutating func processEnded(
        _ client: ClientID, _ ending: Ending, at now: Instant, into actions: inout ActionBuffer
    ) {
        guard !isStopping else { return forget(client, at: now, into: &actions) }
        switch clients[client.id].lifecycle.stage {
        case .notRunning, .dormant:
            break  // the end of another process, handled already
        case .terminating(let terminating):
            ended(client, terminating.reason, at: now, into: &actions)
        // A process that succeeds before it has identified itself has nothing to do, or was ended on purpose.
        case .launching, .inactive, .active, .background, .suspending, .suspended:
            switch ending {
            case .succeeded where !mutated(.relaunchesAfterSuccess):
                dropToldEvents(of: client)
                leave(client, isDone: true, at: now, into: &actions)
            case .succeeded: crashed(client, at: now, into: &actions)
            case .notStarted where !mutated(.blamesClients):
                postponeLaunch(client, for: Self.pauseInShortage, at: now, into: &actions)
            case .programMissing where !mutated(.blamesClients):
                postponeLaunch(
                    client, for: Self.pauseWithoutProgram(after: clients[client.id].launches.misses), at: now,
                    into: &actions)
                if clients.contains(client.id) {
                    clients[client.id].launches.misses = min(
                        clients[client.id].launches.misses + 1, Self.mostMisses)
                }
            case .failed, .notStarted, .programMissing: crashed(client, at: now, into: &actions)
            }
        }
    }

    /// The supervisor terminated it.
    private mutating func ended(
        _ client: ClientID, _ reason: TerminationReason, at now: Instant, into actions: inout ActionBuffer
    ) {
        switch reason {
        case .quitByUser:
            dropActivations(of: client)
            if staysForLocation(client) || staysForNotifications(client) {
                leaveForLocation(client, into: &actions)
            } else if !mutated(.relaunchesQuit) || !hasSurvivors(client) {
                return forget(client, at: now, into: &actions)
            }
            becomeDormant(client, .resting, at: now, into: &actions)
        case .launchOverran, .backgroundTasksOverran, .fetchOverran, .pushOverran:
            crashed(client, at: now, into: &actions)
        case .tooManyWakes:
            guard clients[client.id].isLaunchable, mustReturn(client) else {
                return leave(client, at: now, into: &actions)
            }
            // Not a crash: its peers' traffic must not exhaust its relaunches. The pause is the time it would
            // have lingered.
            if mustBeReachable(client) { clients[client.id].launches.reasons.insert(.relaunched) }
            let linger = clients[client.id].limiter.linger(settings.wakes)
            let pause = mutated(.relaunchesAtOnce) ? .zero : max(settings.launches.retry, linger)
            becomeDormant(client, .waiting(until: now + pause), at: now, into: &actions)
        case .memoryPressure:
            guard clients[client.id].isLaunchable else { return forget(client, at: now, into: &actions) }
            if losesReach(client), !mutated(.leavesRelieved) {
                clients[client.id].launches.reasons.insert(.relaunched)
            }
            becomeDormant(client, .resting, at: now, into: &actions)
        case .hibernation, .exitsOnSuspend:
            guard clients[client.id].isLaunchable else { return forget(client, at: now, into: &actions) }
            becomeDormant(client, .resting, at: now, into: &actions)
        }
    }

    /// It is done, or need not return. A client with notifications stays without a process, so that one
    /// of them can launch it, and a declared one so that its pushes and transfers can; nothing else does, unless
    /// it is requested.
    ///
    /// - Parameter isDone: it has ended well. Of one that has failed, only what is still to come launches it.
    private mutating func leave(
        _ client: ClientID, isDone: Bool = false, at now: Instant, into actions: inout ActionBuffer
    ) {
        let isDeclared = staysAsDeclared(client)
        guard isDeclared || staysForNotifications(client) else {
            return forget(client, at: now, into: &actions)
        }
        endObservations(of: client) { isDeclared && $0.usualName != nil }
        dropWhatLaunches(client, into: &actions)
        if !(isDeclared && isDone) { dropOccurrences(of: client) }
        becomeDormant(client, .resting, at: now, into: &actions)
    }

    /// Whether a client stays after its end, because something may come for it for which it is launched.
    func staysAsDeclared(_ client: ClientID) -> Bool {
        clients[client.id].isDeclared && clients[client.id].isLaunchable && !isStopping && !isQuit(client)
            && observations(of: client).contains { $0.subject.usualName != nil }
    }

    /// Its user has quit it: of what could launch it, its location services and its notifications remain.
    mutating func leaveForLocation(_ client: ClientID, into actions: inout ActionBuffer) {
        let launches = mutated(.relaunchesQuitForAnything)
        dropActivations(of: client)
        endObservations(of: client) { launches || $0.mode == .location && $0.launches }
        dropWhatLaunches(client, into: &actions)
        dropOccurrences(of: client)
    }

    private mutating func dropWhatLaunches(_ client: ClientID, into actions: inout ActionBuffer) {
        clients[client.id].launches.isLeft = true
        for token in clients[client.id].sockets.reversed() {
            remove(token, client)
            actions.append(.close(token, of: clients[client.id].user))
        }
        dropState(client, into: &actions)
        clients[client.id].launches.reasons = []
    }

    /// It failed: if it has to be reachable, it is launched again a few times with back-off.
    private mutating func crashed(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) {
        failFetch(client, at: now, into: &actions)
        count(.crashes, of: client)
        actions.append(.trace(client, .crashed))
        clients[client.id].launches.misses = 0
        let launches = clients[client.id].launches
        if launches.hasSettled || hasRunLongEnough(client, at: now) {
            clients[client.id].launches.inRow = 0
            clients[client.id].launches.failuresAtStart = 0
        } else {
            clients[client.id].launches.failuresAtStart = min(launches.failuresAtStart, .max - 1) + 1
        }
        // Its saved state may be the cause of the failure.
        if clients[client.id].launches.failuresAtStart >= 2, !mutated(.keepsBadState) {
            dropState(client, into: &actions)
        }

        guard clients[client.id].isLaunchable, mustReturn(client) else {
            return leave(client, at: now, into: &actions)
        }
        let inRow = Int(clients[client.id].launches.inRow)
        guard inRow < settings.launches.relaunches || mutated(.relaunchesForEver) else {
            count(.gaveUp, of: client)
            actions.append(.trace(client, .gaveUp))
            dropActivations(of: client)
            return leave(client, at: now, into: &actions)
        }
        clients[client.id].launches.inRow = UInt8(clamping: inRow + 1)
        if mustBeReachable(client), !mutated(.neverRelaunches) {
            clients[client.id].launches.reasons.insert(.relaunched)
        }
        let pause =
            mutated(.relaunchesAtOnce)
            ? .zero
            : doubled(settings.launches.retry, times: inRow, maximum: settings.launches.retryMaximum)
        becomeDormant(client, .waiting(until: now + pause), at: now, into: &actions)
    }

    /// It could not be launched, and is not to blame: it is tried again until it works, and keeps its
    /// relaunches and its state.
    private mutating func postponeLaunch(
        _ client: ClientID, for pause: Duration, at now: Instant, into actions: inout ActionBuffer
    ) {
        failFetch(client, at: now, into: &actions)
        guard clients[client.id].isLaunchable, mustReturn(client) else {
            return leave(client, at: now, into: &actions)
        }
        if mustBeReachable(client) { clients[client.id].launches.reasons.insert(.relaunched) }
        let pause = max(settings.launches.retry, pause)
        becomeDormant(client, .waiting(until: now + pause), at: now, into: &actions)
    }

    /// Long enough for thousands of clients to be tried again without much work, short enough for a caller to
    /// wait.
    package static let pauseInShortage: Duration = .seconds(1)

    /// A program that was removed may never come back: trying all of a user's clients again must be cheap for
    /// ever. One that is being replaced comes back soon.
    ///
    /// - Parameter misses: the launches in a row before that did not find the program.
    package static func pauseWithoutProgram(after misses: UInt8) -> Duration {
        doubled(.seconds(10), times: Int(misses), maximum: longestPauseWithoutProgram)
    }

    package static let longestPauseWithoutProgram: Duration = .seconds(300)

    /// The pause is the longest one after as many.
    package static let mostMisses: UInt8 = 5

    /// Whether its process has run long enough to count as launched successfully. It must have identified
    /// itself, unless it is a program that never does.
    private func hasRunLongEnough(_ client: ClientID, at now: Instant) -> Bool {
        switch clients[client.id].lifecycle.stage {
        case .launching(until: nil):
            elapsed(at: now) >= clients[client.id].enteredStateAt + settings.launches.settled
        case .launching(until: .some), .terminating(.killed(.launchOverran)),
            .terminating(.noticed(_, .launchOverran)):
            false
        case .notRunning, .inactive, .active, .background, .suspending, .suspended, .terminating, .dormant:
            now >= clients[client.id].registeredAt + settings.launches.settled
        }
    }

    private func hasSurvivors(_ client: ClientID) -> Bool {
        clients[client.id].sockets.contains { sockets[$0.id].survives }
    }

    private func mustBeReachable(_ client: ClientID) -> Bool { clients[client.id].modes.contains(.voip) }

    private func mustReturn(_ client: ClientID) -> Bool {
        mustBeReachable(client) || hasSurvivors(client) || wantsFetch(client) && !mutated(.forgetsFetchers)
            || hasLaunchingObservations(client) || hasActivations(client)
    }

    /// Whether a client is less reachable without its process: it loses a socket or its keep-alive timeout
    /// with it, it observes something that wakes it and does not launch it, or it has to be reachable and
    /// nothing could launch it again.
    func losesReach(_ client: ClientID) -> Bool {
        let record = clients[client.id]
        return record.keepAlive != nil || record.sockets.contains { !sockets[$0.id].survives }
            || record.sockets.isEmpty && mustBeReachable(client)
            || observations(of: client).contains { $0.subject.wakes && !$0.subject.launches }
    }

    /// Its process is gone; sockets that survive it are kept and watched.
    private mutating func becomeDormant(
        _ client: ClientID, _ dormant: Lifecycle.Dormant, at now: Instant, into actions: inout ActionBuffer
    ) {
        for token in clients[client.id].sockets.reversed()
        where !sockets[token.id].survives && !mutated(.keepsAllSockets) {
            remove(token, client)
            actions.append(.close(token, of: clients[client.id].user))
        }
        // The next process has not been told of any end of stream. Conditions already reported fire again if
        // they persist.
        for token in clients[client.id].sockets {
            switch sockets[token.id].condition {
            case .unwatched, .armed: continue
            case .ended: break
            case .armedPastEnd: clients[client.id].unarmed.append(token)
            }
            noteEnd(token)
            sockets[token.id].condition = .unwatched
        }
        abandonFetch(client, at: now, into: &actions)
        endPushes(client, isHandled: false, at: now)
        clients[client.id].fired.removeAll()
        // The pending wake was never delivered.
        if clients[client.id].pendingWake.take() != nil { clients[client.id].lastWakeID -= 1 }
        clients[client.id].launches.reasons.formUnion(noteFound(again: client))
        clients[client.id].keepAlive = nil
        clients[client.id].hibernates = false
        clients[client.id].launches.isRejoined = false
        clients[client.id].launches.isInBackground = false
        clients[client.id].launches.mayHaveBeenTold = false
        tellNextProcess(of: client)
        retractEvents(of: client)
        tellNotifications(of: client, at: now)
        endTasks(client)
        clients[client.id].activity.tidy()
        noteEndOfSleep(client, at: now)
        advance(client, at: now, into: &actions) { $0.becomeDormant(dormant) }
        scheduleKeepAlive(client)
        recordBeginning(client)
        actions.append(.makeDormant(client))
        actions.append(.trace(client, .becameDormant))
        resumeOffloading(client)
        watchBeginnings(client)
        forgetLostPaths(of: client, into: &actions)
        if !mutated(.parksUnwatched) { armSockets(client, into: &actions) }
        // An earlier reason, such as a failed launch.
        let reasons = clients[client.id].launches.reasons
        if !reasons.isEmpty { requestLaunch(client, reasons.subtracting(.request), at: now, into: &actions) }
        if isOutOfReach(client) { actions.append(.trace(client, .outOfReach)) }
    }
}
