import NightbellCore
import Testing

@Suite("Keep-alive timeouts")
struct KeepAliveTests {
    /// A sleeping client with a timeout of 600 s, set now.
    private func sleeper(_ timeout: Duration = .seconds(600)) throws -> (bench: Bench, client: ClientID) {
        var bench = Bench()
        let client = try bench.register()
        bench.say(.enterBackground, from: client)
        bench.say(.setKeepAliveTimeout(timeout), from: client)
        bench.suspend(client)
        return (bench, client)
    }

    private func window(_ bench: Bench, _ client: ClientID) -> Window? {
        bench.core.view(of: client, at: bench.now)?.keepAliveWindow
    }

    @Test(arguments: BudgetTests.Moment.allCases)
    func theShortestIsTenMinutes(_ moment: BudgetTests.Moment) throws {
        var bench = Bench()
        let client = try bench.register()
        bench.say(.setKeepAliveTimeout(moment.reach(.seconds(600))), from: client)
        let refused = Answer.refused(.timeoutTooShort(minimum: .seconds(600)))
        #expect(bench.answer == (moment.isOver ? .done : refused))
    }

    @Test func runsInItsWindowAndNotLater() throws {
        var (bench, client) = try sleeper()
        let set = bench.now
        #expect(window(bench, client)?.earliest == set + .seconds(540))
        #expect(window(bench, client)?.latest == set + .seconds(600))
        #expect(bench.core.nextDeadline == set + .milliseconds(599_750), "less a lead for scheduling delay")
        var actions = bench.pass(.milliseconds(599_749))
        #expect(actions.isEmpty)
        actions = bench.pass(.milliseconds(1))
        #expect(actions.wakes.map(\.reasons) == [.keepAlive] && actions.contains(.thaw(client)))
        #expect(actions.wakes.first?.budget == .seconds(10))
        #expect(bench.counters(client)[.keepAliveRuns] == 1 && bench.counters(client)[.keepAliveLate] == 0)
        // The next window counts from this run.
        #expect(window(bench, client)?.latest == bench.now + .seconds(600))
    }

    @Test(arguments: BudgetTests.Moment.allCases)
    func latenessIsRecorded(_ moment: BudgetTests.Moment) throws {
        var (bench, client) = try sleeper()
        let late = moment.reach(.seconds(600)) - .seconds(600)
        bench.now = bench.now + .seconds(600) + late
        let actions = bench.turn(.timer)
        #expect(actions.wakes.count == 1)
        #expect(bench.counters(client)[.keepAliveLate] == (moment == .after ? 1 : 0))
        #expect(actions.contains(.trace(client, .keepAliveLate(by: late))) == (moment == .after))
    }

    @Test func runsBeforeASilenceThatWouldMakeItLate() throws {
        var (bench, first) = try sleeper()
        let second = try bench.register()
        bench.say(.enterBackground, from: second)
        bench.say(.setKeepAliveTimeout(.seconds(650)), from: second)
        let third = try bench.register()
        bench.say(.enterBackground, from: third)
        bench.say(.setKeepAliveTimeout(.seconds(700)), from: third)
        bench.pass(.seconds(589))
        bench.core.prepareForSilence(of: .seconds(10), at: bench.now)
        #expect(bench.turn().wakes.isEmpty, "it has time")
        bench.pass(.seconds(1))
        bench.core.prepareForSilence(of: .seconds(10), at: bench.now)
        bench.turn()
        // The window of the third has not begun.
        #expect([first, second, third].map { bench.counters($0)[.keepAliveRuns] } == [1, 1, 0])
        bench.core.prepareForSilence(of: .seconds(10), at: bench.now)
        #expect(bench.turn().wakes.isEmpty, "they have run")
    }

    @Test func settingItAgainReplacesIt() throws {
        var (bench, client) = try sleeper()
        bench.pass(.seconds(300))
        bench.say(.setKeepAliveTimeout(.seconds(1_000)), from: client)
        #expect(window(bench, client)?.latest == bench.now + .seconds(1_000))
        bench.suspend(client)
        let actions = bench.pass(.seconds(998))
        #expect(actions.wakes.isEmpty)
    }

    @Test func clearingItEndsIt() throws {
        var (bench, client) = try sleeper()
        bench.say(.clearKeepAliveTimeout, from: client)
        bench.say(.clearKeepAliveTimeout, from: client)
        #expect(bench.answer == .done && window(bench, client) == nil)
        bench.suspend(client)
        #expect(bench.core.nextDeadline == nil)
    }

    @Test func itRunsOnlyInTheBackground() throws {
        var (bench, client) = try sleeper()
        bench.say(.enterForeground, from: client)
        #expect(bench.core.nextDeadline == nil && window(bench, client) == nil)
        var actions = bench.pass(.seconds(3_600))
        #expect(actions.isEmpty)
        // Due meanwhile: it runs as soon as the client is in the background, and is not late.
        actions = bench.say(.enterBackground, from: client)
        #expect(actions.wakes.map(\.reasons) == [.keepAlive])
        #expect(bench.counters(client)[.keepAliveLate] == 0)
    }

