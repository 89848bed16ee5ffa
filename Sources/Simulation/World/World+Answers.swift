import NightbellCore

/// The correct answer to each request, from the rules: a refusal has a reason, and a request without one is
/// granted.
extension World {
    /// A request, with the state before it was handled.
    struct Asked {
        var command: Command?
        /// A client that was not connected asks to be admitted.
        var isNew = false
        /// The client that has sent it, or that it is about.
        var client: SimulatedClient?
        /// The client was being ended already.
        var wasBeingEnded = false
        /// It releases or ends something that belongs to the client.
        var isOwn = false
        /// The reason for which it must be refused.
        var refusal: Refusal?
    }

    mutating func ask(_ message: ClientMessage, _ client: SimulatedClient) {
        asked = Asked(client: client, wasBeingEnded: client.isBeingEnded)
        switch message {
        case .release(let token): asked.isOwn = socket(token)?.owner === client
        case .endBackgroundTask(let task): asked.isOwn = client.tasks.contains(task)
        case .handOver, .enterBackground, .backgroundEntered, .enterForeground, .setKeepAliveTimeout,
            .clearKeepAliveTimeout, .beginBackgroundTask, .backgroundTimeRemaining, .mediaActivity,
            .readyToSuspend, .wakeDone, .setMinimumFetchInterval, .fetchDone, .pushDone, .observe,
            .stopObserving,
            .schedule, .cancelNotifications, .setBadge, .saveState, .hibernate, .restartNoted:
            break
        }
    }

    // MARK: Clients

    func isRight(
        _ answer: Answer, to message: ClientMessage, of client: SimulatedClient, _ key: RequestKey
    ) -> Bool {
        guard client.hasSpoken else { return answer == .refused(.illegalState(client.state)) }
        let modes = client.registration.modes
        switch message {
        case .readyToSuspend, .wakeDone, .backgroundEntered, .restartNoted, .clearKeepAliveTimeout:
            return answer == .done
        case .enterBackground where client.isUnmodified && !client.isBeingEnded && core.isStopping:
            return answer == .refused(.shuttingDown)
        case .enterBackground:
            // A client that is ended only because this request woke it once too often gets the normal answer.
            let isThere = !client.isBeingEnded || !asked.wasBeingEnded && client.ending == .tooManyWakes
            return answer == (isThere ? .done : .refused(.illegalState(.terminating)))
        case .enterForeground:
            return answer == (client.isBeingEnded ? .refused(.illegalState(.terminating)) : .done)
        case .saveState(let byteCount):
            return answer == (refusal(ofState: byteCount, client).map(Answer.refused) ?? .done)
        case .hibernate:
            return answer == (client.registration.isLaunchable ? .done : .refused(.cannotLaunch))
        case .setMinimumFetchInterval:
            return answer == .refused(.modeRequired(.fetch))
        case .fetchDone:
            return answer == .refused(.noFetch)
        case .pushDone:
            return answer == .refused(.noPush)
        // `ObservationLife` is the world of clients that observe.
        case .observe(_, let subject):
            return answer == .refused(.modeRequired(subject.mode))
        // `NotificationLife` is the world of clients with notifications.
        case .schedule:
            return answer == .scheduled(dropped: nil)
        case .stopObserving, .cancelNotifications, .setBadge:
            return answer == .done
        case .handOver:
            return false  // answered socket by socket
        case .release:
            return isRight(answer, partingElse: .invalidToken, key)
        case .endBackgroundTask:
            return isRight(answer, partingElse: .invalidTask, key)
        case .setKeepAliveTimeout(let timeout):
            let minimum = settings.keepAlive.minimumTimeout
            guard modes.contains(.voip) else { return answer == .refused(.modeRequired(.voip)) }
            let maximum = Settings.KeepAlive.maximumTimeout
            if timeout > maximum { return answer == .refused(.timeoutTooLong(maximum: maximum)) }
            return answer == (timeout < minimum ? .refused(.timeoutTooShort(minimum: minimum)) : .done)
        case .mediaActivity:
            guard modes.contains(.audio) else { return answer == .refused(.modeRequired(.audio)) }
            let isHeard = machine.hasStreams[client.user] != true || client.mediaUntil == .distantFuture
            return answer == (isHeard ? .done : .refused(.noStream))
        case .beginBackgroundTask:
            return isRight(answer, toBeginTaskOf: client, key)
        case .backgroundTimeRemaining:
            guard case .backgroundTimeLeft(let left) = answer else { return false }
            // The time left is not defined once the supervisor stops.
            let longest = settings.budgets.backgroundTasks
            if core.isStopping { return left.map { $0 >= .zero && $0 <= longest } ?? true }
            return left == timeLeft(client)
        }
    }

    /// A request that was carried out before the supervisor died is not refused when it is repeated.
    private func isRight(_ answer: Answer, partingElse refusal: Refusal, _ key: RequestKey) -> Bool {
        if asked.isOwn { return answer == .done }
        return answer == .refused(refusal) || (key.isRepeated && answer == .done)
    }

    private func isRight(
        _ answer: Answer, toBeginTaskOf client: SimulatedClient, _ key: RequestKey
    ) -> Bool {
        // The task was begun for a request that was not answered.
        if case .backgroundTask(let task?) = answer, key.isRepeated, client.tasks.contains(task) {
            return true
        }
        guard !client.isBeingEnded else { return answer == .backgroundTask(nil) }
        if core.isStopping, answer == .backgroundTask(nil) { return true }
        // No task is granted to a client that could not be warned of the end of its time with the whole
        // notice.
        let notice = settings.budgets.expirationNotice
        if let clock = client.clock, clock.isWarned || now >= clock.until - notice, !core.isStopping {
            return answer == .backgroundTask(nil)
        }
        if client.tasks.count >= settings.quotas.backgroundTasksPerClient {
            return answer == .refused(.tooManyTasks)
        }
        if case .backgroundTask(_?) = answer { return true }
        return false
    }

