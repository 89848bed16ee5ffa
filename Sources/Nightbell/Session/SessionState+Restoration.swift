package import NightbellWire

/// Restores the client's state on a new connection step by step: each step waits for the answer to the last,
/// so that nothing queues up and every refusal is matched to its step.
package struct Restoration {
    package enum Step {
        case hello
        case handOver([UInt64])
        case keepAlive
        case fetchInterval
        case observation(String, Subject)
        case task(UInt64)
        case state
        case hibernate
        case enterBackground
    }

    package let attempt: Int
    package let deadline: Int64
    /// The request in flight.
    package var number: UInt64
    package var current: Step
    /// The remaining steps, the next one last.
    package var rest: [Step]
}

extension SessionState {
    package mutating func beginRestoration(attempt: Int, at now: Int64) -> [Action] {
        var steps: [Restoration.Step] = []
        let ids = holdings.sockets.keys.sorted()
        for start in stride(from: 0, to: ids.count, by: Request.socketsPerPacket) {
            steps.append(.handOver(Array(ids[start..<min(start + Request.socketsPerPacket, ids.count)])))
        }
        if holdings.keepAlive != nil { steps.append(.keepAlive) }
        if holdings.fetchInterval != nil { steps.append(.fetchInterval) }
        for (name, subject) in holdings.observations.sorted(by: { $0.key < $1.key }) {
            steps.append(.observation(name, subject))
        }
        if !holdings.state.isEmpty { steps.append(.state) }
        if holdings.hibernates { steps.append(.hibernate) }
        steps += holdings.tasks.keys.sorted().map { .task($0) }
        switch holdings.ground {
        case .leaving, .background: steps.append(.enterBackground)
        case .undeclared, .foreground: break
        }
        let number = requests.number()
        phase = .restoring(
            Restoration(
                attempt: attempt, deadline: now + requestTimeout, number: number, current: .hello,
                rest: steps.reversed()))
        return [.send(WireClientMessage(.hello(hello), request: number))]
    }

    package mutating func restored(
        _ restoration: Restoration, _ body: WireSupervisorMessage.OneOf_Body?, at now: Int64
    ) -> [Action] {
        var actions: [Action] = []
        switch (restoration.current, body) {
        case (.hello, .welcome(let welcome)):
            self.welcome = Welcome(
                minimumKeepAliveTimeout: .wireMilliseconds(welcome.minimumKeepAliveTimeoutMs),
                suspension: welcome.suspension, wakeBudget: .wireMilliseconds(welcome.wakeBudgetMs),
                transferSocket: welcome.transferSocket, pushSocket: welcome.pushSocket)
            // Another supervisor may not know which client this one has launched.
            if !welcome.identifier.isEmpty { hello.identifier = welcome.identifier }
        case (.hello, .error(let error)):
            return lost(NightbellError(error), at: now)
        case (.handOver(let ids), .handedOver(let answer)) where answer.adoptions.count == ids.count:
            for (id, adoption) in zip(ids, answer.adoptions) { actions += readopted(id, adoption) }
        case (.handOver(let ids), .error(let error)):
            for id in ids { actions += refused(id, NightbellError(error)) }
        case (.keepAlive, .done):
            break
        case (.keepAlive, .error(let error)):
            holdings.keepAlive = nil
            actions.append(.notify(.keepAliveLost(NightbellError(error))))
        case (.fetchInterval, .done), (.observation, .done):
            break
        case (.observation(let name, _), .error):
            holdings.observations[name] = nil
        case (.fetchInterval, .error):
            holdings.fetchInterval = nil
        case (.task(let id), .backgroundTask(let task)) where task.taskID != 0:
            holdings.tasks[id]?.wireID = task.taskID
        case (.task(let id), .backgroundTask), (.task(let id), .error):
            // No time is granted: handled as if the remaining time had run out.
            if let lost = holdings.tasks.removeValue(forKey: id), let expired = lost.expired {
                actions.append(.notify(.taskLost(BackgroundTask(id: id, name: lost.name), expired: expired)))
            }
            actions.append(.notify(.backgroundTimeExpiring(.zero)))
        case (.enterBackground, .done), (.enterBackground, .error):
            break
        case (.state, .done), (.hibernate, .done):
            break
        case (.state, .error):
            holdings.state = []
        case (.hibernate, .error):
            holdings.hibernates = false
        default:
            return lost(NightbellError(.malformedAnswer, "an answer of the wrong kind"), at: now)
        }
        if case .error(let error)? = body, error.code.endsConnection {
            return actions + lost(NightbellError(error), at: now)
        }
        return actions + advance(restoration, at: now)
    }

