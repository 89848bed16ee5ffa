import EdgeTestSupport
import Glibc
import Logging
import NightbellCore
import NightbellSupervisor
import NightbellWire
import Testing

/// Clients that nothing could wake, with real processes.
@Suite(.serialized) struct OutOfReachTests {
    private let name = "org.example.phone"

    private func supervisor(
        _ log: Log = Log(), _ configure: (inout SupervisorConfiguration) -> Void = { _ in }
    ) throws -> TestSupervisor {
        var logger = Logger(label: "test") { _ in log.handler }
        logger.logLevel = .notice
        return try TestSupervisor(suspension: .signal, logger: logger) {
            // On a busy machine, too, no client may be suspended by force.
            $0.settings.budgets.prepareToSuspend = .seconds(20)
            $0.settings.launches.retry = .milliseconds(20)
            configure(&$0)
        }
    }

    private func warnings(_ supervisor: TestSupervisor) throws -> (shown: [String], listed: [String]) {
        let client = try WireClient(supervisor)
        let request: UInt64 = 1
        try client.send(.list(WireList()), request: request)
        var listed: [String] = []
        while case .clientInfos(let part) = try client.answer(to: request) {
            for info in part.clients where info.identifier == name { listed = info.warnings }
        }
        return (try supervisor.show(name)?.warnings ?? [], listed)
    }

    @Test func aClientEndedByMemoryPressureIsLaunchedAgain() throws {
        let supervisor = try supervisor { $0.settings.memoryPressure.pause = .seconds(1) }
        let actor = try TestClient(name, of: supervisor)
        let first = try actor.start()
        let peer = try first.park("registration", "")
        try first.say("background")
        try supervisor.reaches(.suspended, name)
        supervisor.pretendMemoryIsShort()
        #expect(
            try eventually {
                try supervisor.show(name)?.stateDetail.contains("memory is short: in 1 s at the earliest")
                    ?? false
            })
        let second = try actor.returns()
        #expect(try second.event("wake").contains("reasons=relaunched"))
        #expect(try supervisor.show(name)?.counters["ended_under_pressure"] == 1)
        close(peer)
        try supervisor.stop()
        // A process ends by itself when its test connection is closed.
        withExtendedLifetime((first, second)) {}
    }

    @Test func aLaunchedClientHasTimeToConnect() throws {
        let supervisor = try supervisor {
            $0.settings.launches.budget = .seconds(300)
            $0.settings.budgets.backgroundTasks = .seconds(60)
        }
        let actor = try TestClient(name, of: supervisor)
        let first = try actor.start()
        kill(first.pid, SIGKILL)
        let second = try actor.returns()
        try second.event("wake")
        // No other reason keeps it awake any more.
        #expect(try eventually { try supervisor.show(name)?.stateDetail == "setting up" })
        #expect(try supervisor.show(name)?.state == .background)
        // Otherwise it would be stopped before it has reported its HandOver.
        try second.command("begin work")
        let peer = try second.park("registration")
        try second.say("end work")
        try supervisor.reaches(.suspended, name)
        let (shown, listed) = try warnings(supervisor)
        #expect(shown.isEmpty && listed.isEmpty)
        close(peer)
        try supervisor.stop()
        withExtendedLifetime((first, second)) {}
    }

    @Test func aSleeperThatNothingCanWakeIsShown() throws {
        let log = Log()
        let supervisor = try supervisor(log) { $0.settings.launches.budget = .seconds(8) }
        let actor = try TestClient(name, of: supervisor)
        let first = try actor.start()
        kill(first.pid, SIGKILL)
        let second = try actor.returns()
        try supervisor.reaches(.suspended, name)
        let (shown, listed) = try warnings(supervisor)
        #expect(shown.contains { $0.hasPrefix("out of reach") } && listed == shown)
        #expect(
            log.lines.contains {
                $0.contains(name) && $0.contains("no socket, keep-alive timeout or observation")
            })
        try supervisor.stop()
        withExtendedLifetime((first, second)) {}
    }
}
