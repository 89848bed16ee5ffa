import NightbellCore

/// What must hold, derived from the rules and not from the core.
extension World {
    /// Before an event is fed: whose budget is over by now, and who must be told of what.
    mutating func foresee(_ event: Event) {
        switch event {
        case .message(_, let client, _), .command(_, let client, _):
            if let puppet = puppet(client) { noteOverruns(puppet) }
        case .fired(let token, let conditions):
            guard let cable = cable(token),
                let puppet = puppets.first(where: { $0.cables.contains { $0 === cable } })
            else { return }
            cable.isQueued = false
            noteOverruns(puppet)
            let sleeps = core.state(of: puppet.client) == .suspended || puppet.execution != .running
            if sleeps, !conditions.isEmpty, !puppet.isKilled, core.condition(of: token) == .armed {
                mustBeTold.append((puppet.client, token))
            }
        case .timer:
            for puppet in puppets { noteOverruns(puppet) }
        case .gone(let client):
            if let puppet = puppet(client) { closeBooks(puppet) }
        case .registration, .frozen, .notFrozenYet, .freezeFailed, .stop:
            break
        }
    }

    private func noteOverruns(_ puppet: Puppet) {
        let isOver = puppet.tasksSince.map { now >= $0 + core.settings.budgets.backgroundTasks } ?? false
        // With less than a whole notice if the last task was begun so late.
        let isWarned = puppet.warnedAt.map { $0 < now } ?? false
        puppet.tasksAreOver = !puppet.tasks.isEmpty && now >= puppet.mediaUntil && isOver && isWarned

        if let entering = puppet.entering, now >= entering.until {
            puppet.overruns[.enteringBackground, default: 0] += 1
            puppet.entering = nil
        }
        if let wake = puppet.openWake, now >= wake.until {
            if !puppet.holds(at: now) { puppet.overruns[.wake, default: 0] += 1 }
            puppet.openWake = nil
        }
        if let preparing = puppet.preparing, now >= preparing.until {
            puppet.overruns[.prepareToSuspend, default: 0] += 1
            puppet.preparing = nil
        }
    }

    private mutating func closeBooks(_ puppet: Puppet) {
        guard let view = core.view(of: puppet.client, at: now) else { return fail("no view") }
        past.wakes += view.counters.wakes
        past.suspensions += view.counters.suspensions
        past.keepAliveRuns += view.counters.keepAliveRuns
        past.overrunsWake += view.counters.overrunsWake
        past.asleepNanoseconds += view.counters.asleepNanoseconds
    }

    /// What the client has said.
    func heard(_ message: ClientMessage, _ puppet: Puppet) {
        switch message {
        case .wakeDone(let number):
            if let open = puppet.openWake, open.number <= number { puppet.openWake = nil }
        case .backgroundEntered:
            puppet.entering = nil
        case .readyToSuspend(let epoch, _):
            if puppet.preparing?.number == epoch { puppet.preparing = nil }
        case .endBackgroundTask(let task):
            puppet.tasks.removeAll { $0 == task }
        case .mediaActivity:
            puppet.mediaUntil = now + core.settings.budgets.mediaLapse
            puppet.tasksSince = nil
        case .setKeepAliveTimeout(let timeout) where timeout >= core.settings.keepAlive.minimumTimeout:
            puppet.timeout = timeout
            puppet.lastRun = now
        case .clearKeepAliveTimeout:
            puppet.timeout = nil
        case .setKeepAliveTimeout, .handOver, .release, .enterBackground, .enterForeground,
            .beginBackgroundTask,
            .backgroundTimeRemaining:
            break
        }
    }

    /// Where the client is after an event.
    func keepUp(_ puppet: Puppet) {
        switch core.state(of: puppet.client) {
        case .background:
            puppet.preparing = nil
            if !puppet.tasks.isEmpty, now >= puppet.mediaUntil, puppet.tasksSince == nil {
                puppet.tasksSince = now
                puppet.warnedAt = nil
            }
        case .suspending:
            puppet.entering = nil
            puppet.openWake = nil
        case .notRunning, .inactive, .active, .suspended, .terminating:
            puppet.entering = nil
            puppet.openWake = nil
            puppet.preparing = nil
            puppet.tasksSince = nil
        }
    }

    /// After each turn.
    mutating func check() {
        for puppet in puppets { check(puppet) }
        fail(unless: adopted - closed == core.socketCount, "sockets do not add up")
        fail(unless: core.clientIDs.count == puppets.count, "clients do not add up")
        for (user, usage) in core.usage {
            let own = puppets.filter { $0.user == user }
            fail(unless: usage.clients == own.count, "clients of \(user) do not add up")
            fail(unless: usage.sockets == own.map(\.cables.count).reduce(0, +), "sockets of \(user)")
        }
        fail(unless: core.counters.keepAliveLate == 0, "late")
        var sum = past
        for puppet in puppets {
            guard let counters = core.view(of: puppet.client, at: now)?.counters else { continue }
            sum.wakes += counters.wakes
            sum.suspensions += counters.suspensions
            sum.keepAliveRuns += counters.keepAliveRuns
            sum.overrunsWake += counters.overrunsWake
        }
        let all = core.counters
        fail(
            unless: sum.wakes == all.wakes && sum.suspensions == all.suspensions
                && sum.keepAliveRuns == all.keepAliveRuns && sum.overrunsWake == all.overrunsWake,
            "counters do not add up")
    }

    private mutating func check(_ puppet: Puppet) {
        let client = puppet.client
        guard let view = core.view(of: client, at: now) else { return fail("\(client) is lost") }
        let settings = core.settings
        switch view.state {
        case .suspended:
            fail(unless: puppet.execution == .stopped, "\(client) is believed to sleep and runs")
        case .notRunning, .inactive, .active, .background:
            fail(unless: puppet.execution == .running, "\(client) is believed to run and is stopped")
        case .suspending:
            break
        case .terminating:
            fail(unless: puppet.execution == .running || puppet.isKilled, "\(client) is frozen for ever")
        }
        if puppet.execution != .running, !puppet.isKilled {
            for cable in puppet.cables where !cable.isEnded {
                fail(unless: cable.isWatched || cable.isQueued, "nobody watches \(cable.token)")
            }
        }
        fail(unless: view.sockets.count == puppet.cables.count, "sockets of \(client)")
        fail(unless: Set(view.sockets) == Set(puppet.cables.map(\.token)), "sockets of \(client)")
        fail(unless: view.counters.wakes == puppet.wakes, "wakes of \(client)")

        let counted: [(Step, UInt64)] = [
            (.enteringBackground, view.counters.overrunsEnteringBackground),
            (.prepareToSuspend, view.counters.overrunsPrepare), (.wake, view.counters.overrunsWake),
            (.backgroundTasks, view.counters.overrunsBackgroundTasks),
        ]
        for (step, count) in counted {
            fail(
                unless: count == puppet.overruns[step, default: 0],
                "\(client): \(count) overruns of \(step) recorded, \(puppet.overruns[step, default: 0]) happened"
            )
        }
        if let since = puppet.tasksSince, !puppet.tasks.isEmpty, !core.isStopping {
            // The notice comes first also when the timer was served late.
            let limit = settings.budgets.backgroundTasks + settings.budgets.expirationNotice + .seconds(1)
            fail(unless: now < since + limit, "\(client) holds its tasks too long")
        }
        switch view.state {
        case .background, .suspending, .suspended:
            if let window = puppet.window(settings.keepAlive), !core.isStopping {
                fail(unless: now <= window.latest, "\(client) was not run in its window")
            }
        case .notRunning, .inactive, .active, .terminating:
            break
        }
    }
}
