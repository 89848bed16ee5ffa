import NightbellCore
import Testing

/// The budgets of each step: one nanosecond before its end, at its end, and after it.
@Suite struct BudgetTests {
    enum Moment: CaseIterable {
        case justBefore
        case atTheEnd
        case after

        func reach(_ budget: Duration) -> Duration {
            switch self {
            case .justBefore: budget - .nanoseconds(1)
            case .atTheEnd: budget
            case .after: budget + .seconds(1)
            }
        }

        var isOver: Bool { self != .justBefore }
    }

    @Test func theNumbersAreTheDocumentedOnes() {
        let settings = Settings()
        #expect(settings.budgets.enteringBackground == .seconds(5))
        #expect(settings.budgets.prepareToSuspend == .seconds(5))
        #expect(settings.budgets.wake == .seconds(10))
        #expect(settings.budgets.backgroundTasks == .seconds(180))
        #expect(settings.budgets.expirationNotice == .seconds(5))
        #expect(settings.budgets.termination == .seconds(5))
        #expect(settings.budgets.mediaLapse == .seconds(5))
        #expect(settings.keepAlive.minimumTimeout == .seconds(600))
        #expect(settings.keepAlive.tolerance == 0.1)
        #expect(settings.wakes.limit == 15 && settings.wakes.period == .seconds(300))
    }

    @Test(arguments: Moment.allCases)
    func enteringTheBackground(_ moment: Moment) throws {
        var bench = Bench()
        let client = try bench.register()
        let told = bench.say(.enterBackground, from: client)
        #expect(told.notices == [.didEnterBackground(budget: .seconds(5))])
        let actions = bench.pass(moment.reach(.seconds(5)))
        #expect(actions.overruns == (moment.isOver ? [.enteringBackground] : []))
        #expect(bench.counters(client)[.overrunsEnteringBackground] == (moment.isOver ? 1 : 0))
        #expect(bench.core.state(of: client) == (moment.isOver ? .suspending : .background))
    }

    @Test(arguments: Moment.allCases)
    func preparingToSuspend(_ moment: Moment) throws {
        var bench = Bench()
        let client = try bench.register()
        bench.say(.enterBackground, from: client)
        let told = bench.say(.backgroundEntered, from: client)
        #expect(told.notices == [.prepareToSuspend(epoch: 1, budget: .seconds(5))])
        // The freeze that follows is not confirmed: that is another budget.
        bench.now = bench.now + moment.reach(.seconds(5))
        let actions = bench.turn(.timer)
        #expect(actions.overruns == (moment.isOver ? [.prepareToSuspend] : []))
        #expect(actions.contains(.freeze(client, epoch: 1)) == moment.isOver)
        #expect(bench.counters(client)[.suspensionsForced] == (moment.isOver ? 1 : 0))
    }

    @Test(arguments: Moment.allCases)
    func handlingAWake(_ moment: Moment) throws {
        var bench = Bench()
        let client = try bench.register()
        bench.suspend(client)
        bench.pass(.seconds(7))
        let woken = bench.command(.wake, client)
        let wake = try #require(woken.wakes.first)
        #expect(wake.budget == .seconds(10) && wake.asleepFor == .seconds(7) && wake.wakeID == 1)
        let actions = bench.pass(moment.reach(.seconds(10)))
        #expect(actions.overruns == (moment.isOver ? [.wake] : []))
        #expect(actions.kills.isEmpty, "an overrun wake means suspension, not death")
        // It lingers first.
        #expect(bench.core.state(of: client) == (moment == .after ? .suspending : .background))
    }

    @Test(arguments: Moment.allCases)
    func leavingAfterTheNotice(_ moment: Moment) throws {
        var bench = Bench()
        let client = try bench.register()
        let told = bench.command(.quit, client)
        #expect(told.notices == [.willTerminate(budget: .seconds(5), .quitByUser)])
        let actions = bench.pass(moment.reach(.seconds(5)))
        #expect(actions.kills == (moment.isOver ? [.quitByUser] : []))
        #expect(actions.overruns == (moment.isOver ? [.termination] : []))
    }

    @Test(arguments: Moment.allCases)
    func confirmingAFreeze(_ moment: Moment) throws {
        var bench = Bench()
        let client = try bench.register()
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        bench.say(.readyToSuspend(epoch: 1, notIdle: []), from: client)
        bench.now = bench.now + moment.reach(.seconds(1))
        let actions = bench.turn(.timer)
        #expect(actions.contains(.thaw(client)) == moment.isOver)
        #expect(bench.counters(client)[.suspensionsFailed] == (moment.isOver ? 1 : 0))
        #expect(bench.core.state(of: client) == (moment.isOver ? .background : .suspending))
    }

