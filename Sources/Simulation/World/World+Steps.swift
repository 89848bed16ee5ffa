import NightbellCore

/// Spontaneous events of the world.
extension World {
    /// Lets time pass until something is due, or almost, gathers the events of one turn, and feeds them.
    package mutating func step() {
        steps += 1
        for client in clients { client.isTouched = false }
        events.removeAll(keepingCapacity: true)
        passTime()
        if let narrator { narrator("step \(steps) at \(TraceFormat.time(now))") }
        if endOfLife == steps { return endLife() }
        for _ in 0..<random.below(4) { happen() }
        if endOfLife == nil, random.once(in: 800) { stopSupervisor() }
        for client in clients { act(client) }
        deliver()
        deliverPongs()
        if hasSlept || core.nextDeadline.map({ $0 <= now }) ?? false { emit(.timer) }
        numberMessages()
        for client in clients.reversed() { repeatRequests(client) }
        observeMachine()
        observeMedia()
        if hasSlept { events.insert(.machineSlept(total: slept), at: 0) }
        if endOfLife == nil, random.once(in: 40) { momentsLeft = random.below(16) }
        turn()
        momentsLeft = nil
    }

    /// Stops the supervisor, ends all clients, and makes the final checks.
    package mutating func finish() {
        guard violations.isEmpty else { return }
        steps += 1
        events.removeAll(keepingCapacity: true)
        if endOfLife == nil {
            events.append(.stop)
            turn()
        }
        steps += 1
        endLife()
    }

    // MARK: Time

    private mutating func passTime() {
        isStalled = false
        hasSlept = false
        let pause: Duration
        switch random.below(6) {
        case 0: pause = .zero
        case 1, 2: pause = random.duration(upTo: .milliseconds(20))
        case 3: pause = random.duration(upTo: .seconds(1))
        default: pause = .seconds(60)
        }
        var next = now + pause
        for client in clients where client.execution == .running { next = min(next, client.nextDue) }
        for client in clients {
            for case let due? in client.sockets.map(\.pongDue) where due > now { next = min(next, due) }
        }
        for (_, since) in queue { next = min(next, max(since, now + .milliseconds(1))) }
        // The loop serves its timer a little late now and then, but within the lead.
        if let deadline = core.nextDeadline, deadline < next {
            next = deadline
            if fault == .timerLate {
                next = next + .seconds(1)
            } else if random.once(in: 4) {
                next = next + random.duration(upTo: queue.isEmpty ? parameters.lateness : .milliseconds(10))
            }
        }
        now = max(now, next)
        if parameters.stalls > 0, random.below(64) < parameters.stalls { stall() }
        if parameters.machineSleeps > 0, random.below(64) < parameters.machineSleeps { sleep() }
    }

    /// The whole machine sleeps: time passes for the outside world, and not for budgets.
    private mutating func sleep() {
        let pause = random.duration(upTo: random.once(in: 4) ? .seconds(36_000) : .seconds(30))
        hasSlept = true
        // The handlers and pings of this time miss their windows.
        isStalled = true
        coverage.machineSleeps += 1
        slept = slept + pause
        note("the machine slept for \(TraceFormat.words(pause))")
    }

    /// The whole machine stands still.
    private mutating func stall() {
        let pause = random.duration(upTo: .seconds(20))
        isStalled = true
        coverage.stalls += 1
        now = now + pause
        note("the machine stood still for \(TraceFormat.words(pause))")
        for index in queue.indices { queue[index].since = queue[index].since + pause }
        for client in clients {
            for socket in client.sockets { socket.waitingSince = socket.waitingSince.map { $0 + pause } }
            client.busyAt = client.busyAt + pause
        }
    }

    // MARK: Events for the edge

    /// Inserts an event at a random place of this turn.
    mutating func emit(_ event: Event) {
        events.insert(event, at: random.below(events.count + 1))
    }

    mutating func say(_ message: ClientMessage, _ client: SimulatedClient) {
        emit(.message(message, from: client.id, nextKey()))
    }

    /// A client numbers its requests in the order in which it sends them.
    private mutating func numberMessages() {
        for index in events.indices {
            guard case .message(let message, let id, _) = events[index] else { continue }
            events[index] = .message(message, from: id, nextKey())
        }
    }

    mutating func nextKey() -> RequestKey {
        requests += 1
        return RequestKey(connection: requests & 7, request: requests)
    }

    /// The steps that a client has planned. A message may have been on its way when its sender was stopped.
    private mutating func act(_ client: SimulatedClient) {
        guard client.nextDue <= now else { return }
        var random = random
        var deeds: [SimulatedClient.Deed] = []
        client.takeDue(at: now) {
            client.execution == .running || random.once(in: 8)
        } _: {
            deeds.append($0)
        }
        self.random = random
        for deed in deeds {
            switch deed {
            case .say(let message):
                say(message, client)
            case .exit where client.execution == .running:
                coverage.clientCrashes += 1
                emit(.ended(client.id, random.once(in: 2) ? .failed : .succeeded))
            case .rejoin where client.launchUntil != nil && !client.isKilled:
                emit(.rejoined(client.id, client.registration, nextKey()))
            case .read where client.execution == .running:
                for socket in client.sockets { socket.read() }
            case .exit, .read, .rejoin:
                break
            }
        }
    }