    private mutating func advance(_ old: Restoration, at now: Int64) -> [Action] {
        var restoration = old
        guard let step = restoration.rest.popLast() else { return restorationDone(at: now) }
        restoration.current = step
        restoration.number = requests.number()
        phase = .restoring(restoration)
        return [send(step, number: restoration.number)]
    }

    mutating func send(_ step: Restoration.Step, number: UInt64) -> Action {
        switch step {
        case .hello:
            return .send(WireClientMessage(.hello(hello), request: number))
        case .handOver(let ids):
            let sockets = ids.compactMap { id in
                holdings.sockets[id].map {
                    NewSocket(
                        descriptor: $0.socket.descriptor, tag: $0.socket.tag, name: $0.socket.name,
                        file: $0.file, survives: $0.survives, profile: $0.profile,
                        isEncrypted: $0.isEncrypted, isRouted: $0.isRouted,
                        receiveBuffer: $0.receiveBuffer)
                }
            }
            return .send(.handOver(sockets, request: number), descriptors: sockets.map(\.descriptor))
        case .keepAlive:
            return .send(.setKeepAlive(milliseconds: holdings.keepAlive?.milliseconds ?? 0, request: number))
        case .fetchInterval:
            return .send(.setFetchInterval(holdings.fetchInterval ?? .never, request: number))
        case .observation(let name, let subject):
            return .send(.observe(name, subject, request: number))
        case .task(let id):
            return .send(.beginTask(name: holdings.tasks[id]?.name ?? "", request: number))
        case .state:
            return .send(.saveState(holdings.state, request: number))
        case .hibernate:
            return .send(WireClientMessage(.hibernate(.init()), request: number))
        case .enterBackground:
            // A client that has already entered it does not enter it again.
            isReentering = holdings.ground == .background
            return .send(WireClientMessage(.enterBackground(.init()), request: number))
        }
    }

    private mutating func restorationDone(at now: Int64) -> [Action] {
        phase = .connected(since: now)
        guard hasRegistered else {
            hasRegistered = true
            return []
        }
        var actions: [Action] = [.notify(.reconnected)]
        // The new supervisor counts from now. To keep the handler's pause from becoming twice as long, it
        // runs here if half of its time was over; not always, or a thousand clients would run theirs at once.
        if let keepAlive = holdings.keepAlive, holdings.ground == .background,
            now - keepAlive.lastRun > (keepAlive.due - keepAlive.lastRun) / 2
        {
            actions.append(keepAliveRuns(at: now))
        }
        return actions
    }

    private mutating func readopted(_ id: UInt64, _ adoption: WireHandedOver.Adoption) -> [Action] {
        switch adoption.result {
        case .token(let token):
            holdings.reparked(id, token: token)
            return []
        case .error(let error):
            return refused(id, NightbellError(error))
        case nil:
            return refused(id, NightbellError(.malformedAnswer, "an adoption without a result"))
        }
    }

    private mutating func refused(_ id: UInt64, _ error: NightbellError) -> [Action] {
        guard let socket = holdings.remove(id) else { return [] }
        return [.notify(.socketLost(socket, error))]
    }
}
