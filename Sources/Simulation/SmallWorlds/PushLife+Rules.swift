package import NightbellCore

extension PushLife {
    /// By the table of RFC 8030, section 5.3, from its last row to the first: a device accepts what is at least so urgent.
    private func isTimely(_ urgency: PushUrgency) -> Bool {
        if isOnBattery == true, isBatteryLow == true { return urgency >= .high }
        if isOnBattery == true, isMetered == true { return urgency >= .normal }
        if isOnBattery == true || isMetered == true { return urgency >= .low }
        return true
    }

    private func isOverLimit(_ inbox: Inbox) -> Bool {
        inbox.told.filter { world.now.since($0) < .seconds(3_600) }.count >= world.settings.push.perHour
    }

    package mutating func learn(_ fact: Fact) {
        switch fact {
        case .power(let isOnBattery, let isLow): (self.isOnBattery, isBatteryLow) = (isOnBattery, isLow)
        case .network(let network): isMetered = network?.isMetered
        case .pushes(let waiting):
            for index in inboxes.indices
            where world.clients[index].registration.identifier == waiting.client && inboxes[index].isObserving
            {
                if waiting.urgency == nil {
                    inboxes[index].isUntold = false
                } else if waiting.number != inboxes[index].known {
                    inboxes[index].isUntold = true
                    if inboxes[index].known != nil { inboxes[index].retryAt = nil }
                }
                inboxes[index].reported = waiting.urgency
                inboxes[index].known = waiting.number
            }
        case .pushServiceChanged:
            for index in inboxes.indices {
                forgetService(index)
                inboxes[index].retryAt = nil
            }
        default: break
        }
    }

    /// Nothing is known of waiting messages.
    private mutating func forgetService(_ index: Int) {
        inboxes[index].known = nil
        inboxes[index].run?.number = nil
        inboxes[index].reported = nil
        inboxes[index].isUntold = false
    }

    package mutating func take(_ wake: Wake, _ index: Int) -> Bool {
        let isKnown = wake.isRepeated && wake.wakeID <= world.clients[index].lastWakeID
        let observed = world.actions.observed[wake.observed]
        world.require(
            wake.reasons.contains(.push) == !observed.isEmpty
                && wake.pushBudget == (observed.isEmpty ? nil : world.settings.budgets.push),
            "\(world.name(index)) is woken for pushes, and told of none")
        guard let first = observed.first, case .pushed(let urgency) = first.occurrence else { return true }
        let inbox = inboxes[index]
        let isForeground = world.clients[index].isForeground
        coverage.told += 1
        if !isKnown {
            world.require(inbox.isUntold, "\(world.name(index)) is told in vain, or twice")
            world.require(inbox.run == nil, "\(world.name(index)) is told while it handles others")
            world.require(inbox.reported == urgency, "\(world.name(index)) is told of \(urgency)")
            world.require(
                inbox.retryAt.map { $0 <= world.now } ?? true, "\(world.name(index)) is told again at once")
        }
        if inbox.retryAt != nil { coverage.toldAgain += 1 }
        if !isForeground {
            if wake.reasons == .push, !wake.isRepeated {
                world.require(
                    inbox.isLaunched || isTimely(urgency),
                    "\(world.name(index)) is woken at a bad moment for \(urgency)")
                world.require(!isOverLimit(inbox), "\(world.name(index)) is woken too often")
            }
            inboxes[index].told.append(world.now)
        }
        inboxes[index].isUntold = false
        inboxes[index].isLaunched = false
        inboxes[index].retryAt = nil
        inboxes[index].run = .init(wakeID: wake.wakeID, until: world.now + world.settings.budgets.push)
        inboxes[index].run?.number = inbox.known
        return true
    }

    package mutating func check() {
        for (index, inbox) in inboxes.enumerated() {
            if let run = inbox.run {
                world.require(run.until > world.now, "\(world.name(index)) may handle pushes for too long")
            }
            guard let id = world.clients[index].id, inbox.isObserving, inbox.isUntold, inbox.run == nil,
                inbox.retryAt.map({ $0 <= world.now }) ?? true, let urgency = inbox.reported,
                let view = world.core.view(of: id, at: world.now), view.launches.notBefore == nil,
                view.launches.waitsForMemoryUntil == nil
            else { continue }
            if !world.clients[index].isForeground, isOverLimit(inbox) || !isTimely(urgency) {
                coverage.held += 1
                continue
            }
            world.require(false, "\(world.name(index)) is not told of its pushes")
        }
    }

    package mutating func take(_ answer: Answer, to message: ClientMessage, _ index: Int) {
        switch message {
        case .observe where answer == .done:
            inboxes[index].isObserving = true
            inboxes[index].hasAsked = true
            // The service is asked as well.
            world.events.append(report(index))
        case .pushDone(1_000_000, _):
            world.require(
                answer == .refused(.noPush),
                "\(world.name(index)) completes pushes that it was not told of")
        case .pushDone(_, .failed):
            world.require(
                answer == .done, "\(world.name(index)) cannot say that it has failed: \(answer)")
            noteFailure(index)
        case .pushDone:
            world.require(answer == .done, "\(world.name(index)) cannot complete its pushes: \(answer)")
            inboxes[index].run = nil
            coverage.completions += 1
        default: break
        }
    }

    package mutating func note(_ action: Action, of index: Int) {
        switch action {
        case .freeze:
            world.require(
                inboxes[index].run == nil, "\(world.name(index)) is suspended while it handles pushes")
        case .kill(_, .pushOverran): coverage.terminations += 1
        case .makeDormant:
            inboxes[index].isLaunched = false
            if inboxes[index].run != nil { noteFailure(index) }
        case .launch: coverage.launches += 1
        case .trace(_, .launching(.push)):
            // The moment is that of the launch: its process is told of them, whatever happens meanwhile.
            let isGood = inboxes[index].reported.map(isTimely) ?? false
            world.require(isGood, "\(world.name(index)) is launched at a bad moment")
            inboxes[index].isLaunched = true
        case .trace(let id, .pushEnded(nil)): endTime(id, index)
        default: break
        }
    }

    /// A client's time is over.
    private mutating func endTime(_ id: ClientID, _ index: Int) {
        world.require(
            inboxes[index].run.map { $0.until <= world.now } ?? false,
            "\(world.name(index)) has less time than promised")
        world.require(
            world.clients[index].isForeground || world.actions.actions.contains(.kill(id, .pushOverran)),
            "\(world.name(index)) may handle pushes for ever")
        noteFailure(index)
    }

    private mutating func noteFailure(_ index: Int) {
        let (told, known) = (inboxes[index].run?.number, inboxes[index].known)
        inboxes[index].run = nil
        guard inboxes[index].reported != nil else { return }
        inboxes[index].isUntold = true
        let hasNews = told != nil && known != nil && told != known
        inboxes[index].retryAt = hasNews ? nil : world.now + .seconds(60)
    }

    /// A new process is told of what the one before it has left.
    package mutating func begin(_ index: Int) {
        inboxes[index].hasAsked = false
        if !inboxes[index].isUntold { inboxes[index].known = nil }
    }

    package mutating func end(_ index: Int) { inboxes[index].run = nil }

    package mutating func leave(_ index: Int) {
        inboxes[index].isObserving = false
        forgetService(index)
        inboxes[index].retryAt = nil
        inboxes[index].told = []
    }

    package mutating func loseSupervisor() {
        coverage.deaths += 1
        (isOnBattery, isBatteryLow, isMetered) = (nil, nil, nil)
        for index in inboxes.indices { forgetService(index) }
    }
}
