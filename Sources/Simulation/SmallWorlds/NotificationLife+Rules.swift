package import NightbellCore

/// The rules of notifications, and what follows from them.
extension NotificationLife {
    // MARK: Their time

    /// Moves on: the times of some have come.
    mutating func comeDue() {
        for index in requests.indices {
            guard isDue(index) else { continue }
            requests[index].times += 1
            switch requests[index].trigger {
            case .interval(let interval, repeats: true):
                while let due = requests[index].due, due <= world.now { requests[index].due = due + interval }
            case .calendar(let calendar, repeats: true):
                requests[index].lastLocal = requests[index].local
                requests[index].local = next(calendar, after: base(index))
            default:
                requests[index].due = nil
                requests[index].local = nil
            }
            come(index)
        }
    }

    private func isDue(_ index: Int) -> Bool {
        if let local = requests[index].local {
            return local.nanoseconds <= clock.local(at: world.now).nanoseconds
        }
        return requests[index].due.map { $0 <= world.now } ?? false
    }

    /// The next such time of day, found second by second from the beginning of the day.
    private func next(_ calendar: CalendarTime, after local: LocalTime) -> LocalTime {
        let day = Int64(LocalTime.secondsPerDay) * 1_000_000_000
        var time = Int64(local.day) * day + Int64(calendar.secondOfDay) * 1_000_000_000
        while time <= local.nanoseconds { time += day }
        return LocalTime(nanoseconds: time)
    }

    /// A clock that is set back by two hours at most repeats nothing.
    private func base(_ index: Int) -> LocalTime {
        let local = clock.local(at: world.now)
        guard let last = requests[index].lastLocal, last.nanoseconds > local.nanoseconds,
            last.nanoseconds - local.nanoseconds <= 7_200_000_000_000
        else { return local }
        return last
    }

    /// The clock is another one: times of the calendar may come sooner.
    mutating func followClock() {
        for index in requests.indices {
            switch requests[index].trigger {
            case .time(let time):
                if requests[index].due != nil { requests[index].due = clock.elapsed(at: time) }
            case .calendar(let calendar, _):
                guard let local = requests[index].local else { continue }
                let sooner = next(calendar, after: base(index))
                if sooner.nanoseconds < local.nanoseconds { requests[index].local = sooner }
            case .now, .interval: break
            }
        }
    }

    /// The time of one has come: it has to be told or shown, in the place of the one before it.
    private mutating func come(_ request: Int) {
        let index = requests[request].client
        desks[index].owed[requests[request].identifier] = request
        if world.clients[index].isAlive, world.clients[index].isForeground {
            desks[index].comeInForeground.insert(request)
        }
    }

    // MARK: Requests

    package mutating func take(_ answer: Answer, to message: ClientMessage, _ index: Int) {
        switch message {
        case .schedule(let notification):
            guard let request = Int(notification.content.title), case .scheduled(let dropped) = answer else {
                return world.require(false, "\(world.name(index)) cannot schedule: \(answer)")
            }
            begin(request, notification, index)
            checkDropped(dropped, index)
        case .cancelNotifications(let identifiers):
            world.require(answer == .done, "\(world.name(index)) cannot cancel: \(answer)")
            for identifier in identifiers ?? (0..<5).map({ "n\($0)" }) { forget(identifier, index) }
        default: break
        }
    }

    private mutating func begin(_ request: Int, _ notification: LocalNotification, _ index: Int) {
        if let former = desks[index].scheduled[notification.identifier] {
            requests[former].due = nil
            requests[former].local = nil
        }
        desks[index].scheduled[notification.identifier] = request
        switch notification.trigger {
        case .now: requests[request].due = world.now
        case .time(let time): requests[request].due = clock.elapsed(at: time)
        case .interval(let interval, _): requests[request].due = world.now + interval
        case .calendar(let calendar, _):
            requests[request].local = next(calendar, after: clock.local(at: world.now))
        }
        if notification.trigger == .now { comeDue() }
    }

