import NightbellCore

/// The push service and the machine.
extension PushLife {
    mutating func arrive(_ index: Int) -> Event {
        coverage.pushes += 1
        let urgency = PushUrgency.allCases[random.below(PushUrgency.allCases.count)]
        if !clients[index].waiting.isEmpty { coverage.merged += 1 }
        clients[index].waiting.append(urgency)
        clients[index].number += 1
        return report(index)
    }

    /// Some are too old, or nothing has changed.
    mutating func expire(_ index: Int) -> Event {
        let count = random.below(clients[index].waiting.count + 1)
        clients[index].waiting.removeFirst(count)
        return report(index)
    }

    func report(_ index: Int) -> Event {
        .fact(
            .pushes(
                WaitingPushes(
                    of: 1_000, clients[index].registration.identifier,
                    number: max(1, clients[index].number), urgency: clients[index].waiting.max())))
    }

    mutating func change() -> Event {
        let value: Bool? = random.once(in: 4) ? nil : random.once(in: 2)
        if random.once(in: 2) { return .fact(.power(isOnBattery: value)) }
        return .fact(.network(NetworkFact(fingerprint: 1, isUp: true, isMetered: value)))
    }

    mutating func learn(_ fact: Fact) {
        switch fact {
        case .power(let isOnBattery): self.isOnBattery = isOnBattery
        case .network(let network): isMetered = network?.isMetered
        case .pushes(let waiting):
            for index in clients.indices
            where clients[index].registration.identifier == waiting.client && clients[index].isObserving {
                if waiting.urgency == nil {
                    clients[index].isUntold = false
                } else if waiting.number != clients[index].known {
                    clients[index].isUntold = true
                }
                clients[index].reported = waiting.urgency
                clients[index].known = waiting.number
            }
        case .pushServiceChanged:
            for index in clients.indices {
                forgetService(index)
                clients[index].retryAt = nil
            }
        default: break
        }
    }

    /// Nothing is known of waiting messages.
    mutating func forgetService(_ index: Int) {
        clients[index].known = nil
        clients[index].reported = nil
        clients[index].isUntold = false
    }
}

/// The rules for clients.
extension PushLife {
    private func isTimely(_ urgency: PushUrgency) -> Bool {
        switch urgency {
        case .veryLow: isOnBattery != true && isMetered != true
        case .low: isOnBattery != true || isMetered != true
        case .normal, .high: true
        }
    }

    private func isOverLimit(_ client: Client) -> Bool {
        client.told.filter { now.since($0) < .seconds(3_600) }.count >= settings.push.perHour
    }

    mutating func tell(_ wake: Wake, _ id: ClientID, _ index: Int) {
        log.storeToldWake(wake.wakeID, of: id)
        events.append(unanswered(.wakeDone(wakeID: wake.wakeID), id))
        let isKnown = wake.isRepeated && wake.wakeID <= clients[index].lastWakeID
        clients[index].lastWakeID = wake.wakeID
        let observed = actions.observed[wake.observed]
        require(
            wake.reasons.contains(.push) == !observed.isEmpty
                && wake.pushBudget == (observed.isEmpty ? nil : settings.budgets.push),
            "\(name(index)) is woken for pushes, and told of none")
        guard let first = observed.first, case .pushed(let urgency) = first.occurrence else { return }
        let client = clients[index]
        coverage.told += 1
        require(!client.isAsleep, "\(name(index)) is told while it is stopped")
        if !isKnown {
            require(client.isUntold, "\(name(index)) is told in vain, or twice")
            require(client.run == nil, "\(name(index)) is told while it handles others")
            require(client.reported == urgency, "\(name(index)) is told of \(urgency)")
            require(client.retryAt.map { $0 <= now } ?? true, "\(name(index)) is told again at once")
        }
        if client.retryAt != nil { coverage.toldAgain += 1 }
        if !client.isForeground {
            if wake.reasons == .push, !wake.isRepeated {
                require(isTimely(urgency), "\(name(index)) is woken at a bad moment for \(urgency)")
                require(!isOverLimit(client), "\(name(index)) is woken too often")
            }
            clients[index].told.append(now)
        }
        clients[index].isUntold = false
        clients[index].retryAt = nil
        clients[index].run = .init(wakeID: wake.wakeID, until: now + settings.budgets.push)
    }

    /// Once all has been done that follows from an event.
    mutating func checkTold() {
        for index in clients.indices {
            let client = clients[index]
            guard let id = client.id, client.isObserving, client.isUntold, client.run == nil,
                client.retryAt.map({ $0 <= now }) ?? true, let urgency = client.reported,
                let view = core.view(of: id, at: now), view.launches.notBefore == nil
            else { continue }
            if !client.isForeground, isOverLimit(client) || !isTimely(urgency) {
                coverage.held += 1
                continue
            }
            require(core.nextDeadline.map { $0 <= now } ?? false, "\(name(index)) is not told of its pushes")
        }
    }

    mutating func checkRuns() {
        for index in clients.indices {
            guard let run = clients[index].run, run.until <= now else { continue }
            require(false, "\(name(index)) may handle pushes for too long")
        }
    }

    mutating func take(_ answer: Answer, _ message: ClientMessage, _ index: Int) {
        switch message {
        case .observe where answer == .done:
            guard !clients[index].isObserving else { return }
            clients[index].isObserving = true
            // The service is asked as well.
            events.append(report(index))
        case .enterForeground where answer == .done: clients[index].isForeground = true
        case .enterBackground where answer == .done: clients[index].isForeground = false
        case .pushDone(1_000_000, _):
            require(answer == .refused(.noPush), "\(name(index)) completes pushes that it was not told of")
        case .pushDone(_, .failed):
            require(answer == .done, "\(name(index)) cannot say that it has failed: \(answer)")
            noteFailure(index)
        case .pushDone:
            require(answer == .done, "\(name(index)) cannot complete its pushes: \(answer)")
            clients[index].run = nil
            coverage.completions += 1
        default: break
        }
    }

    /// A client's time is over.
    mutating func endRun(_ result: FetchResult?, _ id: ClientID, _ index: Int, among all: [Action]) {
        guard result == nil else { return }
        require(
            clients[index].run.map { $0.until <= now } ?? false, "\(name(index)) has less time than promised")
        guard !clients[index].isForeground else { return clients[index].run = nil }
        require(all.contains(.kill(id, .pushOverran)), "\(name(index)) may handle pushes for ever")
        noteFailure(index)
    }

    mutating func noteFailure(_ index: Int) {
        clients[index].run = nil
        guard clients[index].reported != nil else { return }
        clients[index].isUntold = true
        clients[index].retryAt = now + .seconds(60)
    }

    /// It is no client any more.
    mutating func leave(_ index: Int) {
        clients[index].id = nil
        clients[index].isObserving = false
        forgetService(index)
        clients[index].retryAt = nil
        clients[index].told = []
    }
}
