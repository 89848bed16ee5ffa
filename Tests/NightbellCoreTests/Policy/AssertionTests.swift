import NightbellCore
import Testing

@Suite("Background tasks and media")
struct AssertionTests {
    /// A client in the background that has just been woken and is done, with its tasks begun.
    private func held(tasks: Int = 1) throws -> (bench: Bench, client: ClientID, tasks: [UInt64]) {
        var bench = Bench()
        let client = try bench.register()
        bench.suspend(client)
        bench.command(.wake, client)
        let begun = try (0..<tasks).map { _ in try bench.beginTask(client) }
        bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
        return (bench, client, begun)
    }

    @Test func tokensAreUniqueAndEndOnce() throws {
        var (bench, client, tasks) = try held(tasks: 5)
        #expect(Set(tasks).count == 5 && !tasks.contains(0))
        for task in tasks {
            bench.say(.endBackgroundTask(task), from: client)
            #expect(bench.answer == .done)
            bench.say(.endBackgroundTask(task), from: client)
            #expect(bench.answer == .refused(.invalidTask))
        }
    }

    @Test(arguments: BudgetTests.Moment.allCases)
    func theNoticeComesBeforeTheEnd(_ moment: BudgetTests.Moment) throws {
        var (bench, client, _) = try held()
        let actions = bench.pass(moment.reach(.seconds(175)))
        #expect(actions.notices == (moment.isOver ? [.backgroundTimeExpiring(remaining: .seconds(5))] : []))
        #expect(bench.core.state(of: client) == .background)
    }

    @Test(arguments: BudgetTests.Moment.allCases)
    func aTaskNotEndedByThenMeansTermination(_ moment: BudgetTests.Moment) throws {
        var (bench, client, _) = try held()
        let actions = bench.pass(moment.reach(.seconds(180)))
        #expect(actions.overruns == (moment.isOver ? [.backgroundTasks] : []))
        #expect(actions.kills == (moment.isOver ? [.backgroundTasksOverran] : []))
        #expect(bench.counters(client)[.overrunsBackgroundTasks] == (moment.isOver ? 1 : 0))
        #expect(bench.core.state(of: client) == (moment.isOver ? .terminating : .background))
    }

    /// All tasks share the time: beginning another one, or ending the first, does not restart it.
    @Test func theClockRunsAcrossTasks() throws {
        var (bench, client, tasks) = try held()
        bench.pass(.seconds(100))
        let second = try bench.beginTask(client)
        bench.say(.backgroundTimeRemaining, from: client)
        #expect(bench.answer == .backgroundTimeLeft(.seconds(80)))
        bench.say(.endBackgroundTask(tasks[0]), from: client)
        bench.pass(.seconds(70))
        bench.say(.backgroundTimeRemaining, from: client)
        #expect(bench.answer == .backgroundTimeLeft(.seconds(10)))
        bench.say(.endBackgroundTask(second), from: client)
        bench.pass(.seconds(1))
        #expect(bench.core.state(of: client) == .suspending)
        // The attempt is cancelled; the stay in the background is still the same.
        let third = try bench.beginTask(client)
        bench.say(.backgroundTimeRemaining, from: client)
        #expect(bench.answer == .backgroundTimeLeft(.seconds(9)))
        bench.say(.endBackgroundTask(third), from: client)
        bench.pass(.seconds(1))
        bench.suspend(client)
        bench.command(.wake, client)
        bench.say(.backgroundTimeRemaining, from: client)
        #expect(bench.answer == .backgroundTimeLeft(.seconds(180)), "a new stay")
    }

    @Test func noTaskIsGrantedWhenTheTimeIsUp() throws {
        var (bench, client, tasks) = try held()
        bench.pass(.seconds(174))
        // A wake holds it in the background beyond the end of the tasks' time.
        bench.command(.wake, client)
        bench.say(.endBackgroundTask(tasks[0]), from: client)
        bench.pass(.seconds(6))
        bench.say(.beginBackgroundTask(name: "late"), from: client)
        #expect(bench.answer == .backgroundTask(nil))
        bench.say(.backgroundTimeRemaining, from: client)
        #expect(bench.answer == .backgroundTimeLeft(.zero))
    }

    @Test func theNumberOfTasksIsLimited() throws {
        var bench = Bench { $0.quotas.backgroundTasksPerClient = 3 }
        let client = try bench.register()
        for _ in 0..<3 { _ = try bench.beginTask(client) }
        bench.say(.beginBackgroundTask(name: "one too many"), from: client)
        #expect(bench.answer == .refused(.tooManyTasks))
    }