    @Test func theForegroundPausesItAndNoMore() throws {
        var (bench, client) = try sleeper()
        let set = bench.now
        bench.say(.enterForeground, from: client)
        bench.pass(.seconds(400))
        let actions = bench.say(.enterBackground, from: client)
        #expect(actions.wakes.isEmpty && window(bench, client)?.latest == set + .seconds(600))
    }

    /// A client inside its window runs its handler when another client is woken.
    @Test func runsTogetherWithOtherWakes() throws {
        var (bench, client) = try sleeper()
        let other = try bench.register()
        let socket = try bench.handOver(from: other)
        bench.suspend(other)
        bench.now = bench.now + .seconds(540) - .nanoseconds(1)
        var actions = bench.turn(.fired(socket, .readable))
        #expect(actions.wakes.map(\.reasons) == [.socket], "its window has not begun")
        bench.suspend(other)
        bench.now = bench.now + .nanoseconds(1)
        actions = bench.turn(.fired(socket, .readable))
        #expect(actions.wakes.map(\.reasons) == [.socket, .keepAlive])
        #expect(bench.counters(client)[.keepAliveRuns] == 1)
    }

    @Test func aClientWokenByTrafficRunsItInTheSameWake() throws {
        var (bench, client) = try sleeper()
        let socket = try bench.handOver(from: client)
        bench.suspend(client)
        bench.now = bench.now + .seconds(550)
        let actions = bench.turn(.fired(socket, .readable))
        #expect(actions.wakes.map(\.reasons) == [[.socket, .keepAlive]])
    }

    @Test func theEndOfAnotherClientDoesNotTouchIt() throws {
        var (bench, client) = try sleeper()
        let other = try bench.register()
        bench.say(.enterBackground, from: other)
        bench.say(.setKeepAliveTimeout(.seconds(600)), from: other)
        let window = window(bench, client)
        bench.command(.quit, other)
        bench.turn(.gone(other))
        #expect(self.window(bench, client) == window)
        let actions = bench.pass(.seconds(600))
        #expect(actions.wakes.count == 1)
        bench.turn(.gone(client))
        #expect(bench.core.nextDeadline == nil)
    }

    /// However short the timeouts and however odd the settings, no handler runs twice at one instant and the
    /// timer does not spin.
    @Test(arguments: [0, 0.1, 1, 7, -1, .nan, .infinity] as [Double])
    func oddSettingsDoNotSpin(_ tolerance: Double) throws {
        for timeout in [
            Duration.milliseconds(1), .milliseconds(100), .milliseconds(250),
            Settings.KeepAlive.maximumTimeout,
        ] {
            var bench = Bench {
                $0.keepAlive.minimumTimeout = .zero
                $0.keepAlive.tolerance = tolerance
            }
            let client = try bench.register()
            bench.say(.enterBackground, from: client)
            bench.say(.setKeepAliveTimeout(.zero), from: client)
            #expect(bench.answer == .refused(.timeoutTooShort(minimum: .milliseconds(1))))
            bench.say(.setKeepAliveTimeout(timeout), from: client)
            #expect(bench.answer == .done)
            bench.say(.backgroundEntered, from: client)
            for _ in 0..<20 {
                guard let deadline = bench.core.nextDeadline else { break }
                bench.now = max(bench.now, deadline)
                let actions = bench.turn(.timer)
                #expect(actions.wakes.count <= 1)
            }
            #expect(bench.counters(client)[.keepAliveLate] == 0)
        }
    }

    @Test func aRunIsNotCountedForAClientThatIsEndedAtTheSameMoment() throws {
        var bench = Bench()
        let client = try bench.register()
        bench.say(.enterBackground, from: client)
        bench.say(.setKeepAliveTimeout(.seconds(600)), from: client)
        _ = try bench.beginTask(client)
        bench.pass(.seconds(179))
        #expect(bench.core.state(of: client) == .background)
        // The loop is late: the end of its tasks and its window have both passed.
        bench.now = bench.now + .seconds(600)
        let actions = bench.turn()
        #expect(actions.kills == [.backgroundTasksOverran])
        #expect(actions.wakes.isEmpty && bench.counters(client)[.keepAliveRuns] == 0)
    }

    @Test(arguments: [Duration.milliseconds(Int64.max), .seconds(30 * 86_400) + .milliseconds(1)])
    func theLongestIsThirtyDays(_ timeout: Duration) throws {
        var bench = Bench()
        let client = try bench.register()
        bench.say(.setKeepAliveTimeout(timeout), from: client)
        #expect(bench.answer == .refused(.timeoutTooLong(maximum: .seconds(30 * 86_400))))
        bench.say(.setKeepAliveTimeout(.seconds(30 * 86_400)), from: client)
        #expect(bench.answer == .done)
    }
}
