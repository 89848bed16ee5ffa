import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import Testing

/// Clients that are really stopped stay so while their pings are handled, also when the worker dies.
@Suite(.serialized, .timeLimit(.minutes(40))) struct OffloadedSleeperTests {
    static let ways = ["cgroup", "signal"]
    private let name = "org.example.phone"

    private func suspended(_ daemon: DaemonProcess) throws {
        try WireClient(path: daemon.socketPath).wait(for: name, toBe: .suspended, path: daemon.socketPath)
    }

    private func info(_ daemon: DaemonProcess) throws -> WireClientInfo {
        try WireClient(path: daemon.socketPath).show(name)
    }

    /// The peer's next input must be this text.
    private func hears(_ text: String, _ peer: Int32) throws {
        var heard = ""
        while heard.utf8.count < text.utf8.count {
            guard Poll.wait(peer, for: .readable, timeoutMilliseconds: 10_000).contains(.readable) else {
                throw TestFailure("heard only \"\(heard)\"")
            }
            var buffer = [UInt8](repeating: 0, count: text.utf8.count - heard.utf8.count)
            let count = recv(peer, &buffer, buffer.count, 0)
            guard count > 0 else { throw TestFailure("heard \"\(heard)\", then the end") }
            heard += String(decoding: buffer[..<count], as: UTF8.self)
        }
        #expect(heard == text)
    }

    private func parked(_ daemon: DaemonProcess, _ profile: String) throws -> (ScriptedClientProcess, Int32) {
        let scripted = try ScriptedClientProcess(path: daemon.socketPath, name)
        let peer = try scripted.connect("flow")
        try scripted.command("handover flow voip \(profile)")
        try scripted.command("auto-read on")
        return (scripted, peer)
    }

    @Test(arguments: ways) func stoppedClientStaysStopped(way: String) throws {
        let daemon = try DaemonProcess(suspension: way)
        let (scripted, peer) = try parked(daemon, "profile=lines")
        defer { close(peer) }
        try scripted.enterBackground()
        try suspended(daemon)
        let switches = try contextSwitches(of: scripted.pid)
        for _ in 0..<20 {
            try peer.say("ping\n")
            try hears("pong\n", peer)
        }
        #expect(try contextSwitches(of: scripted.pid) == switches)
        #expect(try info(daemon).counters["wakes"] == 0)
        try peer.say("ping\nnews\n")
        try hears("pong\n", peer)
        #expect(try scripted.event("wake").contains("reasons=socket sockets=flow:readable"))
        #expect(try scripted.event("read").hasPrefix("read flow 5"))
        try suspended(daemon)
        #expect(try info(daemon).counters["wakes"] == 1)
    }

    private func contextSwitches(of pid: pid_t) throws -> Int {
        try ProcFS.threadIdentifiers(pid).reduce(0) { sum, thread in
            let status = try String(contentsOfFile: "/proc/\(pid)/task/\(thread)/status", encoding: .utf8)
            return sum
                + status.split(separator: "\n").filter { $0.contains("ctxt_switches") }
                .reduce(0) { $0 + (Int($1.split(whereSeparator: \.isWhitespace).last ?? "") ?? 0) }
        }
    }

    @Test(arguments: ways) func workerThatDiesIsReplacedAndPingsGoOn(way: String) throws {
        let daemon = try DaemonProcess(suspension: way)
        let (scripted, peer) = try parked(daemon, "profile=lines interval=1000 within=900")
        defer { close(peer) }
        try scripted.enterBackground()
        try suspended(daemon)
        for round in 1...5 {
            try hears("PING\n", peer)
            try peer.say("PONG\nping\n")
            try hears("pong\n", peer)
            #expect(try eventually { try info(daemon).offload.confirmed == UInt64(round) })
            try daemon.killWorker()
            let after = try info(daemon)
            #expect(after.state == .suspended && after.sockets[0].offload.active)
            #expect(after.offload.answered == UInt64(round) && after.counters["wakes"] == 0)
        }
        // With an answer under way.
        try hears("PING\n", peer)
        try daemon.killWorker()
        try peer.say("PONG\n")
        #expect(try eventually { try info(daemon).offload.confirmed == 6 })
        try hears("PING\n", peer)
        try peer.say("PONG\n")
        #expect(try info(daemon).counters["wakes"] == 0)
        try peer.say("news\n")
        #expect(try scripted.event("read").hasPrefix("read flow 5"))
        #expect(scripted.heard("lost").isEmpty && scripted.heard("reconnected").isEmpty)
    }

    @Test func keepAlivesAreRestoredByTheNextWorker() throws {
        let daemon = try DaemonProcess(suspension: "cgroup")
        let (scripted, peer) = try parked(daemon, "profile=tcp interval=30000 within=5000 probes=3")
        defer { close(peer) }
        let before = try scripted.command("keep-alive-option flow")
        #expect(before.hasPrefix("off"))
        try scripted.enterBackground()
        try suspended(daemon)
        try daemon.killWorker()
        #expect(try info(daemon).sockets[0].offload.active)
        try peer.say("call")
        _ = try scripted.event("read")
        #expect(try scripted.command("keep-alive-option flow") == before)
    }

    @Test func tagOfIdleSurvivesItsWorker() throws {
        let daemon = try DaemonProcess(suspension: "cgroup")
        let (scripted, peer) = try parked(daemon, "profile=imap interval=60000")
        defer { close(peer) }
        try scripted.command("delegate flow idle a12")
        try scripted.enterBackground()
        try suspended(daemon)
        try daemon.killWorker()
        try peer.say("* OK Still here\r\n")
        #expect(try eventually { try info(daemon).offload.absorbed == 1 })
        try peer.say("* 2 EXISTS\r\n")
        _ = try scripted.event("read")
        #expect(try scripted.command("delegatedState flow") == "idle a12 idling")
    }

    @Test func aReturningSupervisorIsToldTheProfile() throws {
        let directory = NSTemporaryDirectory() + "nightbell-daemon-\(UUID().uuidString)"
        var daemon: DaemonProcess? = try DaemonProcess(suspension: "none", directory: directory)
        let scripted = try ScriptedClientProcess(path: directory + "/nightbell.sock", name)
        let peer = try scripted.connect("flow")
        defer { close(peer) }
        try scripted.command("handover flow voip profile=lines")
        daemon = nil
        try scripted.event("lost")
        daemon = try DaemonProcess(suspension: "none", directory: directory)
        try scripted.event("reconnected")
        let offload = try WireClient(path: directory + "/nightbell.sock").show(name).sockets[0].offload
        #expect(offload.profile == "bytes")
        _ = daemon
    }
}
