import NightbellCore

/// What happens in the world by itself.
extension World {
    /// Lets time pass until something is due, or not quite, and gathers what happens in one turn.
    mutating func step() {
        passTime()
        var events: [Event] = []
        for _ in 0..<Int.random(in: 0...3, using: &random) { happen(into: &events) }
        for puppet in puppets { act(puppet, into: &events) }
        deliver(into: &events)
        if let deadline = core.nextDeadline, deadline <= now {
            events.insert(.timer, at: Int.random(in: 0...events.count, using: &random))
        }
        turn(events)
    }

    /// The supervisor stops, and everybody leaves.
    mutating func end() {
        turn([.stop])
        for puppet in puppets {
            fail(unless: puppet.execution == .running || puppet.isKilled, "\(puppet.client) is left asleep")
        }
        turn(puppets.map { .gone($0.client) })
        fail(unless: core.socketCount == 0 && adopted == closed, "sockets are left")
        fail(
            unless: core.usage.allSatisfy { $0.usage.clients == 0 && $0.usage.sockets == 0 }, "usage is left")
        fail(unless: past.asleepNanoseconds == core.counters.asleepNanoseconds, "sleep does not add up")
    }

    private mutating func passTime() {
        let pause: Duration
        switch Int.random(in: 0..<6, using: &random) {
        case 0: pause = .zero
        case 1, 2: pause = random.duration(upTo: .milliseconds(20))
        case 3: pause = random.duration(upTo: .seconds(1))
        default: pause = .seconds(60)
        }
        var next = now + pause
        for puppet in puppets where puppet.execution == .running {
            for (due, _) in puppet.agenda { next = min(next, due) }
        }
        if !queue.isEmpty { next = min(next, now + .milliseconds(1)) }
        // The loop serves its timer a little late now and then, but within the lead.
        if let deadline = core.nextDeadline, deadline < next {
            next = random.once(in: 4) ? deadline + random.duration(upTo: .milliseconds(200)) : deadline
        }
        now = max(now, next)
    }

    /// What puppets have planned. A message may have been on its way when its sender was stopped.
    private mutating func act(_ puppet: Puppet, into events: inout [Event]) {
        var kept: [(due: Instant, deed: Puppet.Deed)] = []
        for (due, deed) in puppet.agenda {
            guard due <= now, puppet.execution == .running || random.once(in: 8) else {
                kept.append((due, deed))
                continue
            }
            switch deed {
            case .say(let message): events.append(.message(message, from: puppet.client, Self.key))
            case .exit: if puppet.execution == .running { events.append(.gone(puppet.client)) }
            case .read:
                for cable in puppet.cables where puppet.execution == .running { cable.unread = 0 }
            }
        }
        puppet.agenda = kept
    }

    /// What the kernel has reported, most of it now, in any order.
    private mutating func deliver(into events: inout [Event]) {
        var kept: [Event] = []
        for event in queue {
            guard !random.once(in: 3) else {
                kept.append(event)
                continue
            }
            var event = event
            if case .fired(let token, _) = event {
                guard let cable = cable(token) else { continue }
                // What is there by now: somebody else may have taken it.
                event = .fired(token, cable.conditions)
            }
            events.insert(event, at: Int.random(in: 0...events.count, using: &random))
        }
        queue = kept
    }

    private mutating func happen(into events: inout [Event]) {
        let puppet = puppets.randomElement(using: &random)
        switch Int.random(in: 0..<24, using: &random) {
        case 0...5:
            guard let cable = puppet?.cables.randomElement(using: &random), !cable.peerClosed else { return }
            cable.unread += 1
            fireIfReady(cable)
        case 6:
            guard let cable = puppet?.cables.randomElement(using: &random) else { return }
            cable.peerClosed = true
            fireIfReady(cable)
        case 7, 8:
            guard puppets.count < 12 else { return }
            events.append(registration())
        case 9:
            if let puppet, random.once(in: 4) { events.append(.gone(puppet.client)) }
        case 10:
            if let puppet, let command = Command.allCases.randomElement(using: &random) {
                guard command != .quit || random.once(in: 4) else { return }
                events.append(.command(command, puppet.client, Self.key))
            }
        case 11:
            events.append(nonsense())
        default:
            if let puppet, puppet.execution == .running, !puppet.isKilled {
                events.append(.message(request(puppet), from: puppet.client, Self.key))
            }
        }
    }

    private mutating func registration() -> Event {
        let number = Int.random(in: 0..<16, using: &random)
        guard let identifier = ClientIdentifier("puppet.\(number)") else { return .timer }
        return .registration(
            Registration(
                identifier: identifier, user: UInt32(number % 3), modes: [.voip, .audio],
                wakeLimitPolicy: number % 5 == 0 ? .terminate : .linger), Self.key)
    }

    private mutating func request(_ puppet: Puppet) -> ClientMessage {
        switch Int.random(in: 0..<16, using: &random) {
        case 0, 1:
            .handOver(Array(repeating: SocketOffer(tag: .voip), count: Int.random(in: 1...3, using: &random)))
        case 2: .release(anyToken(of: puppet))
        case 3, 4, 5, 6, 7: .enterBackground
        case 8: .enterForeground
        case 9: .setKeepAliveTimeout(.milliseconds(Int64.random(in: 1_000...60_000, using: &random)))
        case 10: .clearKeepAliveTimeout
        case 11: .beginBackgroundTask(name: "task")
        case 12: .endBackgroundTask(puppet.tasks.randomElement(using: &random) ?? 0)
        case 13: random.once(in: 3) ? .mediaActivity : .backgroundTimeRemaining
        case 14:
            .readyToSuspend(epoch: puppet.lastEpoch + UInt64.random(in: 0...1, using: &random), notIdle: [])
        default: .wakeDone(wakeID: random.once(in: 4) ? .max : puppet.lastWakeID)
        }
    }

    /// Its own socket, another's, or none at all.
    private mutating func anyToken(of puppet: Puppet) -> SocketToken {
        let owner = random.once(in: 4) ? puppets.randomElement(using: &random) : puppet
        return owner?.cables.randomElement(using: &random)?.token ?? SocketToken(rawValue: random.next())
    }

    /// Names that nobody bears, or nobody any more.
    mutating func nonsense() -> Event {
        let raw = random.once(in: 2) ? random.next() : UInt64.random(in: 0...40, using: &random) | 9 << 40
        let client = ClientID(rawValue: raw)
        let token = SocketToken(rawValue: raw)
        switch Int.random(in: 0..<9, using: &random) {
        case 0: return .message(.release(token), from: client, Self.key)
        case 1: return .message(.enterBackground, from: client, Self.key)
        case 2: return .command(.wake, client, Self.key)
        case 3: return .fired(token, [.readable, .error])
        case 4: return .frozen(client, epoch: 1)
        case 5: return .notFrozenYet(client, epoch: 1)
        case 6: return .freezeFailed(client, epoch: 1)
        case 7: return .gone(client)
        default: return .timer
        }
    }
}
