import NightbellCore
import Testing

@Suite("Fetch")
struct FetchTests {
    private func bench() -> Bench {
        Bench { $0.wakes.linger = .milliseconds(10) }
    }

    /// A client in the background that wants to fetch.
    private func client(
        _ bench: inout Bench, _ interval: FetchInterval = .minimum, modes: Modes = .fetch,
        isLaunchable: Bool = false
    ) throws -> ClientID {
        let client = try bench.register(modes: modes, isLaunchable: isLaunchable)
        bench.say(.setMinimumFetchInterval(interval), from: client)
        #expect(bench.answer == .done)
        bench.suspend(client)
        return client
    }

    /// Lets time pass until the next fetch; returns its wake.
    private func nextFetch(_ bench: inout Bench) throws -> Wake {
        for _ in 0..<10_000 {
            let deadline = try #require(bench.core.nextDeadline)
            bench.now = max(bench.now, deadline)
            if let wake = bench.turn(.timer).wakes.first(where: { $0.reasons.contains(.fetch) }) {
                return wake
            }
        }
        Issue.record("there is no fetch")
        throw Bench.Unexpected.notAdopted
    }

    @Test func theModeIsRequired() throws {
        var bench = bench()
        let client = try bench.register(modes: .voip)
        bench.say(.setMinimumFetchInterval(.minimum), from: client)
        #expect(bench.answer == .refused(.modeRequired(.fetch)))
        #expect(
            bench.command(.simulateFetch, client).contains(.commandAnswer(.modeRequired(.fetch), Bench.key)))
    }

    @Test func neverIsTheDefault() throws {
        var bench = bench()
        let client = try bench.register(modes: .fetch)
        bench.suspend(client)
        #expect(bench.core.nextDeadline == nil)
        #expect(bench.pass(.seconds(86_400)).wakes.isEmpty)
    }

    @Test func aSuspendedClientIsFetchedAndSuspendedAgain() throws {
        var bench = bench()
        let client = try client(&bench)
        let begin = bench.now
        let wake = try nextFetch(&bench)
        #expect(bench.now.since(begin) >= bench.core.settings.fetch.minimumInterval)
        #expect(wake.fetchBudget == .seconds(30) && wake.budget == .seconds(10))
        bench.say(.wakeDone(wakeID: wake.wakeID), from: client)
        // The wake is done, the fetch is not.
        bench.pass(.seconds(20))
        #expect(bench.core.state(of: client) == .background)
        bench.say(.fetchDone(wakeID: wake.wakeID, .noData), from: client)
        #expect(bench.answer == .done)
        #expect(
            bench.pass(.seconds(1)).notices.contains {
                if case .prepareToSuspend = $0 { true } else { false }
            })
    }

    @Test func itIsTerminatedIfItDoesNotCompleteIt() throws {
        var bench = bench()
        let client = try client(&bench, modes: [.fetch, .voip], isLaunchable: true)
        let before = try #require(bench.core.view(of: client, at: bench.now)?.fetch?.state.score.value)
        let wake = try nextFetch(&bench)
        bench.say(.wakeDone(wakeID: wake.wakeID), from: client)
        let actions = bench.pass(.seconds(31))
        #expect(actions.kills == [.fetchOverran] && actions.overruns == [.fetch])
        let state = try #require(bench.core.view(of: client, at: bench.now)?.fetch?.state)
        #expect(state.score.value == before / 2 && state.score.overruns == 1)
    }

    @Test func mediaKeepsItFromBeingTerminated() throws {
        var bench = bench()
        let client = try client(&bench, modes: [.fetch, .audio])
        let wake = try nextFetch(&bench)
        bench.say(.wakeDone(wakeID: wake.wakeID), from: client)
        var actions: [Action] = []
        for _ in 0..<40 {
            bench.say(.mediaActivity, from: client)
            actions += bench.pass(.seconds(1))
        }
        #expect(actions.kills.isEmpty && actions.overruns == [.fetch])
    }

    @Test func aClientInTheForegroundIsNotFetched() throws {
        var bench = bench()
        let client = try client(&bench)
        bench.command(.wake, client)
        bench.say(.enterForeground, from: client)
        #expect(bench.pass(.seconds(86_400)).wakes.isEmpty)
        bench.suspend(client)
        let left = bench.now
        _ = try nextFetch(&bench)
        // The floor counts from leaving the foreground.
        #expect(bench.now.since(left) >= bench.core.settings.fetch.minimumInterval)
    }

    @Test func itsOwnIntervalIsAFloor() throws {
        var bench = bench()
        let client = try client(&bench, .atLeast(.seconds(20_000)))
        var last = bench.now
        for _ in 0..<4 {
            let wake = try nextFetch(&bench)
            #expect(bench.now.since(last) >= .seconds(20_000))
            last = bench.now
            bench.say(.fetchDone(wakeID: wake.wakeID, .newData), from: client)
            bench.suspend(client)
        }
    }

    @Test func aFetchNeedsTheNetwork() throws {
        var bench = bench()
        _ = try client(&bench)
        bench.turn(.fact(.network(NetworkFact(fingerprint: 1, isUp: false))))
        #expect(bench.core.nextDeadline == nil)
        #expect(bench.pass(.seconds(86_400)).wakes.isEmpty)
        bench.turn(.fact(.shortage(true)))
        #expect(bench.turn(.fact(.network(NetworkFact(fingerprint: 1, isUp: true)))).wakes.isEmpty)
        #expect(bench.turn(.fact(.shortage(false))).wakes.map(\.reasons) == [.fetch])
    }

    @Test func aPlannedFetchSaysWhyItWaits() throws {
        var bench = Bench { $0.fetch.concurrent = 4 }
        let client = try client(&bench)
        func obstacle() -> FetchObstacle? { bench.core.view(of: client, at: bench.now)?.fetch?.obstacle }
        #expect(obstacle() == nil)
        for (fact, end, expected) in [
            (
                .network(NetworkFact(fingerprint: 1, isUp: false)),
                .network(NetworkFact(fingerprint: 1, isUp: true)), .networkDown
            ),
            (.shortage(true), .shortage(false), .shortage),
            (.sleepImminent(isDelayed: false), .resumed, .machineSleeps),
        ] as [(Fact, Fact, FetchObstacle)] {
            bench.turn(.fact(fact))
            #expect(obstacle() == expected)
            bench.turn(.fact(end))
            #expect(obstacle() == nil)
        }
    }

    @Test func aFetchThatHasNoPlaceSaysSo() throws {
        var bench = Bench { $0.fetch.concurrent = 1 }
        let one = try client(&bench)
        let other = try bench.register("other", user: 2_000, modes: .fetch)
        bench.say(.setMinimumFetchInterval(.minimum), from: other)
        bench.suspend(other)
        _ = try nextFetch(&bench)
        let views = try [one, other].map { try #require(bench.core.view(of: $0, at: bench.now)?.fetch) }
        #expect(views.map(\.isRunning).filter(\.self) == [true])
        #expect(views.map(\.obstacle).compactMap(\.self) == [.places])
    }

    @Test func aDormantClientIsLaunchedAndOneThatWasQuitIsNot() throws {
        var bench = bench()
        let client = try client(&bench, isLaunchable: true)
        let crash = bench.turn(.ended(client, .failed))
        #expect(crash.contains(.makeDormant(client)))
        var launches: [Action] = []
        for _ in 0..<100 where launches.isEmpty {
            bench.now = max(bench.now, try #require(bench.core.nextDeadline))
            launches = bench.turn(.timer).filter { $0 == .launch(client) }
        }
        #expect(launches == [.launch(client)])
        let registration = try #require(bench.core.registration(of: client))
        let wake = try #require(bench.turn(.rejoined(client, registration, Bench.key)).wakes.first)
        #expect(wake.reasons == .fetch && wake.fetchBudget == .seconds(30))
        bench.say(.fetchDone(wakeID: wake.wakeID, .newData), from: client)
        bench.suspend(client)
        bench.command(.quit, client)
        bench.turn(.ended(client, .failed))
        #expect(!bench.core.contains(client))
        #expect(bench.pass(.seconds(86_400)).isEmpty)
    }

    /// A moment that was good during the pause after its failure may be a bad one when that is over.
    @Test func aFailedClientIsNotLaunchedInABadMoment() throws {
        var bench = Bench {
            $0.launches.retry = .seconds(86_400)
            $0.launches.retryMaximum = .seconds(86_400)
        }
        let client = try client(&bench, isLaunchable: true)
        bench.turn(.ended(client, .failed))
        #expect(!bench.pass(.seconds(86_000)).contains(.launch(client)))
        bench.turn(.fact(.network(NetworkFact(fingerprint: 1, isUp: false))))
        #expect(!bench.pass(.seconds(86_400)).contains(.launch(client)))
        let online = bench.turn(.fact(.network(NetworkFact(fingerprint: 1, isUp: true))))
        #expect((online + bench.pass(.seconds(3_600))).contains(.launch(client)))
    }

    @Test func aFetchThatWasNotBegunCannotBeCompleted() throws {
        var bench = bench()
        let client = try client(&bench)
        bench.command(.wake, client)
        bench.say(.fetchDone(wakeID: bench.lastWakeID, .newData), from: client)
        #expect(bench.answer == .refused(.noFetch))
        bench.command(.simulateFetch, client)
        bench.say(.fetchDone(wakeID: bench.lastWakeID, .newData), from: client)
        #expect(bench.answer == .done)
        bench.say(.fetchDone(wakeID: bench.lastWakeID, .newData), from: client)
        #expect(bench.answer == .refused(.noFetch))
    }

    @Test func simulatingIsTracedAndNeedsTheRightState() throws {
        var bench = bench()
        let client = try client(&bench, isLaunchable: true)
        let actions = bench.command(.simulateFetch, client)
        #expect(actions.contains(.trace(client, .simulated(.simulateFetch))))
        #expect(actions.wakes.map(\.reasons) == [.fetch])
        let again = bench.command(.simulateFetch, client)
        #expect(again.contains(.commandAnswer(.illegalState(.background), Bench.key)))
        let refused = bench.command(.simulateFetchLaunch, client)
        #expect(refused.contains(.commandAnswer(.illegalState(.background), Bench.key)))
        bench.turn(.ended(client, .failed))
        bench.pass(.seconds(1))
        #expect(bench.command(.simulateFetchLaunch, client).contains(.launch(client)))
    }

    @Test func slowAndFailingClientsHaveFewerChances() throws {
        func fetches(_ result: FetchResult, after took: Duration) throws -> Int {
            var bench = bench()
            let client = try client(&bench)
            let end = bench.now + .seconds(4 * 86_400)
            var count = 0
            while bench.now < end {
                let wake = try nextFetch(&bench)
                count += 1
                bench.pass(took)
                bench.say(.fetchDone(wakeID: wake.wakeID, result), from: client)
                bench.suspend(client)
            }
            return count
        }
        let quick = try fetches(.noData, after: .seconds(1))
        #expect(try fetches(.newData, after: .seconds(28)) < quick)
        #expect(try fetches(.failed, after: .seconds(1)) < quick)
        // A claim earns nothing.
        #expect(try fetches(.newData, after: .seconds(1)) == quick)
    }

    // MARK: Learning

    /// Lets time pass until an instant, completes each fetch, and returns when the last one began.
    private func live(_ client: ClientID, until end: Instant, _ bench: inout Bench) -> Instant? {
        var last: Instant?
        while let deadline = bench.core.nextDeadline, deadline < end {
            bench.now = max(bench.now, deadline)
            let wakes = bench.turn(.timer).wakes
            guard let wake = wakes.first(where: { $0.reasons.contains(.fetch) }) else { continue }
            last = bench.now
            bench.say(.fetchDone(wakeID: wake.wakeID, .newData), from: client)
            bench.suspend(client)
        }
        bench.now = end
        return last
    }

    @Test(arguments: [7, 13, 20]) func aFetchComesShortlyBeforeTheUsualHour(_ hour: Int) throws {
        var bench = bench()
        let client = try client(&bench)
        // A Monday begins now, in local time.
        let start = bench.now
        bench.turn(.fact(.wallClock(offset: .seconds(19_996 * 86_400) - .nanoseconds(start.nanoseconds))))
        var opening = start + .seconds(hour * 3_600 + 600)
        for _ in 0..<4 {
            _ = live(client, until: opening, &bench)
            bench.say(.enterForeground, from: client)
            bench.pass(.seconds(60))
            bench.suspend(client)
            opening = opening + .seconds(86_400)
        }
        let last = try #require(live(client, until: opening, &bench))
        #expect(opening.since(last) <= .seconds(1_800))
        let fetch = try #require(bench.core.view(of: client, at: bench.now)?.fetch)
        #expect(fetch.usualHours == [hour] && fetch.state.habit.observedDays == 4)
    }

    // MARK: Shares and evasions

    private func state(_ client: ClientID, _ bench: Bench) throws -> FetchState {
        try #require(bench.core.view(of: client, at: bench.now)?.fetch?.state)
    }

    @Test func simulatedFetchesTakeNoPlaces() throws {
        var bench = Bench { $0.fetch.concurrent = 1 }
        let other = try client(&bench)
        for number in 0..<8 {
            let busy = try bench.register("busy.\(number)", user: 2_000, modes: .fetch)
            bench.suspend(busy)
            #expect(bench.command(.simulateFetch, busy).wakes.count == 1)
        }
        #expect(bench.core.nextDeadline != nil)
        #expect(try nextFetch(&bench).reasons == .fetch)
        #expect(try state(other, bench).lastFetch != nil)
    }

    @Test func oneUserHasHalfOfThePlaces() throws {
        var bench = Bench { $0.fetch.concurrent = 4 }
        var slow: [ClientID] = []
        for number in 0..<16 {
            let client = try bench.register("slow.\(number)", user: 2_000, modes: .fetch)
            bench.say(.setMinimumFetchInterval(.minimum), from: client)
            bench.suspend(client)
            slow.append(client)
        }
        var peak = 0
        var isHeld = false
        let end = bench.now + .seconds(86_400)
        while let deadline = bench.core.nextDeadline, deadline <= end {
            bench.now = max(bench.now, deadline)
            bench.turn(.timer)
            let running = slow.filter {
                bench.core.view(of: $0, at: bench.now)?.fetch?.isRunning ?? false
            }
            peak = max(peak, running.count)
            let views = slow.compactMap { bench.core.view(of: $0, at: bench.now)?.fetch }
            isHeld = isHeld || views.contains { $0.obstacle == .placesOfUser }
        }
        #expect(peak == 2)
        #expect(isHeld)
        // Those that were held had their turn when others had ended.
        for client in slow { #expect(try state(client, bench).lastFetch != nil) }
    }

    @Test func simulatedFetchesDoNotChangeTheScore() throws {
        var bench = bench()
        let client = try client(&bench)
        let before = try state(client, bench)
        for _ in 0..<8 {
            bench.command(.simulateFetch, client)
            bench.say(.fetchDone(wakeID: bench.lastWakeID, .newData), from: client)
            #expect(bench.answer == .done)
            bench.suspend(client)
        }
        let after = try state(client, bench)
        #expect(after.score == before.score && after.habit == before.habit)
        #expect(after.lastFetch != nil && after.fetchesOnDay == 0)
        // The next one is real.
        _ = try nextFetch(&bench)
        #expect(try state(client, bench).fetchesOnDay == 1)
    }

    @Test func exitingDoesNotCompleteAFetch() throws {
        var bench = bench()
        let client = try client(&bench)
        _ = try nextFetch(&bench)
        bench.turn(.ended(client, .succeeded))
        let again = try bench.register("client.1", modes: .fetch)
        #expect(try state(again, bench).score.overruns == 1)
    }

    @Test func onlyOneFetchInARowMayEndInTheForeground() throws {
        var bench = bench()
        let client = try client(&bench)
        let before = try state(client, bench).score
        for overruns in [0, 1, 2] {
            let wake = try nextFetch(&bench)
            bench.say(.wakeDone(wakeID: wake.wakeID), from: client)
            bench.pass(.seconds(29))
            bench.say(.enterForeground, from: client)
            #expect(bench.pass(.seconds(2)).kills.isEmpty)
            #expect(try state(client, bench).score.overruns == overruns)
            bench.suspend(client)
        }
        #expect(try state(client, bench).score.value == before.value / 4)
        let wake = try nextFetch(&bench)
        bench.say(.enterForeground, from: client)
        bench.say(.fetchDone(wakeID: wake.wakeID, .newData), from: client)
        #expect(bench.answer == .done)
        #expect(try state(client, bench).score.wasInterrupted == false)
    }
}
