import NightbellCore

/// A small world around a core, all of it drawn from one seed: clients that behave well, badly or not at all,
/// peers that send and close, and a kernel that stops processes at once, later, or not. It carries out what the
/// core asks for, and notes whatever should not be.
struct World {
    var core: Supervision
    var now = Instant(nanoseconds: 1_000_000_000_000)
    var random: SplitMix64
    var puppets: [Puppet] = []
    var failures: [String] = []
    /// Events that were caused and not delivered yet.
    var queue: [Event] = []
    var actions = ActionBuffer()
    private var interpreted = 0

    // For replays and sums.
    var log: [(events: [Event], at: Instant)] = []
    var history: [Action] = []
    var past = Counters()
    var adopted = 0
    var closed = 0
    /// Sockets that fired in this turn while their owner slept: it must be told of each.
    var mustBeTold: [(client: ClientID, token: SocketToken)] = []

    static let key = RequestKey(connection: 7, request: 7)

    init(seed: UInt64, settings: Settings) {
        random = SplitMix64(seed: seed)
        core = Supervision(settings: settings)
    }

    func puppet(_ client: ClientID) -> Puppet? { puppets.first { $0.client == client } }

    func cable(_ token: SocketToken) -> Cable? {
        for puppet in puppets {
            if let cable = puppet.cables.first(where: { $0.token == token }) { return cable }
        }
        return nil
    }

    mutating func fail(_ message: String) {
        let events = log.last.map { "\($0.events)" } ?? ""
        failures.append("at \(now.nanoseconds), turn \(log.count): \(message); in \(events)")
    }

    mutating func fail(unless condition: Bool, _ message: @autoclosure () -> String) {
        if !condition { fail(message()) }
    }

    /// One turn of the edge's loop: events in, actions carried out, everything checked.
    mutating func turn(_ events: [Event]) {
        actions.removeAll()
        interpreted = 0
        mustBeTold.removeAll()
        log.append((events, now))
        for event in events {
            foresee(event)
            core.handle(event, at: now, into: &actions)
            if case .message(let message, let client, _) = event, let puppet = puppet(client) {
                heard(message, puppet)
            }
            carryOutActions()
            for puppet in puppets { keepUp(puppet) }
        }
        core.endTurn(at: now, into: &actions)
        carryOutActions()
        for (client, token) in mustBeTold where puppet(client)?.isKilled == false {
            if core.state(of: client) == .terminating { continue }
            fail("\(client) was not told of \(token)")
        }
        history += actions.actions
        check()
    }

    private mutating func carryOutActions() {
        while interpreted < actions.actions.count {
            carryOut(actions.actions[interpreted])
            interpreted += 1
        }
    }

    // MARK: What the core asks for

    private mutating func carryOut(_ action: Action) {
        switch action {
        case .registered(let client, _):
            let behaviour: Puppet.Behaviour =
                random.once(in: 3) ? (random.once(in: 2) ? .hung : .slow) : .prompt
            puppets.append(
                Puppet(client, user: core.user(of: client) ?? .max, behaviour: behaviour))
        case .handedOver(let range, let client, _):
            for case .success(let token) in actions.adoptions[range] {
                fail(unless: cable(token) == nil, "\(token) was given twice")
                puppet(client)?.cables.append(Cable(token))
                adopted += 1
            }
        case .answer(.backgroundTask(let task?), let client, _):
            puppet(client)?.tasks.append(task)
        case .refuseRegistration, .answer, .commandAnswer, .trace:
            break
        case .notify(let client, let notice):
            guard let puppet = puppet(client) else { return fail("\(notice) to a stranger") }
            told(puppet, notice)
        case .arm(let token):
            guard let cable = cable(token) else { return fail("watch \(token), which is closed") }
            fail(unless: !cable.isWatched, "\(token) is watched already")
            cable.isWatched = true
            fireIfReady(cable)
        case .close(let token):
            guard let puppet = puppets.first(where: { $0.cables.contains { $0.token == token } }) else {
                return fail("\(token) is closed twice")
            }
            puppet.cables.removeAll { $0.token == token }
            closed += 1
        case .freeze(let client, let epoch):
            guard let puppet = puppet(client) else { return fail("freeze a stranger") }
            fail(unless: puppet.execution == .running, "\(client) is frozen twice")
            puppet.execution = .stopping
            stop(puppet, epoch)
        case .checkFreeze(let client, let epoch):
            guard let puppet = puppet(client) else { return fail("look at a stranger") }
            fail(unless: puppet.execution == .stopping, "\(client) is not being frozen")
            stop(puppet, epoch)
        case .thaw(let client):
            guard let puppet = puppet(client) else { return fail("thaw a stranger") }
            fail(unless: puppet.execution != .running, "\(client) is thawed and runs")
            puppet.execution = .running
        case .kill(let client, let reason):
            guard let puppet = puppet(client) else { return fail("kill a stranger") }
            killed(puppet, reason)
        case .forget(let client):
            guard let index = puppets.firstIndex(where: { $0.client == client }) else {
                return fail("forget a stranger")
            }
            fail(unless: puppets[index].cables.isEmpty, "\(client) left sockets behind")
            puppets.remove(at: index)
        }
    }

