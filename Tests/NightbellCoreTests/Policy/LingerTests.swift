import NightbellCore
import Testing

/// A client that may just have sent something stays awake for the answer.
@Suite("Linger")
struct LingerTests {
    private static let linger = Settings().wakes.linger

    /// In the background, woken by traffic.
    private func woken() throws -> (bench: Bench, client: ClientID, socket: SocketToken) {
        var bench = Bench()
        let client = try bench.register()
        let socket = try bench.handOver(from: client)
        bench.suspend(client)
        bench.turn(.fired(socket, .readable))
        return (bench, client, socket)
    }

    @Test func countsAfterAWakeThatTookLongerThanItsBudget() throws {
        var (bench, client, _) = try woken()
        let overrun = bench.pass(.seconds(10))
        #expect(overrun.overruns == [.wake])
        #expect(bench.core.state(of: client) == .background)
        bench.pass(Self.linger - .nanoseconds(1))
        #expect(bench.core.state(of: client) == .background)
        bench.pass(.nanoseconds(1))
        #expect(bench.core.state(of: client) == .suspending)
    }

    /// A call that takes longer than its wake: its last word is said when the task ends.
    @Test func countsAfterTheLastBackgroundTask() throws {
        var (bench, client, _) = try woken()
        let first = try bench.beginTask(client)
        let last = try bench.beginTask(client)
        bench.pass(.seconds(60))
        bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
        bench.say(.endBackgroundTask(first), from: client)
        bench.pass(.seconds(10))
        bench.say(.endBackgroundTask(last), from: client)
        bench.pass(Self.linger - .nanoseconds(1))
        #expect(bench.core.state(of: client) == .background)
        bench.pass(.nanoseconds(1))
        #expect(bench.core.state(of: client) == .suspending)
    }

    /// Nothing was held, so nothing was said.
    @Test func doesNotCountForATaskThatIsNotHeld() throws {
        var (bench, client, _) = try woken()
        bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
        bench.pass(Self.linger / 2)
        bench.say(.endBackgroundTask(77), from: client)
        bench.pass(Self.linger / 2)
        #expect(bench.core.state(of: client) == .suspending)
    }
}
