/// The work to be finished before the machine may sleep.
struct SleepPreparation: Sendable, Equatable {
    /// The machine sleeps then at the latest.
    var until: Instant
    /// Clients that run, or are on their way to sleep, at the end of the turn in which it began; nil: it has
    /// not ended.
    var waiting: [ClientID]?
}

/// Sleep of the whole machine.
extension Supervision {
    /// Whether the machine has to wait before it sleeps: some client would have to run first.
    package var delaysSleep: Bool {
        guard !isStopping, neededFacts.contains(.sleep) || machine.sleepPreparation != nil else {
            return false
        }
        return !machine.isSleepImminent || machine.preparesForSleep || machine.sleepPreparation != nil
    }

    /// Runs every keep-alive handler that would be due within the first minutes of the sleep.
    mutating func prepareForSleep(at now: Instant, into actions: inout ActionBuffer) {
        guard machine.preparesForSleep, !isStopping else { return }
        machine.preparesForSleep = false
        let horizon = elapsed(at: now) + settings.sleep.horizon
        // Before any of them runs: the next window of a short timeout may be within the horizon as well.
        var due: [UInt32] = []
        while !mutated(.sleepsUnprepared), let slot = schedule.popAimed(at: horizon) { due.append(slot) }
        for slot in due { runKeepAlive(inSlot: slot, at: now, into: &actions) }
        machine.sleepPreparation = SleepPreparation(until: now + settings.sleep.delay)
    }

    /// Ends the preparation once all clients have finished, or have had their time.
    mutating func finishSleepPreparation(at now: Instant) {
        guard var preparation = machine.sleepPreparation else { return }
        // Handlers that have run along in that turn are waited for, too, and so is each client that begins to
        // go to sleep.
        let waiting = preparation.waiting.map(Set.init)
        preparation.waiting = clients.ids.map(ClientID.init).filter { client in
            isSuspending(client) || waiting?.contains(client) ?? true && isHandlingWake(client)
        }
        let isOver = now >= preparation.until && !mutated(.delaysSleepForEver)
        let isFinished = preparation.waiting?.isEmpty == true && !mutated(.delaysSleepForEver)
        machine.sleepPreparation = isOver || isFinished ? nil : preparation
    }

    /// Whether it has been asked to prepare for its suspension, and is not frozen yet.
    private func isSuspending(_ client: ClientID) -> Bool {
        guard case .suspending = clients[client.id].lifecycle.stage else { return false }
        return !mutated(.sleepsWhileSuspending)
    }

    /// Whether it handles a wake, or is about to be suspended. Background tasks go on after the machine's
    /// sleep.
    private func isHandlingWake(_ client: ClientID) -> Bool {
        guard case .background(let background) = clients[client.id].lifecycle.stage else { return false }
        return background.wake != nil || background.enteringUntil != nil
            || !clients[client.id].assertions.hasTasks && clients[client.id].assertions.mediaUntil == nil
    }
}
