import NightbellCore
import Testing

@Suite struct WakeLimitTests {
    /// Puts a client to sleep with an armed socket, and wakes it by traffic after `pause`.
    private func wake(_ bench: inout Bench, _ client: ClientID, _ socket: SocketToken, after pause: Duration)
        -> [Action]
    {
        bench.suspend(client)
        bench.now = bench.now + pause
        return bench.turn(.fired(socket, .readable))
    }

    private func isOverLimit(_ actions: [Action]) -> Bool {
        actions.contains {
            if case .trace(_, .tooManyWakes) = $0 { true } else { false }
        }
    }

    /// 15 wakes in 300 s are allowed; the 16th exceeds the limit if the first was less than 300 s ago.
    @Test(arguments: BudgetTests.Moment.allCases)
    func fifteenIn300Seconds(_ moment: BudgetTests.Moment) throws {
        var bench = Bench()
        let client = try bench.register()
        let socket = try bench.handOver(from: client)
        for _ in 0..<15 {
            let actions = wake(&bench, client, socket, after: .seconds(20))
            #expect(!isOverLimit(actions) && actions.contains(.thaw(client)))
        }
        let actions = wake(&bench, client, socket, after: moment.reach(.seconds(20)))
        #expect(isOverLimit(actions) == !moment.isOver)
        #expect(bench.counters(client)[.wakeLimitExceeded] == (moment.isOver ? 0 : 1))
        #expect(actions.contains(.thaw(client)), "it is thawed all the same")
    }

    /// The most recent wakes count, up to the current limit.
    @Test(arguments: [(2, 4), (4, 2), (3, 3)]) func theLimitChanges(limits: (first: Int, then: Int)) throws {
        var bench = Bench { $0.wakes.limit = limits.first }
        let client = try bench.register()
        let socket = try bench.handOver(from: client)
        for _ in 0..<(2 * limits.first + 1) {
            _ = wake(&bench, client, socket, after: .seconds(400))
        }
        var settings = bench.core.settings
        settings.wakes.limit = limits.then
        bench.core.change(settings)
        // The last of them is as long ago as it was.
        for _ in 0..<(limits.then - 1) {
            #expect(!isOverLimit(wake(&bench, client, socket, after: .seconds(70))))
        }
        #expect(isOverLimit(wake(&bench, client, socket, after: .seconds(70))))
    }

    @Test func lingersTwiceAsLongWithEachWakeTooMany() throws {
        var bench = Bench {
            $0.wakes.limit = 2
            $0.wakes.lingerMaximum = .seconds(4)
        }
        let client = try bench.register()
        let socket = try bench.handOver(from: client)
        for linger in [500, 500, 1_000, 2_000, 4_000, 4_000, 4_000] {
            _ = wake(&bench, client, socket, after: .zero)
            bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
            #expect(bench.core.nextDeadline == bench.now + .milliseconds(linger))
        }
        // Each wake within the limit reduces it again.
        for linger in [2_000, 1_000, 500, 500] {
            _ = wake(&bench, client, socket, after: .seconds(600))
            bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
            #expect(bench.core.nextDeadline == bench.now + .milliseconds(linger))
        }
    }

    @Test func isTerminatedIfItAskedForThat() throws {
        var bench = Bench { $0.wakes.limit = 3 }
        let client = try bench.register(policy: .terminate)
        let socket = try bench.handOver(from: client)
        for _ in 0..<3 { _ = wake(&bench, client, socket, after: .seconds(1)) }
        let actions = wake(&bench, client, socket, after: .seconds(1))
        #expect(actions.kills == [.tooManyWakes] && actions.wakes.isEmpty)
        #expect(!actions.contains(.thaw(client)), "it ends as it sleeps")
        #expect(bench.core.state(of: client) == .terminating)
    }

    @Test func onlyTrafficCounts() throws {
        var bench = Bench { $0.wakes.limit = 2 }
        let client = try bench.register(policy: .terminate)
        for _ in 0..<10 {
            bench.suspend(client)
            bench.command(.wake, client)
        }
        #expect(bench.counters(client)[.wakeLimitExceeded] == 0)
        #expect(bench.counters(client)[.wakesRequest] == 10)
    }

    /// The limit of a uid lengthens the lingering of all its clients, but ends none.
    @Test func clientsOfOneUserShareALimit() throws {
        var bench = Bench { $0.wakes.limitPerUser = 4 }
        let client = try bench.register(user: 1)
        let sibling = try bench.register(user: 1, policy: .terminate)
        let stranger = try bench.register(user: 2)
        let sockets = try [client, sibling, stranger].map { try bench.handOver(from: $0) }
        for _ in 0..<4 { _ = wake(&bench, client, sockets[0], after: .seconds(1)) }
        var actions = wake(&bench, sibling, sockets[1], after: .seconds(1))
        #expect(isOverLimit(actions) && actions.kills.isEmpty && actions.contains(.thaw(sibling)))
        bench.say(.wakeDone(wakeID: bench.lastWakeID), from: sibling)
        #expect(bench.core.nextDeadline == bench.now + .seconds(1))
        actions = wake(&bench, stranger, sockets[2], after: .seconds(1))
        #expect(!isOverLimit(actions))
        #expect(bench.core.usage.map(\.usage.wakes) == [5, 1])
        actions = wake(&bench, client, sockets[0], after: .seconds(300))
        #expect(!isOverLimit(actions), "a new period")
    }

    @Test func lingeringComesDownAfterALongStorm() {
        var settings = Settings.Wakes()
        settings.lingerMaximum = .seconds(2)
        var limiter = WakeLimiter()
        var now = Instant(nanoseconds: 0)
        for _ in 0..<100_000 {
            _ = limiter.countWake(at: now, isUserOverLimit: false, settings)
            now = now + .milliseconds(1)
        }
        #expect(limiter.linger(settings) == .seconds(2))
        for _ in 0..<17 {
            now = now + .seconds(3_600)
            _ = limiter.countWake(at: now, isUserOverLimit: false, settings)
        }
        #expect(limiter.linger(settings) == .milliseconds(500))
    }

    @Test func backoffDoublesUpToItsMaximum() {
        var settings = Settings.Suspension()
        settings.retry = .seconds(1)
        settings.retryMaximum = .seconds(5)
        var backoff = Backoff()
        #expect((0..<5).map { _ in backoff.next(settings) } == [1, 2, 4, 5, 5].map { .seconds($0) })
        backoff.reset()
        #expect(backoff.next(settings) == .seconds(1))
        settings.retryMaximum = .zero
        #expect(backoff.next(settings) == .seconds(1), "never less than the first pause")
    }
}
