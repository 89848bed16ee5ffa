import Foundation
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import Testing

/// Budgets, assertions and races of the life cycle, as seen by a client on the wire.
@Suite struct LifecycleTests {
    private let name = "org.example.phone"

    @Test func notIdleCancelsAndIsTriedAgain() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, name)
        let pair = try Pair.unix()
        defer { withExtendedLifetime(pair) {} }
        let token = try client.handOver(pair.near)
        try client.enterBackground()
        let first = try client.prepare()
        try client.ready(first, notIdle: [token])
        let cancelled: UInt64 = try client.notice { body in
            guard case .suspendCancelled(let message) = body else { return nil }
            return message.epoch
        }
        #expect(cancelled == first)
        let second = try client.prepare()
        #expect(second > first)
        try client.ready(second)
        try client.wait(for: name, toBe: .suspended, supervisor)
        try supervisor.stop()
    }

    @Test func aStaleAnswerIsIgnored() throws {
        let supervisor = try TestSupervisor { $0.settings.budgets.prepareToSuspend = .seconds(30) }
        let client = try WireClient(supervisor, name)
        let pair = try Pair.unix()
        defer { withExtendedLifetime(pair) {} }
        let token = try client.handOver(pair.near)
        try client.enterBackground()
        let first = try client.prepare()
        try client.ready(first, notIdle: [token])
        _ = try client.prepare()
        try client.ready(first)
        // Requests are answered in order, so the stale answer has been handled by then.
        #expect(try client.show(name).state == .suspending)
        try supervisor.stop()
    }

    @Test func clientThatNeverAnswersIsSuspendedByForce() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, name)
        let observer = try WireClient(supervisor)
        let pair = try Pair.unix()
        _ = try client.handOver(pair.near)
        try client.enterBackground()
        _ = try client.prepare()
        try observer.wait(for: name, toBe: .suspended, supervisor)
        let counters = try observer.show(name).counters
        #expect(counters["overruns_prepare"] == 1 && counters["suspensions_forced"] == 1)
        try pair.send("hello")
        #expect(try client.wake().reasons == [.socket])
        try supervisor.stop()
    }

    @Test func clientThatOverrunsItsWakeIsSuspendedAndThatIsRecorded() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, name)
        let pair = try Pair.unix()
        _ = try client.handOver(pair.near)
        try client.goToSleep()
        try pair.send("hello")
        _ = try client.wake()
        _ = pair.received()
        // No WakeDone.
        try client.ready(try client.prepare())
        let observer = try WireClient(supervisor)
        try observer.wait(for: name, toBe: .suspended, supervisor)
        #expect(try observer.show(name).counters["overruns_wake"] == 1)
        try supervisor.stop()
    }

    @Test func slowEntranceIsRecorded() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, name)
        _ = try client.ask(.enterBackground(WireEnterBackground()))
        _ = try client.prepare()
        let observer = try WireClient(supervisor)
        #expect(try observer.show(name).counters["overruns_entering_background"] == 1)
        try supervisor.stop()
    }

    @Test func messageOfASuspendedClientWakesIt() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, name)
        try client.goToSleep()
        try client.wait(for: name, toBe: .suspended, supervisor)
        var task = WireBeginBackgroundTask()
        task.name = "late idea"
        guard case .backgroundTask(let granted) = try client.ask(.beginBackgroundTask(task)) else {
            throw TestFailure("no task")
        }
        #expect(granted.taskID != 0)
        #expect(try client.wake().reasons == [.clientMessage])
        #expect(try client.show(name).backgroundTasks == ["late idea"])
        try supervisor.stop()
    }

    @Test func backgroundTaskHoldsOffSuspensionUntilItEnds() throws {
        let supervisor = try TestSupervisor { $0.settings.budgets.backgroundTasks = .seconds(60) }
        let client = try WireClient(supervisor, name)
        guard case .backgroundTask(let task) = try client.ask(.beginBackgroundTask(WireBeginBackgroundTask()))
        else { throw TestFailure("no task") }
        try client.enterBackground()
        guard
            case .backgroundTimeLeft(let left) = try client.ask(
                .backgroundTimeRemaining(WireBackgroundTimeRemaining()))
        else { throw TestFailure("no time") }
        #expect((50_000...60_000).contains(left.remainingMs))
        #expect(try client.show(name).state == .background)
        var end = WireEndBackgroundTask()
        end.taskID = task.taskID
        #expect(try client.ask(.endBackgroundTask(end)) == .done(WireDone()))
        try client.ready(try client.prepare())
        try client.wait(for: name, toBe: .suspended, supervisor)
        guard case .error(let error) = try client.ask(.endBackgroundTask(end)) else {
            throw TestFailure("ended twice")
        }
        #expect(error.code == .invalidTask)
        try supervisor.stop()
    }

    @Test func mediaHoldsOffSuspensionUntilItLapses() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, name, modes: [.audio])
        try client.enterBackground()
        let began = BootClock.now()
        #expect(try client.ask(.mediaActivity(WireMediaActivity())) == .done(WireDone()))
        guard
            case .backgroundTimeLeft(let left) = try client.ask(
                .backgroundTimeRemaining(WireBackgroundTimeRemaining()))
        else { throw TestFailure("no time") }
        #expect(left.unlimited)
        _ = try client.notice { body -> Bool? in
            guard case .prepareToSuspend = body else { return nil }
            // A wake announced before the first sign of media may come first.
            return BootClock.now() - began >= 200_000_000 ? true : nil
        }
        try supervisor.stop()
    }

    @Test func keepAliveRunsInsideItsWindowAndNeverLate() throws {
        let supervisor = try TestSupervisor { $0.settings.keepAlive.tolerance = 0.5 }
        let client = try WireClient(supervisor, name)
        var set = WireSetKeepAliveTimeout()
        set.timeoutMs = 199
        guard case .error(let error) = try client.ask(.setKeepAliveTimeout(set)) else {
            throw TestFailure("too short")
        }
        #expect(error.code == .timeoutTooShort)
        set.timeoutMs = .max
        guard case .error(let tooLong) = try client.ask(.setKeepAliveTimeout(set)) else {
            throw TestFailure("too long")
        }
        #expect(tooLong.code == .timeoutTooLong)
        set.timeoutMs = 800
        #expect(try client.ask(.setKeepAliveTimeout(set)) == .done(WireDone()))
        var last = BootClock.now()
        try client.goToSleep()
        for _ in 0..<4 {
            let wake = try client.wake()
            let now = BootClock.now()
            #expect(wake.reasons == [.keepAlive])
            #expect(now - last >= 390_000_000)
            last = now
            try client.finish(wake)
            try client.ready(try client.prepare())
        }
        let counters = try client.show(name).counters
        #expect(counters["keep_alive_runs"] >= 4 && counters["keep_alive_late"] == 0)
        let answer = try client.ask(.clearKeepAliveTimeout_p(WireClearKeepAliveTimeout()))
        #expect(answer == .done(WireDone()))
        #expect(try client.show(name).keepAliveTimeoutMs == 0)
        try supervisor.stop()
    }

    @Test func stoppingThawsAndInformsAllClients() throws {
        let supervisor = try TestSupervisor()
        let sleeper = try WireClient(supervisor, "org.example.sleeper")
        let active = try WireClient(supervisor, "org.example.active")
        _ = try active.ask(.enterForeground(WireEnterForeground()))
        try sleeper.goToSleep()
        try sleeper.wait(for: "org.example.sleeper", toBe: .suspended, supervisor)
        try supervisor.stop()
        #expect(try sleeper.wake().reasons == [.supervisorStopping])
        #expect(try active.wake().reasons == [.supervisorStopping])
        #expect(try sleeper.end() == nil)
        #expect(!FileManager.default.fileExists(atPath: supervisor.socketPath))
    }

    @Test func secondSupervisorIsRefused() throws {
        let supervisor = try TestSupervisor()
        #expect(throws: (any Error).self) { try TestSupervisor(directory: supervisor.directory) }
        _ = try WireClient(supervisor).status()
        try supervisor.stop()
    }
}