    /// The reports of the kernel, most of them now, in any order.
    private mutating func deliver() {
        var kept = 0
        for index in queue.indices {
            let (event, since) = queue[index]
            let isDue = event.isFailedPing || now.since(since) >= .milliseconds(20)
            if since > now || (!isDue && random.once(in: 3)) {
                queue[kept] = queue[index]
                kept += 1
            } else if case .fired(let token, _) = event {
                // The current conditions: they may have been taken by another reader.
                guard let socket = socket(token) else { continue }
                if socket.isQueued, socket.isForBytes {
                    guard socket.unread > 0 else {
                        (socket.isQueued, socket.isWatched) = (false, true)
                        continue
                    }
                    socket.hasFiredForBytes = true
                }
                emit(.fired(token, socket.conditions))
            } else if case .pathsInspected(let id, _) = event {
                guard let client = client(id) else { continue }
                emit(.pathsInspected(id, brokenPaths(of: client)))
            } else {
                emit(event)
            }
        }
        queue.removeLast(queue.count - kept)
    }

    private mutating func happen() {
        let weights = parameters.traffic + parameters.requests + parameters.commands + 3
        let choice = random.below(weights)
        if choice < parameters.traffic {
            disturbNetwork()
        } else if choice < parameters.traffic + parameters.requests {
            guard let client = random.pick(clients), client.isHeard, !client.isKilled else { return }
            speak(client)
        } else if choice < parameters.traffic + parameters.requests + parameters.commands {
            guard let client = random.pick(clients), let command = random.pick(Command.allCases),
                command != .quit || random.once(in: 4)
            else { return }
            emit(.command(command, client.id, nextKey()))
        } else {
            happenRarely()
        }
    }

    private mutating func happenRarely() {
        switch random.below(12) {
        case 0...3:
            if clients.count < parameters.clients { emit(registration()) }
        case 4:
            emit(nonsense())
        case 5, 6:
            if let client = random.pick(clients), !client.isKilled { coincide(client) }
        case 7:
            guard let client = random.pick(clients), random.once(in: 4), client.execution != .absent else {
                return
            }
            coverage.clientCrashes += 1
            emit(.ended(client.id, random.once(in: 3) ? .succeeded : .failed))
        case 8:
            if random.once(in: 2) { return happenToLaunches() }
            // Another process has resumed it; or it was running already, and nothing follows.
            if let client = random.pick(clients) { emit(.foundRunning(client.id)) }
        case 9:
            interruptPeers()
        default:
            for client in clients where client.behaviour == .chattering && client.execution != .stopped {
                speak(client)
            }
        }
    }

    /// Events that concern only clients that are launched again.
    private mutating func happenToLaunches() {
        switch random.below(8) {
        case 0:
            // The client closes its connection and lives on.
            guard let client = random.pick(clients), client.execution != .absent, client.launchUntil == nil
            else { return }
            emit(.gone(client.id))
        case 1:
            guard let identifier = ClientIdentifier("client.\(random.below(16))") else { return }
            emit(.disown(identifier, nextKey()))
        case 2, 3:
            guard case .registration(let registration, let key) = registration() else { return }
            guard random.once(in: 3) else {
                return emit(.launch(registration, random.once(in: 2) ? key : nil))
            }
            let notBefore = random.once(in: 4) ? nil : now + .seconds(random.below(30))
            emit(.declare(registration, notBefore: notBefore, reasons: .launched))
        case 4, 5:
            var sizes = clients.map { ClientSize($0.id, bytes: random.below(8)) }
            if random.once(in: 4) { sizes.append(ClientSize(ClientID(rawValue: random.next()), bytes: 9)) }
            emit(.memoryPressure(sizes))
        default:
            guard let client = random.pick(clients),
                let command = random.pick([Command.wake, .launch, .quit])
            else { return }
            emit(.command(command, client.id, nextKey()))
        }
    }

    /// Several events at once for one client, asleep or not: its message was on its way when it was stopped.
    private mutating func coincide(_ client: SimulatedClient) {
        if random.once(in: 4) { emit(.command(.wake, client.id, nextKey())) }
        for socket in client.sockets where !socket.isPeerClosed && random.once(in: 2) {
            receive(socket)
            if random.once(in: 2) { say(.release(socket.token), client) }
        }
        if client.behaviour == .malicious { say(.wakeDone(wakeID: .max), client) }
        say(random.once(in: 2) ? request(client) : lie(client), client)
    }

    private mutating func receive(_ socket: SimulatedSocket) {
        guard !socket.isReset else { return }
        if socket.hasProfile { return receive(piece(for: socket), socket) }
        socket.unread += 1
        noteArrival(socket)
    }

    mutating func receive(_ piece: SimulatedSocket.Piece, _ socket: SimulatedSocket) {
        socket.inbox.append(piece)
        noteArrival(socket)
    }

    /// Peers send, close and reset at any time.
    private mutating func disturbNetwork() {
        guard let client = random.pick(clients), let socket = random.pick(client.sockets), !socket.isReset
        else {
            return
        }
        switch random.below(12) {
        case 0: socket.isPeerClosed = true
        case 1:
            coverage.resets += 1
            if socket.isStream {
                socket.isReset = true
                socket.inbox = []
                socket.unread = 0
            } else {
                socket.hasError = true
            }
        default:
            if !socket.isPeerClosed { receive(socket) }
            return
        }
        noteArrival(socket)
    }

    private mutating func noteArrival(_ socket: SimulatedSocket) {
        let client = socket.owner
        if client.execution != .running, socket.waitingSince == nil, socket.mustWake {
            socket.waitingSince = now
        }
        note(
            "\(TraceFormat.name(socket.token)) of \(client.name) has \(TraceFormat.words(socket.conditions))"
        )
        fireIfReady(socket)
    }
}