    @Test func theForegroundHasAllTheTimeThereIs() throws {
        var (bench, client, _) = try held()
        bench.pass(.seconds(100))
        bench.say(.enterForeground, from: client)
        bench.say(.backgroundTimeRemaining, from: client)
        #expect(bench.answer == .backgroundTimeLeft(nil))
        let actions = bench.pass(.seconds(3_600))
        #expect(actions.notices.isEmpty && actions.kills.isEmpty)
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundTimeRemaining, from: client)
        #expect(bench.answer == .backgroundTimeLeft(.seconds(180)))
    }

    /// While media plays, and until it lapses, the time is unlimited; then all of it is there.
    @Test func mediaStopsTheClock() throws {
        var (bench, client, _) = try held()
        var actions = bench.pass(.seconds(170))
        for _ in 0..<100 {
            bench.say(.mediaActivity, from: client)
            bench.say(.backgroundTimeRemaining, from: client)
            #expect(bench.answer == .backgroundTimeLeft(nil))
            actions = bench.pass(.seconds(4))
            #expect(actions.notices.isEmpty)
        }
        bench.pass(.seconds(1) - .nanoseconds(1))
        bench.say(.backgroundTimeRemaining, from: client)
        #expect(bench.answer == .backgroundTimeLeft(nil))
        bench.pass(.nanoseconds(1))
        bench.say(.backgroundTimeRemaining, from: client)
        #expect(bench.answer == .backgroundTimeLeft(.seconds(180)))
        actions = bench.pass(.seconds(180))
        #expect(actions.kills == [.backgroundTasksOverran])
    }

    @Test(arguments: BudgetTests.Moment.allCases)
    func mediaAloneHoldsOffSuspensionUntilItLapses(_ moment: BudgetTests.Moment) throws {
        var bench = Bench()
        let client = try bench.register()
        bench.say(.enterBackground, from: client)
        bench.say(.mediaActivity, from: client)
        bench.say(.backgroundEntered, from: client)
        bench.command(.suspend, client)
        #expect(bench.core.state(of: client) == .background)
        bench.pass(moment.reach(.seconds(5)))
        #expect(bench.core.state(of: client) == (moment.isOver ? .suspending : .background))
    }

    @Test func mediaNeedsItsMode() throws {
        var bench = Bench()
        let client = try bench.register(modes: .voip)
        bench.say(.mediaActivity, from: client)
        #expect(bench.answer == .refused(.modeRequired(.audio)))
    }

    /// Every task gets the full notice, so none is granted when less time than that is left.
    @Test(arguments: BudgetTests.Moment.allCases)
    func noTaskIsGrantedWhenLittleTimeIsLeft(_ moment: BudgetTests.Moment) throws {
        var (bench, client, tasks) = try held()
        bench.pass(.seconds(170))
        // Something else holds it meanwhile.
        bench.command(.wake, client)
        bench.say(.endBackgroundTask(tasks[0]), from: client)
        bench.now = bench.now + moment.reach(.seconds(5))
        bench.say(.beginBackgroundTask(name: "late"), from: client)
        guard case .backgroundTask(let granted) = bench.answer else { throw Bench.Unexpected.noTask }
        #expect((granted == nil) == moment.isOver)
    }

    @Test func aLateWarningLeavesTheWholeNotice() throws {
        var (bench, client, _) = try held()
        bench.now = bench.now + .seconds(178)
        let warned = bench.turn(.timer)
        #expect(warned.notices == [.backgroundTimeExpiring(remaining: .seconds(5))])
        #expect(bench.pass(.seconds(5) - .nanoseconds(1)).kills.isEmpty)
        #expect(bench.pass(.nanoseconds(1)).kills == [.backgroundTasksOverran])
        #expect(bench.core.state(of: client) == .terminating)
    }

    @Test func noTaskIsGrantedAfterTheWarning() throws {
        var (bench, client, tasks) = try held()
        bench.now = bench.now + .seconds(178)
        bench.turn(.timer)
        bench.say(.beginBackgroundTask(name: "late"), from: client)
        #expect(bench.answer == .backgroundTask(nil))
        bench.say(.endBackgroundTask(tasks[0]), from: client)
        #expect(bench.pass(.seconds(10)).kills.isEmpty)
    }

    /// The machine slept, or the loop was busy, for longer than the tasks had: first the notice, then the
    /// end.
    @Test func noClientIsEndedWithoutANotice() throws {
        var (bench, client, _) = try held()
        bench.now = bench.now + .seconds(3_600)
        var actions = bench.turn(.timer)
        #expect(actions.notices == [.backgroundTimeExpiring(remaining: .seconds(5))])
        #expect(bench.core.state(of: client) == .background)
        actions = bench.pass(.seconds(5))
        #expect(actions.kills == [.backgroundTasksOverran])
    }
}