    private mutating func forget(_ identifier: String, _ index: Int) {
        let user = world.clients[index].registration.user
        for request in requests.indices
        where requests[request].client == index && requests[request].identifier == identifier {
            requests[request].isCancelled = true
            requests[request].due = nil
            requests[request].local = nil
        }
        desks[index].scheduled[identifier] = nil
        desks[index].owed[identifier] = nil
        // Until it is closed a person may still click on it; the click comes to nothing.
        let shown = servers[user]?.shown ?? [:]
        for (id, request) in shown where requests[request].isCancelled { servers[user]?.shown[id] = nil }
    }

    /// Of too many the soonest are kept. Those that are to be shown count, also if a process has failed with
    /// them: then there may be more than the limit.
    private mutating func checkDropped(_ dropped: String?, _ index: Int) {
        func due(_ identifier: String) -> Instant? {
            if let owed = desks[index].owed[identifier], !desks[index].comeInForeground.contains(owed) {
                return .distantPast
            }
            return desks[index].scheduled[identifier].flatMap { request in
                requests[request].local.map { clock.elapsed(at: $0) } ?? requests[request].due
            }
        }
        let identifiers = (0..<5).map { "n\($0)" }.filter { due($0) != nil }
        guard let dropped else {
            return world.require(
                identifiers.count <= world.settings.quotas.notificationsPerClient,
                "\(world.name(index)) has \(identifiers.count) pending notifications")
        }
        coverage.dropped += 1
        world.require(
            identifiers.count > world.settings.quotas.notificationsPerClient,
            "one is dropped without need")
        let latest = identifiers.compactMap(due).max()
        world.require(
            due(dropped) == latest, "\(dropped) of \(world.name(index)) is dropped, and is not the latest")
        forget(dropped, index)
    }

    // MARK: What clients are told

    package mutating func note(_ action: Action, of index: Int) {
        if case .launch = action { coverage.launches += 1 }
    }

    package mutating func take(_ wake: Wake, _ index: Int) -> Bool {
        let notified = world.actions.notified[wake.notified]
        world.require(
            wake.reasons.contains(.notification) == !notified.isEmpty || wake.isRepeated,
            "\(world.name(index)) is woken for notifications, and told of \(notified.count)")
        for event in notified { take(event, index) }
        // Some processes end before they have finished.
        guard !notified.isEmpty, world.random.once(in: 8) else { return true }
        for event in notified { allowAgain(event, index) }
        return false
    }

    private mutating func take(_ event: NotificationEvent, _ index: Int) {
        guard let request = Int(event.content.title), requests[request].client == index else {
            return world.require(false, "\(world.name(index)) is told of a notification of another client")
        }
        coverage.told += 1
        switch event.kind {
        case .delivered: deliver(request, "told")
        case .activated:
            guard let place = desks[index].activations.firstIndex(of: request) else {
                return world.require(
                    false, "\(world.name(index)) is told of an activation that has not happened")
            }
            desks[index].activations.remove(at: place)
        }
    }

    /// It may be told or shown once more.
    private mutating func allowAgain(_ event: NotificationEvent, _ index: Int) {
        guard let request = Int(event.content.title) else { return }
        switch event.kind {
        case .delivered:
            requests[request].repetitions += 1
            // A later one of the same identifier takes its place.
            if desks[index].owed[event.identifier] == nil {
                desks[index].owed[event.identifier] = request
            }
        case .activated: desks[index].activations.append(request)
        }
    }

    private mutating func deliver(_ request: Int, _ how: String) {
        let words = "\(requests[request].identifier) of \(world.name(requests[request].client)) (\(request))"
        world.require(!requests[request].isCancelled, "\(words) is \(how), and was cancelled")
        requests[request].deliveries += 1
        world.require(
            requests[request].deliveries <= requests[request].times + requests[request].repetitions,
            "\(words) is \(how) \(requests[request].deliveries) times, and its time has come "
                + "\(requests[request].times) times")
        let index = requests[request].client
        desks[index].comeInForeground.remove(request)
        if desks[index].owed[requests[request].identifier] == request {
            desks[index].owed[requests[request].identifier] = nil
        }
    }

