import NightbellCore

/// The notification servers of sessions, and the monitors of these.
extension NotificationLife {
    package mutating func follow() {
        for user in Self.users { serve(user) }
    }

    /// The monitor of a user's session shows and closes what is demanded, and reports it.
    private mutating func serve(_ user: UserID) {
        guard let server = servers[user], violation == nil else { return }
        let demand = world.core.notificationDemand(of: user)
        let isKnown = demand.server == server.name
        if isKnown, !demand.closes.isEmpty || !demand.withdrawals.isEmpty, world.random.once(in: 8) {
            return die()
        }
        for id in demand.closes where isKnown {
            close(id, user)
            world.events.append(.fact(.notifications(of: user, .closed(id))))
        }
        for number in demand.withdrawals where !isUnderWay(number, user) {
            if let id = server.latest(of: number) { close(id, user) }
            world.events.append(.fact(.notifications(of: user, .withdrawn(number))))
        }
        given[user]?.formIntersection(demand.posts.map { Showing($0) })
        for post in demand.posts where isKnown || post.replaces == 0 {
            let showing = Showing(post)
            guard !isUnderWay(post.number, user), given[user, default: []].insert(showing).inserted else {
                continue
            }
            guard give(post, user) else { return }
        }
    }

    private func isUnderWay(_ number: UInt64, _ user: UserID) -> Bool {
        late.contains { $0.user == user && $0.showing.number == number }
    }

    private mutating func close(_ id: UInt32, _ user: UserID) {
        coverage.closes += 1
        servers[user]?.shown[id] = nil
        if servers[user]?.ends[id] == nil { servers[user]?.ends[id] = .closed(id) }
    }

    /// - Returns: whether the supervisor lives on.
    private mutating func give(_ post: NotificationPost, _ user: UserID) -> Bool {
        guard let server = servers[user] else { return true }
        let showing = Showing(post)
        var replaced = post.replaces
        if let end = server.ends[replaced] {
            world.events.append(.fact(.notifications(of: user, end)))
            if post.isRenewal { return true }
            replaced = 0
        }
        if let id = server.noted[showing] {
            // It was shown already, for a supervisor that has died: once more in its place, without a sound.
            report(user, server, showing, as: id)
            if let end = server.ends[id] { world.events.append(.fact(.notifications(of: user, end))) }
            return true
        }
        guard !post.isRenewal else {
            coverage.renewals += 1
            servers[user]?.noted[showing] = replaced
            report(user, server, showing, as: replaced)
            return true
        }
        if replaced == 0 { replaced = server.latest(of: post.number) ?? 0 }
        return show(post, replaced, user, server)
    }

    private mutating func show(
        _ post: NotificationPost, _ replaced: UInt32, _ user: UserID, _ server: Server
    ) -> Bool {
        guard let request = Int(post.content.title) else { return true }
        let showing = Showing(post)
        let index = requests[request].client
        let words = "\(requests[request].identifier) of \(world.name(index)) (\(request))"
        world.require(
            desks[index].owed[requests[request].identifier] == request
                || requests[request].repetitions > 0 || requests[request].isCancelled,
            "\(words) is shown, and its time has not come")
        world.require(
            !desks[index].comeInForeground.contains(request),
            "\(words) is shown while its client is in the foreground")
        if world.random.once(in: 12) {
            let refusal = NotificationFact.refused(number: post.number, revision: post.revision)
            world.events.append(.fact(.notifications(of: user, refusal)))
            given[user]?.remove(showing)
            return true
        }
        coverage.shown += 1
        deliver(request, "shown")
        let id = replaced != 0 ? replaced : server.lastID + 1
        servers[user]?.lastID = max(server.lastID, id)
        servers[user]?.shown[id] = request
        servers[user]?.owners[id] = index
        servers[user]?.noted[showing] = id
        servers[user]?.ends[id] = nil
        // The supervisor dies before it hears of it, or hears late.
        let delay = world.random.once(in: 3) ? world.random.duration(upTo: .seconds(900)) : .zero
        late.append(LateReport(user: user, showing: showing, id: id, request: request, at: world.now + delay))
        if world.random.once(in: 15) {
            die()
            return false
        }
        if delay == .zero { hear(late.removeLast()) } else { coverage.lateReports += 1 }
        return true
    }

    /// The supervisor hears of what was shown a while ago.
    mutating func hearLate() {
        let heard = late.filter { $0.at <= world.now }
        guard !heard.isEmpty else { return }
        late.removeAll { $0.at <= world.now }
        for report in heard { hear(report) }
        turn([])
    }

    private mutating func hear(_ late: LateReport) {
        guard let server = servers[late.user] else { return }
        report(late.user, server, late.showing, as: late.id)
    }

    private mutating func report(_ user: UserID, _ server: Server, _ showing: Showing, as id: UInt32) {
        let display = NotificationEntry.Display(id: id, server: server.name)
        let fact = NotificationFact.shown(
            number: showing.number, revision: showing.revision, display)
        world.events.append(.fact(.notifications(of: user, fact)))
    }

    /// The server goes before the supervisor has heard that it shows this: another one has to show it.
    mutating func loseShown(_ report: LateReport) {
        coverage.lostReports += 1
        let request = report.request
        requests[request].repetitions += 1
        let (index, identifier) = (requests[request].client, requests[request].identifier)
        guard !report.isReplaced, !requests[request].isCancelled, desks[index].owed[identifier] == nil else {
            return
        }
        desks[index].owed[identifier] = request
    }
}
