import NightbellCore

/// The machine around the clients: its network, its sleep, and its users.
struct SimulatedMachine {
    /// The address that it has now.
    var address = 0
    /// Of routes, addresses and links.
    var changes: UInt64 = 1
    /// The network that the supervisor was told of last, if it was.
    var reported: NetworkFact?
    /// The last network of which clients were told, or would have been; nil: none yet.
    var handled: UInt64?
    var unlocked = Knowledge<Set<UserID>>.unknown
    /// Users with a PipeWire that reports all streams.
    var hasStreams: [UserID: Bool] = [:]
    var isSleepImminent = false
    /// Its sleep is delayed until then at most.
    var delayedUntil: Instant?

    var network: NetworkFact {
        NetworkFact(fingerprint: UInt64(address) + 1, generation: changes, isUp: true)
    }
}

/// Facts about the machine, and what must follow from them.
extension World {
    // MARK: What happens

    /// Reports come before everything else of a turn, so that all of it happens under the same conditions.
    mutating func observeMachine() {
        guard random.once(in: 12) else { return }
        switch random.below(10) {
        case 0, 1:
            machine.address = (machine.address + 1 + random.below(2)) % 3
            changeRoutes()
        case 2: changeRoutes()
        case 3: report(.network(nil))
        case 4: report(.network(machine.network))
        case 5, 6:
            let users = Set((0..<3).filter { _ in random.once(in: 2) }.map { UserID($0) })
            let isKnown = !random.once(in: 4)
            report(.unlocked(isKnown ? .known(users) : random.once(in: 2) ? .unknown : .unavailable))
        case 7: report(.sleepImminent(isDelayed: !random.once(in: 4)))
        case 8: report(.resumed)
        default: report(.power(isOnBattery: random.once(in: 2)))
        }
    }

    private mutating func changeRoutes() {
        machine.changes += 1
        for client in clients {
            for socket in client.sockets where socket.address != nil {
                socket.isUnreachable = random.once(in: 4)
            }
        }
        report(.network(machine.network))
    }

    private mutating func report(_ fact: Fact) { events.insert(.fact(fact), at: 0) }

    /// The edge inspects the sockets of a client, a little later, and again if it is asked again.
    mutating func inspectPaths(_ id: ClientID) {
        guard client(id) != nil else { return violate(.network, "inspect an unknown client") }
        queue.removeAll { event, _ in
            if case .pathsInspected(id, _) = event { true } else { false }
        }
        queue.append((.pathsInspected(id, []), now))
    }

    func brokenPaths(of client: SimulatedClient) -> [BrokenPath] {
        client.sockets.compactMap { socket in
            guard let address = socket.address else { return nil }
            if address != machine.address { return BrokenPath(socket.token, .addressGone) }
            return socket.isUnreachable ? BrokenPath(socket.token, .unreachable) : nil
        }
    }

    // MARK: What follows

    mutating func foresee(_ fact: Fact) {
        switch fact {
        case .network(let network): foresee(network)
        case .power, .wallClock, .shortage, .position, .bluetooth, .characteristic, .accessories,
            .transfers, .discretionaryTransfers, .pushes, .pushServiceChanged, .clock, .notifications:
            break
        case .sleepImminent(let isDelayed):
            guard !machine.isSleepImminent else { return }
            machine.isSleepImminent = true
            if isDelayed, !core.isStopping { foreseeSleep() }
        case .resumed:
            machine.isSleepImminent = false
            machine.delayedUntil = nil
        case .unlocked(let users):
            machine.unlocked = users
        case .media(let user, let media): foreseeMedia(of: user, media)
        }
    }

    private mutating func foresee(_ network: NetworkFact?) {
        let before = machine.reported
        machine.reported = network
        guard let network else {
            if !needsNetwork { machine.handled = nil }
            return
        }
        let handled = machine.handled
        machine.handled = network.fingerprint
        guard let handled, !core.isStopping else { return }
        let isNew = handled != network.fingerprint
        guard isNew || before?.generation != network.generation else { return }
        if isNew { coverage.networks += 1 }
        for client in clients where client.registration.wantsNetworkChanges || hasRouted(client) {
            client.inspection = max(client.inspection, isNew ? .network : .routes)
        }
    }

    /// After a sleep all connections over the network are inspected.
    mutating func foreseeResumption(_ slept: Duration) {
        guard slept > core.machineSlept, !core.isStopping else { return }
        for client in clients where hasRouted(client) {
            client.inspection = max(client.inspection, .routes)
        }
    }