    // MARK: Servers

    package mutating func follow() {
        unreported = []
        for user in Self.users { serve(user) }
    }

    /// The monitor of a user's session shows and closes what is demanded, and reports it.
    private mutating func serve(_ user: UserID) {
        guard let server = servers[user], violation == nil else { return }
        let demand = world.core.notificationDemand(of: user)
        for id in demand.closes {
            servers[user]?.shown[id] = nil
            world.events.append(.fact(.notifications(of: user, .closed(id))))
        }
        for post in demand.posts {
            guard let request = Int(post.content.title) else { continue }
            let index = requests[request].client
            let (number, revision) = (post.number, post.revision)
            if post.isRenewal {
                coverage.renewals += 1
                world.require(
                    post.replaces != 0, "\(requests[request].identifier) is renewed, and is not shown")
                report(user, server, number, revision, as: post.replaces)
                continue
            }
            world.require(
                desks[index].owed[requests[request].identifier] == request
                    || requests[request].repetitions > 0
                    || requests[request].isCancelled,
                "\(requests[request].identifier) of \(world.name(index)) is shown, and its time has not come")
            if world.random.once(in: 12) {
                world.events.append(
                    .fact(.notifications(of: user, .refused(number: number, revision: revision))))
                continue
            }
            coverage.shown += 1
            deliver(request, "shown")
            let last = servers[user]?.lastID ?? 0
            let id = post.replaces != 0 ? post.replaces : last + 1
            servers[user]?.lastID = max(last, id)
            servers[user]?.shown[id] = request
            servers[user]?.owners[id] = index
            unreported.append((user, id))
            // The supervisor dies before it hears of it.
            if world.random.once(in: 15) { return die() }
            report(user, server, number, revision, as: id)
        }
    }

    private mutating func report(
        _ user: UserID, _ server: Server, _ number: UInt64, _ revision: UInt64, as id: UInt32
    ) {
        let display = NotificationEntry.Display(id: id, server: server.name)
        world.events.append(
            .fact(.notifications(of: user, .shown(number: number, revision: revision, display))))
    }

    /// The supervisor does not hear that this is shown: it is shown again.
    private mutating func loseReport(_ user: UserID, _ id: UInt32) {
        guard let request = servers[user]?.shown.removeValue(forKey: id) else { return }
        coverage.lostReports += 1
        requests[request].repetitions += 1
        let (index, identifier) = (requests[request].client, requests[request].identifier)
        if desks[index].owed[identifier] == nil { desks[index].owed[identifier] = request }
    }

    // MARK: The end of a step

    /// Nothing is lost: once all has been done that follows from an event, what is owed waits for a server or
    /// a client only.
    mutating func checkOwed() {
        for (index, client) in world.clients.enumerated() {
            let waiting = Set(
                world.core.notificationViews(after: 0, of: client.registration.identifier) { _ in true }
                    .filter { $0.presentation?.isWaiting == true }.compactMap {
                        $0.presentation?.content.title
                    })
            for (identifier, request) in desks[index].owed {
                world.require(
                    waiting.contains("\(request)"),
                    "\(identifier) of \(world.name(index)) (\(request)) is lost")
            }
            guard client.isAlive, let id = client.id, world.core.state(of: id) != .launching else { continue }
            world.require(
                desks[index].activations.isEmpty || world.core.state(of: id) == .terminating,
                "\(world.name(index)) is not told that one of its notifications was activated")
        }
    }

    package mutating func end(_ index: Int) {
        desks[index].comeInForeground = []
        // Nothing launches it any more for what it was told, if it is done, or was quit.
        let client = world.clients[index]
        if client.id == nil || client.isQuit || client.hasGivenUp { desks[index].activations = [] }
    }

    package mutating func loseSupervisor() {
        coverage.deaths += 1
        for (user, id) in unreported { loseReport(user, id) }
        unreported = []
        listener += 1
    }
}

extension Instant {
    fileprivate static var distantPast: Instant { Instant(nanoseconds: .min) }
}
