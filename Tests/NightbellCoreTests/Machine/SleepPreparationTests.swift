import NightbellCore
import Testing

@Suite("The machine is about to sleep")
struct SleepPreparationTests {
    private var bench = Bench { $0.keepAlive.tolerance = 0 }

    private mutating func sleeper(_ timeout: Duration) throws -> ClientID {
        let client = try bench.register()
        bench.say(.setKeepAliveTimeout(timeout), from: client)
        bench.suspend(client)
        #expect(bench.core.state(of: client) == .suspended)
        return client
    }

    private mutating func beginSuspending(_ client: ClientID) {
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        if bench.core.state(of: client) == .background { bench.command(.suspend, client) }
        #expect(bench.core.state(of: client) == .suspending)
    }

    @Test mutating func handlersThatWouldBeDueSoonRunNow() throws {
        let soon = try sleeper(.seconds(700))
        let late = try sleeper(.seconds(7_000))
        bench.pass(.seconds(500))
        let actions = bench.turn(.fact(.sleepImminent(isDelayed: true)))
        #expect(actions.contains(.thaw(soon)) && !actions.contains(.thaw(late)))
        #expect(actions.wakes.map(\.reasons) == [.keepAlive])
        // Reported again, it does nothing more.
        #expect(bench.turn(.fact(.sleepImminent(isDelayed: true))).wakes.isEmpty)
    }

    @Test mutating func withoutDelayThereIsNoTimeForThem() throws {
        _ = try sleeper(.seconds(700))
        bench.pass(.seconds(500))
        #expect(bench.turn(.fact(.sleepImminent(isDelayed: false))).wakes.isEmpty)
        #expect(!bench.core.delaysSleep)
    }

    @Test mutating func theDelayEndsWhenTheySleepAgain() throws {
        let client = try sleeper(.seconds(700))
        #expect(bench.core.delaysSleep && bench.core.neededFacts.contains(.sleep))
        bench.pass(.seconds(500))
        bench.turn(.fact(.sleepImminent(isDelayed: true)))
        #expect(bench.core.delaysSleep)
        bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
        bench.pass(.seconds(1))
        #expect(bench.core.delaysSleep && bench.core.state(of: client) == .suspending)
        bench.say(.readyToSuspend(epoch: bench.lastEpoch, notIdle: []), from: client)
        bench.turn(.frozen(client, epoch: bench.lastEpoch))
        #expect(!bench.core.delaysSleep)
        bench.turn(.fact(.resumed))
        #expect(bench.core.delaysSleep)
    }

    /// It has a peer, and no keep-alive handler.
    @Test mutating func theMachineDoesNotSleepWhileAClientIsBeingSuspended() throws {
        #expect(!bench.core.delaysSleep)
        let client = try bench.register()
        var offer = SocketOffer(tag: .voip)
        offer.isRouted = true
        _ = bench.handOver(offer, from: client)
        #expect(bench.core.delaysSleep && bench.core.neededFacts.contains(.sleep))
        let other = try bench.register()
        beginSuspending(other)
        let epoch = bench.lastEpoch
        bench.turn(.fact(.sleepImminent(isDelayed: true)))
        #expect(bench.core.delaysSleep)
        // One that begins to be suspended meanwhile is waited for as well.
        beginSuspending(client)
        bench.say(.readyToSuspend(epoch: epoch, notIdle: []), from: other)
        bench.turn(.frozen(other, epoch: epoch))
        #expect(bench.core.delaysSleep)
        bench.say(.readyToSuspend(epoch: bench.lastEpoch, notIdle: []), from: client)
        bench.turn(.frozen(client, epoch: bench.lastEpoch))
        #expect(!bench.core.delaysSleep)
    }

    @Test mutating func theDelayEndsInTime() throws {
        _ = try sleeper(.seconds(700))
        bench.pass(.seconds(500))
        bench.turn(.fact(.sleepImminent(isDelayed: true)))
        // The handler hangs.
        bench.pass(.milliseconds(3_999))
        #expect(bench.core.delaysSleep)
        bench.pass(.milliseconds(1))
        #expect(!bench.core.delaysSleep)
    }

    @Test mutating func withNothingToRunThereIsNoDelay() throws {
        #expect(!bench.core.delaysSleep)
        let client = try sleeper(.seconds(7_000))
        bench.turn(.fact(.sleepImminent(isDelayed: true)))
        #expect(!bench.core.delaysSleep)
        bench.turn(.fact(.resumed))
        bench.say(.clearKeepAliveTimeout, from: client)
        #expect(!bench.core.delaysSleep && !bench.core.neededFacts.contains(.sleep))
    }

    @Test mutating func theMachineWakesForTheNextHandler() throws {
        #expect(bench.core.nextKeepAlive == nil)
        _ = try sleeper(.seconds(7_000))
        let start = bench.now
        _ = try sleeper(.seconds(700))
        let next = try #require(bench.core.nextKeepAlive)
        #expect(next <= start + .seconds(700) && next >= start + .seconds(699))
    }

    @Test mutating func onRequestOneHandlerRuns() throws {
        let client = try sleeper(.seconds(7_000))
        let other = try sleeper(.seconds(700))
        let actions = bench.command(.simulateSleep, client)
        #expect(actions.contains(.thaw(client)) && !actions.contains(.thaw(other)))
        #expect(actions.wakes.map(\.reasons) == [.keepAlive])
        let idle = try bench.register()
        #expect(bench.command(.simulateSleep, idle).contains(.commandAnswer(.noKeepAlive, Bench.key)))
    }
}
