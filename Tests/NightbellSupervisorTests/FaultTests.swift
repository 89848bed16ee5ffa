import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import Testing

/// The worker dies at each single step of everything that it writes through or does, one after the other:
/// between any two of them nothing is lost, clients notice nothing, and none stays frozen.
@Suite(.serialized, .timeLimit(.minutes(40))) struct FaultTests {
    static let ways = ["cgroup", "signal"]
    private let name = "org.example.phone"

    @Test(arguments: ways) func deathAtEveryStep(way: String) throws {
        var step = 1
        var deaths = 0
        // At the first step it does not serve yet, which does not count as a restart.
        while try live(way, dyingAt: step) || step == 1 {
            deaths += 1
            step += 1
        }
        // Fewer would mean that the fault points are no longer reached.
        #expect(deaths > 40, "only \(deaths) steps")
    }

    /// A client's whole life; returns whether the worker died in it.
    private func live(_ way: String, dyingAt step: Int) throws -> Bool {
        let daemon = try DaemonProcess(suspension: way, before: "export NIGHTBELL_FAULT=\(step)")
        let scripted = try ScriptedClientProcess(
            path: daemon.socketPath, name, "voip audio external-accessory")
        let peer = try scripted.park("flow")
        defer { close(peer) }
        try scripted.command("unix-pair other")
        try scripted.command("handover other device")
        try scripted.command("keepalive 600000")
        #expect(try scripted.command("begin work") == "valid=true", "step \(step)")
        try scripted.enterBackground()
        try scripted.tell("end work")
        for call in 1...2 {
            try waitUntil(.suspended, daemon, step)
            try peer.say("call \(call)")
            _ = try scripted.wake(reason: "socket")
            #expect(try scripted.event("read").hasPrefix("read flow 6"), "step \(step)")
        }
        try waitUntil(.suspended, daemon, step)
        // Frozen, it reads this only once it is woken, as administrators can request.
        try scripted.tell("close-released other")
        try scripted.tell("foreground")
        try wake(daemon)
        _ = try scripted.wake(reason: "request")
        // On a busy machine it sleeps again before it has read everything.
        let isAwake = try eventually {
            let state = try ask(daemon) { try $0.show(self.name).state }
            if state == .suspended { try wake(daemon) }
            return state == .active
        }
        #expect(isAwake, "step \(step)")
        try scripted.settle()
        let info = try ask(daemon) { try $0.show(self.name) }
        #expect(info.sockets.map(\.name) == ["flow"] && info.backgroundTasks.isEmpty, "step \(step)")
        #expect(info.keepAliveTimeoutMs == 600_000, "step \(step)")
        // Each wake was sent once.
        #expect(scripted.heard("wake").filter { $0.contains("reasons=socket ") }.isEmpty, "step \(step)")
        #expect(scripted.heard("lost").isEmpty && scripted.heard("reconnected").isEmpty, "step \(step)")
        try scripted.command("goodbye")
        #expect(
            try eventually {
                try ask(daemon) { try $0.status().sockets == 0 && $0.status().connections == 1 }
            },
            "step \(step)")
        let restarts = try ask(daemon) { try $0.status().restarts }
        #expect(restarts < 2, "step \(step)")
        return restarts > 0
    }

    private func wake(_ daemon: DaemonProcess) throws {
        try ask(daemon) { observer in
            var message = WireWakeClient()
            message.identifier = self.name
            guard case .done = try observer.ask(.wakeClient(message)) else { throw TestFailure("not woken") }
        }
    }

    private func waitUntil(_ state: WireClientState, _ daemon: DaemonProcess, _ step: Int) throws {
        let isReached = try eventually { try ask(daemon) { try $0.show(self.name).state } == state }
        guard isReached else { throw TestFailure("step \(step): the client does not become \(state)") }
    }

    /// The worker may die while it answers: then ask the next one.
    private func ask<Answer>(_ daemon: DaemonProcess, _ body: (WireClient) throws -> Answer) throws -> Answer
    {
        for _ in 0..<3 {
            do {
                return try body(try WireClient(path: daemon.socketPath))
            } catch is WireClient.EndOfConnection {
                continue
            } catch let error as SystemError where error.code == EPIPE || error.code == ECONNRESET {
                continue
            }
        }
        throw TestFailure("no worker answers")
    }
}