    private func hasRouted(_ client: SimulatedClient) -> Bool {
        client.sockets.contains { $0.address != nil }
    }

    private var needsNetwork: Bool {
        clients.contains { $0.registration.wantsNetworkChanges || hasRouted($0) }
    }

    mutating func foreseeInspection(of client: SimulatedClient, _ broken: [BrokenPath]) {
        let inspection = client.inspection
        client.inspection = .none
        client.isTouched = true
        noteTime(client)
        guard inspection != .none, !core.isStopping else { return }
        let asks = client.registration.wantsNetworkChanges
        let isTold = asks && inspection == .network
        var told: [SocketToken] = []
        for socket in client.sockets {
            // Its end is known to the client, and not yet to be told.
            let isToBeTold =
                client.owed.contains(socket.token) || mustBeTold.contains { $0.token == socket.token }
            let isPastEnd = core.condition(of: socket.token)?.isPastEnd == true
            let path = isPastEnd && !isToBeTold ? nil : broken.first { $0.token == socket.token }
            guard let path else {
                socket.isPathTold = false
                continue
            }
            let isNews = !socket.isPathTold && (asks || path.reason == .addressGone)
            if isTold || isNews { told.append(socket.token) }
        }
        coverage.pathsLost += UInt64(told.count)
        for socket in told.compactMap({ socket($0) }) {
            socket.isPathTold = true
            if socket.hasProfile { socket.found.insert(.pathLost) }
        }
        // Its next process is told.
        guard !client.isBeingEnded else { return }
        let isAbsent = client.execution == .absent || client.isBeingLaunched(at: now)
        guard isTold && client.execution != .absent || !told.isEmpty else {
            // One that cannot be frozen in time is thawed, whatever the event.
            return undisturbed = client.asleepSince == nil ? nil : client
        }
        var reasons: WakeReasons = told.isEmpty ? [] : .pathLost
        if asks { reasons.insert(.networkChanged) }
        if isAbsent {
            foreseeWish(client, reasons)
            client.owed += told
        } else {
            client.wokenAtStep = steps
            mustHear.append((client, reasons))
            for token in told { mustBeTold.append((client, token)) }
        }
    }

    /// The handlers that would be due within the horizon run at the end of this turn.
    private mutating func foreseeSleep() {
        machine.delayedUntil = now + settings.sleep.delay
        for client in clients {
            client.mayRunEarly = true
            client.mustRunEarly = true
            client.epochBeforeSleep = core.state(of: client.id) == .suspending ? client.lastEpoch : nil
        }
    }

    mutating func foreseeSimulated(_ command: Command, _ client: SimulatedClient) {
        guard !core.isStopping else { return }
        switch command {
        case .simulateNetworkChange where client.registration.wantsNetworkChanges:
            client.inspection = .network
        case .simulateSleep:
            client.mayRunEarly = true
            asked.isOwn = client.window != nil && client.isInBackground
        case .simulateUnlock:
            asked.isOwn = isWaitingForUnlock(client)
            client.isUnlocked = client.isUnlocked || asked.isOwn
        case .simulateNetworkChange, .simulateFetch, .simulateFetchLaunch, .wake, .suspend, .quit, .launch:
            break
        }
    }

    func refusalOfSimulated(_ command: Command, _ client: SimulatedClient) -> Refusal? {
        guard !core.isStopping else { return .shuttingDown }
        switch command {
        case .simulateNetworkChange:
            return client.registration.wantsNetworkChanges ? nil : .networkChangesNotWanted
        case .simulateSleep:
            // A deadline that has passed may end it first.
            return asked.isOwn && !client.isBeingEnded ? nil : .noKeepAlive
        case .simulateUnlock:
            return asked.isOwn ? nil : .illegalState(client.state)
        case .simulateFetch, .simulateFetchLaunch, .wake, .suspend, .quit, .launch: return nil
        }
    }

    // MARK: Users

    func isLocked(_ client: SimulatedClient) -> Bool {
        guard client.registration.waitsForUnlock else { return false }
        return switch machine.unlocked {
        case .unknown: true
        case .unavailable: false
        case .known(let users): !users.contains(client.user)
        }
    }