    mutating func fireIfReady(_ cable: Cable) {
        guard cable.isWatched, !cable.conditions.isEmpty else { return }
        cable.isWatched = false
        cable.isQueued = true
        queue.append(.fired(cable.token, []))
    }

    /// The kernel stops a process: at once, some looks later, or never.
    private mutating func stop(_ puppet: Puppet, _ epoch: UInt64) {
        switch Int.random(in: 0..<8, using: &random) {
        case 0: queue.append(.freezeFailed(puppet.client, epoch: epoch))
        case 1, 2, 3: queue.append(.notFrozenYet(puppet.client, epoch: epoch))
        default:
            puppet.execution = .stopped
            queue.append(.frozen(puppet.client, epoch: epoch))
        }
    }

    private mutating func killed(_ puppet: Puppet, _ reason: TerminationReason) {
        fail(unless: !puppet.isKilled, "\(puppet.client) is killed twice")
        puppet.isKilled = true
        queue.append(.gone(puppet.client))
        guard reason == .backgroundTasksOverran else { return }
        puppet.overruns[.backgroundTasks, default: 0] += 1
        fail(unless: puppet.tasksAreOver, "\(puppet.client) is killed for its tasks too early")
    }

    // MARK: What clients are told

    private mutating func told(_ puppet: Puppet, _ notice: Notice) {
        switch notice {
        case .didEnterBackground(let budget):
            puppet.entering = .init(number: 0, until: now + budget)
            puppet.backgroundSince = now
            puppet.tasksSince = nil
            plan(puppet, .say(.backgroundEntered), budget)
        case .prepareToSuspend(let epoch, let budget):
            fail(unless: epoch == puppet.lastEpoch + 1, "epoch \(epoch) after \(puppet.lastEpoch)")
            fail(unless: !puppet.holds(at: now), "\(puppet.client) is suspended in spite of its assertions")
            fail(unless: puppet.entering == nil && puppet.openWake == nil, "\(puppet.client) is not idle")
            puppet.lastEpoch = epoch
            puppet.preparing = .init(number: epoch, until: now + budget)
            let notIdle = puppet.cables.filter { $0.unread > 0 && random.once(in: 2) }.map(\.token)
            plan(puppet, .say(.readyToSuspend(epoch: epoch, notIdle: notIdle)), budget)
        case .suspendCancelled(let epoch):
            fail(unless: epoch == puppet.lastEpoch, "epoch \(epoch) is cancelled")
            puppet.preparing = nil
        case .wake(let wake):
            woken(puppet, wake)
        case .backgroundTimeExpiring:
            puppet.warnedAt = now
            for task in puppet.tasks { plan(puppet, .say(.endBackgroundTask(task)), .seconds(5)) }
        case .willTerminate(let budget, _):
            plan(puppet, .exit, budget)
        }
        fail(unless: puppet.execution == .running, "\(puppet.client) is told \(notice) and not thawed")
    }

    private mutating func woken(_ puppet: Puppet, _ wake: Wake) {
        fail(unless: wake.wakeID == puppet.lastWakeID + 1, "wake \(wake.wakeID) after \(puppet.lastWakeID)")
        fail(unless: !wake.reasons.isEmpty, "wake without a reason")
        puppet.lastWakeID = wake.wakeID
        puppet.wakes += 1
        puppet.preparing = nil
        if core.state(of: puppet.client) == .background {
            puppet.openWake = .init(number: wake.wakeID, until: now + wake.budget)
        }
        for fired in actions.firedSockets[wake.sockets] {
            guard let cable = puppet.cables.first(where: { $0.token == fired.token }) else {
                fail("\(puppet.client) is told of \(fired.token)")
                continue
            }
            if fired.conditions.contains(.peerClosed) { cable.isEnded = true }
            mustBeTold.removeAll { $0.token == fired.token }
        }
        if wake.reasons.contains(.keepAlive) {
            if let window = puppet.window(core.settings.keepAlive) {
                fail(unless: window.earliest <= now, "\(puppet.client) ran too early")
                fail(unless: now <= window.latest, "\(puppet.client) ran too late")
            } else {
                fail("\(puppet.client) has no keep-alive handler")
            }
            puppet.lastRun = now
        }
        if puppet.behaviour != .hung { plan(puppet, .read, .seconds(1)) }
        plan(puppet, .say(.wakeDone(wakeID: wake.wakeID)), wake.budget)
    }

    private mutating func plan(_ puppet: Puppet, _ deed: Puppet.Deed, _ budget: Duration) {
        let delay: Duration
        switch puppet.behaviour {
        case .prompt: delay = random.duration(upTo: min(.milliseconds(50), budget))
        case .slow: delay = random.once(in: 4) ? budget : random.duration(upTo: budget * 2)
        case .hung: return
        }
        puppet.agenda.append((now + delay, deed))
    }
}
