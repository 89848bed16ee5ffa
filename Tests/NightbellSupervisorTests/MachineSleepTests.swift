import NightbellCore
import NightbellSupervisor
import NightbellWire
import Synchronization
import Testing

/// The machine sleeps while clients do, or do not.
@Suite struct MachineSleepTests {
    @Test func keepAlivesAreServedAndTasksAreNotCharged() throws {
        let slept = Mutex(Duration.zero)
        let supervisor = try TestSupervisor { configuration in
            configuration.settings.budgets.backgroundTasks = .seconds(600)
            configuration.pretendedSleep = { slept.withLock { $0 } }
        }
        let busy = try WireClient(supervisor, "org.example.busy")
        guard case .backgroundTask(let task) = try busy.ask(.beginBackgroundTask(WireBeginBackgroundTask())),
            task.taskID != 0
        else { throw TestFailure("no task") }
        try busy.enterBackground()
        let sleeper = try WireClient(supervisor, "org.example.sleeper")
        var set = WireSetKeepAliveTimeout()
        set.timeoutMs = 3_600_000
        #expect(try sleeper.ask(.setKeepAliveTimeout(set)) == .done(WireDone()))
        try sleeper.goToSleep()
        try busy.wait(for: "org.example.sleeper", toBe: .suspended, supervisor)

        slept.withLock { $0 = .seconds(7_200) }
        // Any request makes a turn.
        _ = try busy.status()
        let wake = try sleeper.wake()
        #expect(wake.reasons == [.keepAlive] && wake.asleepNs >= 7_200_000_000_000)
        guard
            case .backgroundTimeLeft(let left) = try busy.ask(
                .backgroundTimeRemaining(WireBackgroundTimeRemaining()))
        else { throw TestFailure("no time") }
        #expect((300_000...600_000).contains(left.remainingMs))
        #expect(try busy.show("org.example.sleeper").counters["keep_alive_runs"] == 1)
        #expect(try busy.status().uptimeMs >= 7_200_000)
        try supervisor.stop()
    }
}