    private func isWaitingForUnlock(_ client: SimulatedClient) -> Bool {
        client.execution == .absent && !client.launchReasons.isEmpty && now >= client.launchNotBefore
            && isLocked(client) && !client.isUnlocked
    }

    /// Whether a client that is to be launched need not wait for its user. Once queued, it is launched.
    mutating func isUnlocked(_ client: SimulatedClient) -> Bool {
        if !isLocked(client) { client.isUnlocked = true }
        if !client.isUnlocked { coverage.launchesLocked += 1 }
        return client.isUnlocked
    }

    // MARK: Checks

    mutating func checkMachine() {
        for (client, reasons) in mustHear where !client.isKilled && !client.isGone {
            let state = core.state(of: client.id)
            if state == .terminating || state == .dormant { continue }
            violate(.network, "\(client.name) was not told: \(TraceFormat.words(reasons))")
        }
        defer {
            for client in clients {
                client.mayRunEarly = false
                client.mustRunEarly = false
            }
        }
        guard !core.isStopping else { return }
        let needs = core.neededFacts
        require(.network, needs.contains(.network) == needsNetwork, "the network is needed, or not")
        let isWaiting = clients.contains { $0.registration.waitsForUnlock }
        require(.launches, needs.contains(.users) == isWaiting, "the users are needed, or not")
        for client in clients where client.inspection != .none && !client.isKilled {
            let isUnderWay = queue.contains { event, _ in
                if case .pathsInspected(client.id, _) = event { true } else { false }
            }
            require(.network, isUnderWay, "the sockets of \(client.name) are not inspected")
        }
        checkMedia()
        checkSleep()
    }

    private mutating func checkSleep() {
        guard let until = machine.delayedUntil else { return }
        if now >= until {
            require(.keepAlive, !core.delaysSleep, "the sleep of the machine is delayed for too long")
            machine.delayedUntil = nil
        }
        for client in clients {
            if client.openWake == nil { client.ranBeforeSleep = false }
            let isAwaited = client.ranBeforeSleep && core.state(of: client.id) == .background
            let isSuspending = core.state(of: client.id) == .suspending
            if !isSuspending || client.epochBeforeSleep != client.lastEpoch { client.epochBeforeSleep = nil }
            require(
                .keepAlive, client.epochBeforeSleep == nil || now >= until || core.delaysSleep,
                "the machine sleeps while \(client.name) is being suspended")
            require(
                .keepAlive, !isAwaited || now >= until || core.delaysSleep,
                "the machine sleeps while \(client.name) runs for that")
            guard client.mustRunEarly, let window = core.view(of: client.id, at: now)?.keepAliveWindow else {
                continue
            }
            let aim = max(window.earliest, window.latest - settings.keepAlive.lead)
            require(
                .keepAlive, aim > elapsed + settings.sleep.horizon,
                "\(client.name) does not run before the machine sleeps")
        }
    }

    // MARK: Death

    /// Nothing is known to the next supervisor but the network of before.
    mutating func forgetMachine() {
        machine.reported = nil
        machine.handled = log.snapshot.handledNetwork
        machine.unlocked = .unknown
        machine.hasStreams = [:]
        machine.isSleepImminent = false
        machine.delayedUntil = nil
        mustHear.removeAll()
    }

    /// As the edge does for wakes that may not have been delivered.
    func addLostPaths(to snapshot: inout RecoverySnapshot) {
        let owners = Set(snapshot.clients.filter(\.needsPaths).map(\.id))
        for index in snapshot.sockets.indices where owners.contains(snapshot.sockets[index].owner) {
            let token = snapshot.sockets[index].token
            guard let owner = client(snapshot.sockets[index].owner),
                brokenPaths(of: owner).contains(where: { $0.token == token })
            else { continue }
            snapshot.sockets[index].conditions.insert(.pathLost)
        }
    }

    mutating func believeInspection(_ client: SimulatedClient, _ view: ClientView, _ row: ClientRow) {
        client.inspection = row.flags.inspection ?? .none
        // It was queued already.
        let launches = view.launches
        client.isUnlocked =
            view.state == .dormant && launches.notBefore == nil && !launches.reasons.isEmpty
            && !launches.isWaitingForUnlock
        client.mayRunEarly = false
        let isToBeLaunched = view.state == .dormant || view.state == .launching
        if isToBeLaunched, view.launches.reasons.contains(.pathLost) {
            client.inspection = max(client.inspection, .routes)
        }
    }
}
