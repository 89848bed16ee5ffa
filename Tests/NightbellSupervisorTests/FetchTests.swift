import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import Testing

/// Fetches of real client processes.
@Suite(.serialized, .timeLimit(.minutes(40))) struct FetchTests {
    private let name = "org.example.mail"
    private static let flags = [
        "fetch.minimumInterval=300ms", "fetch.perDay=255", "fetch.processorPressure=101",
        "fetch.memoryPressure=101", "launches.retry=10ms", "launches.retryMaximum=10ms",
    ].map { "--set \($0)" }.joined(separator: " ")

    private func simulate(_ event: WireSimulatedEvent, _ daemon: DaemonProcess) throws {
        var message = WireSimulate()
        message.identifier = name
        message.event = event
        let answer = try WireClient(path: daemon.socketPath).ask(.simulate(message))
        guard case .done = answer else { throw TestFailure("not simulated: \(answer)") }
    }

    private func info(_ daemon: DaemonProcess) throws -> WireClientInfo {
        try WireClient(path: daemon.socketPath).show(name)
    }

    private func reaches(_ state: WireClientState, _ daemon: DaemonProcess) throws {
        let isReached = try eventually { try info(daemon).state == state }
        guard isReached else { throw TestFailure("it does not become \(state)") }
    }

    @Test(arguments: ["cgroup", "signal"]) func aSuspendedClientFetchesAndSleepsAgain(_ way: String) throws {
        let daemon = try DaemonProcess(suspension: way, Self.flags)
        let client = try ScriptedClientProcess(path: daemon.socketPath, name, "fetch")
        try client.command("fetch-interval minimum")
        try client.enterBackground()
        try reaches(.suspended, daemon)
        try simulate(.fetch, daemon)
        #expect(try client.event("fetch") == "fetch budget_ms=30000 result=newData")
        try reaches(.suspended, daemon)
        let fetch = try info(daemon).fetch
        // A simulated one earns nothing.
        #expect(fetch.score == 80 && !fetch.isFetching && fetch.lastAgoMs > 0)
    }

    @Test func theModeIsRequired() throws {
        let daemon = try DaemonProcess(suspension: "none", Self.flags)
        let client = try ScriptedClientProcess(path: daemon.socketPath, name, "voip")
        #expect(throws: TestFailure.self) { try client.command("fetch-interval minimum") }
    }

    @Test func aDormantClientIsLaunchedToFetch() throws {
        let daemon = try DaemonProcess(suspension: "none", Self.flags)
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let first = try actor.start("fetch")
        try first.command("fetch-interval 3600000")
        kill(first.pid, SIGKILL)
        try reaches(.dormant, daemon)
        try simulate(.fetchLaunch, daemon)
        let second = try actor.returns("fetch")
        #expect(try second.event("fetch").contains("result=newData"))
        #expect(second.pid != first.pid)
        #expect(try info(daemon).fetch.minimumIntervalMs == 3_600_000)
        try second.say("exit 0")
    }

    @Test func anOverrunEndsTheClientAndIsNotPenalisedIfSimulated() throws {
        let daemon = try DaemonProcess(suspension: "none", Self.flags + " --set budgets.fetch=200ms")
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let first = try actor.start("fetch")
        try first.command("fetch-interval 3600000")
        try first.command("fetch -")
        try first.say("background")
        try first.event("did-enter-background")
        try simulate(.fetch, daemon)
        #expect(try first.event("fetch") == "fetch budget_ms=200 result=-")
        try reaches(.dormant, daemon)
        let fetch = try info(daemon).fetch
        #expect(fetch.score == 80 && fetch.unfinishedInRow == 0)
    }

    @Test func aClientThatWasQuitIsLeftAlone() throws {
        let daemon = try DaemonProcess(suspension: "none", Self.flags)
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let first = try actor.start("fetch")
        try first.command("fetch-interval minimum")
        var quit = WireQuitClient()
        quit.identifier = name
        guard case .done = try WireClient(path: daemon.socketPath).ask(.quitClient(quit)) else {
            throw TestFailure("not quit")
        }
        try first.say("exit 0")
        #expect(try eventually { try WireClient(path: daemon.socketPath).status().clientsByState.isEmpty })
        #expect(actor.staysAway())
    }

    /// The worker dies at each step of a fetch: it is told once, and completed, whichever worker is there.
    @Test func deathAtEveryStep() throws {
        var step = 1
        var deaths = 0
        while try live(dyingAt: step) || step == 1 {
            deaths += 1
            step += 1
        }
        #expect(deaths > 20, "only \(deaths) steps")
    }

    private func live(dyingAt step: Int) throws -> Bool {
        let daemon = try DaemonProcess(
            suspension: "cgroup", before: "export NIGHTBELL_FAULT=\(step)", Self.flags)
        let client = try ScriptedClientProcess(path: daemon.socketPath, name, "fetch")
        try client.command("fetch-interval 3600000")
        try client.enterBackground()
        try ask(daemon, step) { try self.reaches(.suspended, daemon) }
        // The worker may die with the request: only then it is made again.
        try ask(daemon, step) {
            if try self.info(daemon).fetch.lastAgoMs == 0 { try self.simulate(.fetch, daemon) }
        }
        #expect(try client.event("fetch").contains("result=newData"), "step \(step)")
        try ask(daemon, step) { try self.reaches(.suspended, daemon) }
        #expect(client.heard("fetch").isEmpty && client.heard("lost").isEmpty, "step \(step)")
        var fetch = WireClientInfo.Fetch()
        try ask(daemon, step) { fetch = try self.info(daemon).fetch }
        #expect(fetch.minimumIntervalMs == 3_600_000 && !fetch.isFetching, "step \(step)")
        #expect(fetch.unfinishedInRow == 0 && fetch.lastAgoMs > 0, "step \(step)")
        var restarts: UInt64 = 0
        try ask(daemon, step) { restarts = try WireClient(path: daemon.socketPath).status().restarts }
        return restarts > 0
    }

    private func ask(_ daemon: DaemonProcess, _ step: Int, _ body: () throws -> Void) throws {
        for _ in 0..<3 {
            do {
                return try body()
            } catch is WireClient.EndOfConnection {
                continue
            } catch let error as SystemError where error.code == EPIPE || error.code == ECONNRESET {
                continue
            }
        }
        throw TestFailure("step \(step): no worker answers")
    }

    /// Interval and score outlive the supervisor, and what it has learned with them.
    @Test func theIntervalOutlivesTheSupervisor() throws {
        let state = NSTemporaryDirectory() + "nightbell-fetch-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: state) }
        let flags = Self.flags + " --set stateDirectory=\(state)"
        do {
            let daemon = try DaemonProcess(suspension: "none", flags)
            let client = try ScriptedClientProcess(path: daemon.socketPath, name, "fetch")
            try client.command("fetch-interval 7200000")
            try client.enterBackground()
            try simulate(.fetch, daemon)
            try client.event("fetch")
            try client.command("goodbye")
        }
        let daemon = try DaemonProcess(suspension: "none", flags)
        let client = try ScriptedClientProcess(path: daemon.socketPath, name, "fetch")
        let fetch = try info(daemon).fetch
        #expect(fetch.minimumIntervalMs == 7_200_000 && fetch.lastAgoMs > 0)
        try client.command("goodbye")
    }
}