    /// Answers that are too late are overruns also when the loop was too busy to serve the timer first.
    @Test(arguments: Moment.allCases)
    func answersAreJudgedByTheClockAndNotByTheTimer(_ moment: Moment) throws {
        var bench = Bench()
        let client = try bench.register()
        let count: UInt64 = moment.isOver ? 1 : 0

        bench.say(.enterBackground, from: client)
        bench.now = bench.now + moment.reach(.seconds(5))
        bench.say(.backgroundEntered, from: client)
        #expect(bench.counters(client)[.overrunsEnteringBackground] == count)

        bench.now = bench.now + moment.reach(.seconds(5))
        bench.say(.readyToSuspend(epoch: bench.lastEpoch, notIdle: []), from: client)
        #expect(bench.counters(client)[.overrunsPrepare] == count)
        bench.turn(.frozen(client, epoch: bench.lastEpoch))
        #expect(bench.core.state(of: client) == .suspended)

        bench.command(.wake, client)
        bench.now = bench.now + moment.reach(.seconds(10))
        bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
        #expect(bench.counters(client)[.overrunsWake] == count)
    }

    /// A second wake gives its own budget, but does not hide that the first one's was over.
    @Test(arguments: Moment.allCases)
    func anotherWakeDoesNotCoverUpAnOverrun(_ moment: Moment) throws {
        var bench = Bench()
        let client = try bench.register()
        bench.suspend(client)
        bench.command(.wake, client)
        bench.now = bench.now + moment.reach(.seconds(10))
        bench.command(.wake, client)
        #expect(bench.counters(client)[.overrunsWake] == (moment.isOver ? 1 : 0))
        bench.now = bench.now + moment.reach(.seconds(10))
        bench.turn(.timer)
        #expect(bench.counters(client)[.overrunsWake] == (moment.isOver ? 2 : 0))
    }

    /// However a sleep ends, its time is counted once.
    @Test(arguments: [Command.wake, .quit])
    func sleepIsCounted(_ command: Command) throws {
        var bench = Bench()
        let client = try bench.register()
        bench.suspend(client)
        bench.pass(.seconds(7))
        #expect(bench.counters(client).asleepNanoseconds == 7_000_000_000, "also while it lasts")
        bench.command(command, client)
        #expect(bench.counters(client).asleepNanoseconds == 7_000_000_000)
        bench.turn(.gone(client))
        #expect(bench.core.counters.asleepNanoseconds == 7_000_000_000)
    }

    @Test func aTaskBuysAWakeMoreTime() throws {
        var bench = Bench()
        let client = try bench.register()
        bench.suspend(client)
        bench.command(.wake, client)
        let task = try bench.beginTask(client)
        bench.pass(.seconds(60))
        #expect(bench.counters(client)[.overrunsWake] == 0)
        #expect(bench.core.state(of: client) == .background)
        bench.say(.endBackgroundTask(task), from: client)
        bench.pass(.seconds(1))
        #expect(bench.core.state(of: client) == .suspending)
    }

    /// The pause before another attempt doubles with each failure in a row, up to its maximum.
    @Test func failedSuspensionsAreTriedLessAndLessOften() throws {
        var bench = Bench { $0.suspension.retryMaximum = .seconds(3) }
        let client = try bench.register()
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        for pause in [250, 500, 1_000, 2_000, 3_000, 3_000] {
            bench.say(.readyToSuspend(epoch: bench.lastEpoch, notIdle: []), from: client)
            bench.turn(.freezeFailed(client, epoch: bench.lastEpoch))
            #expect(bench.core.nextDeadline == bench.now + .milliseconds(pause))
            bench.pass(.milliseconds(pause))
            #expect(bench.core.state(of: client) == .suspending)
        }
        bench.say(.readyToSuspend(epoch: bench.lastEpoch, notIdle: []), from: client)
        bench.turn(.frozen(client, epoch: bench.lastEpoch))
        bench.command(.wake, client)
        bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
        bench.pass(.seconds(1))
        bench.say(.readyToSuspend(epoch: bench.lastEpoch, notIdle: []), from: client)
        bench.turn(.freezeFailed(client, epoch: bench.lastEpoch))
        #expect(bench.core.nextDeadline == bench.now + .milliseconds(250), "success begins anew")
    }

    /// The kernel is asked again soon, then less often, until it confirms or its second is over.
    @Test func unconfirmedFreezesAreLookedAtAgain() throws {
        var bench = Bench()
        let client = try bench.register()
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        bench.say(.readyToSuspend(epoch: 1, notIdle: []), from: client)
        let end = bench.now + .seconds(1)
        var looks = 0
        while bench.core.state(of: client) == .suspending {
            bench.turn(.notFrozenYet(client, epoch: 1))
            bench.now = try #require(bench.core.nextDeadline)
            let actions = bench.turn(.timer)
            looks += actions.contains(.checkFreeze(client, epoch: 1)) ? 1 : 0
        }
        #expect(bench.now == end && bench.core.state(of: client) == .background)
        #expect((10...40).contains(looks))
    }
}