    /// `nil`: without end.
    private func timeLeft(_ client: SimulatedClient) -> Duration? {
        guard !client.isBeingEnded else { return .zero }
        guard client.stay == .background, now >= client.mediaUntil else { return nil }
        return client.clock.map { max(.zero, $0.until.since(now)) } ?? settings.budgets.backgroundTasks
    }

    private func refusal(ofState byteCount: Int, _ client: SimulatedClient) -> Refusal? {
        guard client.registration.isLaunchable else { return .cannotLaunch }
        let quotas = settings.quotas
        guard byteCount <= quotas.stateBytesPerClient else {
            return .stateTooLarge(limit: quotas.stateBytesPerClient)
        }
        let others = clients.reduce(0) {
            $1.user == client.user && $1 !== client ? $0 + $1.stateBytes : $0
        }
        let left = quotas.stateBytesPerUser - others
        return byteCount <= left ? nil : .stateTooLarge(limit: max(0, left))
    }

    func isRight(_ refusal: Refusal, of offer: SocketOffer, _ client: SimulatedClient) -> Bool {
        let isVoip = offer.tag == .voip
        switch refusal {
        case .modeRequired(let modes):
            return modes == offer.neededModes && client.registration.modes.isDisjoint(with: modes)
                && !client.isUnmodified
        case .notPollable: return !offer.isPollable
        case .notASocket: return isVoip && !offer.isSocket
        case .listeningSocket: return offer.isListening && offer.tag != .listener
        case .notAListener: return !offer.isListening && offer.tag == .listener
        case .socketError: return offer.hasPendingError && offer.tag != .device
        case .notConnected: return isVoip && offer.isStream && !offer.isConnected
        case .cannotLaunch: return offer.survives && !client.registration.isLaunchable
        case .tooManySockets: return isFull(client)
        case .invalidProfile, .opaqueSocket, .profileNotForThis, .receiveBufferNotForThis:
            return offer.profileRefusal == refusal
        case .identifierInUse, .identifierOfOtherUser, .tooManyClients, .shuttingDown, .noStream,
            .timeoutTooShort, .timeoutTooLong,
            .invalidToken, .invalidTask, .illegalState, .tooManyTasks, .noSuchClient, .stateTooLarge,
            .networkChangesNotWanted, .noKeepAlive, .noFetch, .noPush, .noSuchObservation,
            .tooManyObservations,
            .tooManyNotifications:
            return false
        }
    }

    /// The client is warned that its time is about to end.
    mutating func warned(_ client: SimulatedClient, _ remaining: Duration) {
        // A supervisor that takes over repeats the warning when it restores the clients.
        guard !isRestoring else { return }
        let notice = settings.budgets.expirationNotice
        guard var clock = client.clock, !clock.isWarned, now >= clock.until - notice else {
            return violate(.budgets, "\(client.name) is warned too early that its time ends")
        }
        // No client is ended without a warning: it has the whole notice even if the timer was served late.
        clock.until = max(clock.until, now + notice)
        clock.isWarned = true
        client.clock = clock
        require(
            .budgets, remaining == clock.until.since(now),
            "\(client.name) is told that it has \(TraceFormat.words(remaining)) left")
    }

    // MARK: Administrators

    /// An administrator gets an answer.
    mutating func take(_ refusal: Refusal?) {
        let expected = asked.command.map { refusalOf($0) } ?? asked.refusal
        require(
            .answers, refusal == expected,
            "an administrator is answered \(TraceFormat.words(refusal)) instead of \(TraceFormat.words(expected))"
        )
    }

    private func refusalOf(_ command: Command) -> Refusal? {
        guard let client = asked.client else { return .noSuchClient }
        switch command {
        case .quit: return nil
        case .simulateNetworkChange, .simulateSleep, .simulateUnlock:
            return refusalOfSimulated(command, client)
        case .wake where client.state == .launching && client.isLeftAlone: return .illegalState(.launching)
        case .wake, .launch: return client.state == .terminating ? .illegalState(.terminating) : nil
        // `FetchLife` is the world of clients that fetch.
        case .simulateFetch, .simulateFetchLaunch: return .modeRequired(.fetch)
        case .suspend:
            if core.isStopping { return .shuttingDown }
            switch client.state {
            case .suspending, .suspended: return nil
            case .background:
                // It has been woken, and is told at the end of the turn.
                let isBusy = client.isBusy(at: now) || client.wokenAtStep == steps
                return isBusy ? .illegalState(.background) : nil
            case .notRunning, .inactive, .active, .terminating, .dormant, .launching:
                return .illegalState(client.state)
            }
        }
    }

    func refusalOfLaunch(_ registration: Registration) -> Refusal? {
        let namesake = clients.first { $0.registration.identifier == registration.identifier }
        if namesake?.user == registration.user { return nil }
        guard registration.isLaunchable else { return .cannotLaunch }
        if core.isStopping { return .shuttingDown }
        if let owner = owners[registration.identifier], owner.user != registration.user {
            return .identifierOfOtherUser
        }
        let own = clients.count { $0.user == registration.user }
        return own < settings.quotas.clientsPerUser ? nil : .tooManyClients
    }

    func refusalToDisown(_ identifier: ClientIdentifier) -> Refusal? {
        guard owners[identifier] != nil else { return .noSuchClient }
        guard let client = clients.first(where: { $0.registration.identifier == identifier }) else {
            return nil
        }
        return client.state == .dormant ? nil : .illegalState(client.state)
    }
}
