package import NightbellCore

/// The rules of notifications, and what follows from them.
extension NotificationLife {
    // MARK: Their time

    /// Moves on: the times of some have come.
    mutating func comeDue() {
        clock = clock.settled(at: world.now)
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
        let (index, identifier) = (requests[request].client, requests[request].identifier)
        desks[index].owed[identifier] = request
        // It takes the place of those that came before.
        desks[index].unfinished.removeAll { !$0.kind.isActivation && $0.identifier == identifier }
        for place in late.indices where isAbout(late[place], index, identifier) {
            late[place].isReplaced = true
        }
        if world.clients[index].isAlive, world.clients[index].isForeground {
            desks[index].comeInForeground.insert(request)
            // The supervisor does not know of the former one that it is shown.
            let known = remembered(index)
            for report in late where isAbout(report, index, identifier) && !known.contains(report.id) {
                requests[report.request].isOutdated = true
            }
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

    func isAbout(_ report: LateReport, _ index: Int, _ identifier: String) -> Bool {
        requests[report.request].client == index && requests[report.request].identifier == identifier
    }

    /// - Parameter isDropped: it was one too many: a delivery that is not finished is none of those.
    private mutating func forget(_ identifier: String, _ index: Int, isDropped: Bool = false) {
        let user = world.clients[index].registration.user
        let delivered = desks[index].unfinished.filter {
            !$0.kind.isActivation && $0.identifier == identifier
        }
        let kept = isDropped ? delivered.compactMap { Int($0.content.title) } : []
        for request in requests.indices
        where requests[request].client == index && requests[request].identifier == identifier {
            requests[request].due = nil
            requests[request].local = nil
            if !kept.contains(request) { requests[request].isCancelled = true }
        }
        desks[index].scheduled[identifier] = nil
        desks[index].owed[identifier] = nil
        if !isDropped {
            desks[index].unfinished.removeAll { !$0.kind.isActivation && $0.identifier == identifier }
        }
        // One that was forgotten is not closed. A person may still click on it; the click comes to nothing.
        let shown = servers[user]?.shown ?? [:]
        for (id, request) in shown where requests[request].isCancelled {
            let isLate = late.contains { $0.user == user && $0.id == id }
            if !isLate, !desks[index].remembered.contains(id) { servers[user]?.shown[id] = nil }
        }
    }

    /// Of too many the soonest are kept. Those that are to be shown count, also if a process has failed with
    /// them: then there may be more than the limit.
    private mutating func checkDropped(_ dropped: String?, _ index: Int) {
        func due(_ identifier: String) -> Instant? {
            if let owed = desks[index].owed[identifier], !desks[index].comeInForeground.contains(owed) {
                return .distantPast
            }
            if late.contains(where: { isAbout($0, index, identifier) && !$0.isReplaced }) {
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
        forget(dropped, index, isDropped: true)
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
        desks[index].unfinished += notified
        // Some processes end before they have finished.
        guard !notified.isEmpty, world.random.once(in: 8) else { return true }
        allowUnfinishedAgain(index)
        return false
    }

    /// Some take a while.
    package mutating func delays(_ wake: Wake, _ index: Int) -> Bool {
        guard !wake.notified.isEmpty, world.random.once(in: 3) else {
            desks[index].unfinished = []
            desks[index].open = nil
            return false
        }
        desks[index].open = (wake.wakeID, world.now + world.random.duration(upTo: .seconds(900)))
        return true
    }

    /// The process fails: what it has not finished is told or shown once more.
    mutating func allowUnfinishedAgain(_ index: Int) {
        for event in desks[index].unfinished { allowAgain(event, index) }
        desks[index].unfinished = []
        desks[index].open = nil
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

    mutating func deliver(_ request: Int, _ how: String) {
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

    // MARK: The end of a step

    /// Nothing that was cancelled is left on the screen, and nothing is lost: once all has been done that follows from an event, what is owed waits for a server or
    /// a client only.
    mutating func checkOwed() {
        for (user, server) in servers {
            let left = server.shown.filter { id, request in
                (requests[request].isCancelled || isOutdated(request, id))
                    && !late.contains { $0.user == user && $0.id == id }
            }
            let word = left.values.min().map { requests[$0].identifier } ?? ""
            world.require(
                left.isEmpty, "\(word) of uid \(user) was cancelled, or is outdated, and is still shown")
        }
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

    /// Unless one waits that takes its place, or the supervisor knows by now that it is shown.
    private func isOutdated(_ request: Int, _ id: UInt32) -> Bool {
        let request = requests[request]
        return request.isOutdated && desks[request.client].owed[request.identifier] == nil
            && !remembered(request.client).contains(id)
    }

    package mutating func begin(_ index: Int) { desks[index].lastScheduled = nil }

    package mutating func end(_ index: Int) {
        desks[index].comeInForeground = []
        desks[index].unfinished = []
        desks[index].open = nil
        // Nothing launches it any more for what it was told, if it is done, or was quit.
        let client = world.clients[index]
        if client.id == nil || client.isQuit || client.hasGivenUp { desks[index].activations = [] }
    }

    package mutating func loseSupervisor() {
        // The next one cannot know whether the clock was set before it came, and aims anew.
        followClock()
        coverage.deaths += 1
        coverage.lostReports += late.count
        for report in late { requests[report.request].isReportLost = true }
        // Their showings are noted.
        late = []
        given = [:]
        listener += 1
    }
}

extension Instant {
    fileprivate static var distantPast: Instant { Instant(nanoseconds: .min) }
}
