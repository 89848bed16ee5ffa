import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import SwiftProtobuf
import Testing

/// The worker dies between any two steps of handling pings: the connection lives, significant input reaches
/// the owner whole and once, and every ping of the peer is answered, if need be by two workers.
@Suite(.serialized, .timeLimit(.minutes(40))) struct OffloadFaultTests {
    private static let name = "org.example.phone"

    @Test(arguments: FaultTests.ways) func deathAtEveryStep(way: String) throws {
        var step = 1
        while try live(way, dyingAt: step) { step += 1 }
        // Fewer would mean that the fault points are no longer reached.
        #expect(step > 8, "only \(step - 1) steps")
    }

    /// The peer's side of the connection.
    private final class Peer {
        let descriptor: Int32
        private var heard = ""
        private(set) var answers = 0
        private(set) var pings = 0

        init(_ descriptor: Int32) { self.descriptor = descriptor }

        /// Answers the messages that have arrived.
        func listen() throws {
            var buffer = [UInt8](repeating: 0, count: 256)
            let count = recv(descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            if count > 0 { heard += String(decoding: buffer[..<count], as: UTF8.self) }
            if count == 0 { throw TestFailure("the connection has ended") }
            while let end = heard.firstIndex(of: "\n") {
                switch heard[..<end] {
                case "pong": answers += 1
                case "PING":
                    pings += 1
                    try descriptor.say("PONG\n")
                default: throw TestFailure("heard \(heard)")
                }
                heard.removeSubrange(...end)
            }
        }
    }

    /// Returns whether the worker died.
    private func live(_ way: String, dyingAt step: Int) throws -> Bool {
        let before = "export NIGHTBELL_FAULT=\(step) NIGHTBELL_FAULT_AT=offload"
        let daemon = try DaemonProcess(suspension: way, before: before)
        let scripted = try ScriptedClientProcess(path: daemon.socketPath, Self.name)
        let peer = Peer(try scripted.connect("flow"))
        defer { close(peer.descriptor) }
        try scripted.command("handover flow voip profile=lines interval=1000 within=900")
        try scripted.command("auto-read on")
        try scripted.enterBackground()
        try suspended(daemon)
        try peer.descriptor.say("ping\nnop\n")
        // A worker that died with an answer under way is asked for the next one only afterwards.
        let isAnswered = try eventually {
            try peer.listen()
            return peer.answers >= 1 && peer.pings >= 1
        }
        #expect(isAnswered, "step \(step): \(peer.answers) answers, \(peer.pings) pings")
        try peer.descriptor.say("nop\nping\n")
        let isAnsweredAgain = try eventually {
            try peer.listen()
            return peer.answers >= 2
        }
        #expect(isAnsweredAgain, "step \(step)")
        // If a worker died after consuming it, the next one may miss an answer of the peer's; nothing else
        // wakes.
        let early = try info(daemon).counters
        #expect(early["wakes"] == early["wakes_path_lost"] && early["wakes"] <= 1, "step \(step): \(early)")
        try suspended(daemon)
        try peer.descriptor.say("news\n")
        #expect(try scripted.event("read").hasPrefix("read flow 5 "), "step \(step)")
        let after = try info(daemon)
        #expect(after.counters["wakes"] == early["wakes"] + 1, "step \(step)")
        let restarts = try WireClient(path: daemon.socketPath).status().restarts
        #expect(peer.answers <= 2 + Int(restarts) && restarts < 2, "step \(step): \(peer.answers) answers")
        return restarts > 0
    }

    /// The end of a connection is reported in one wake, also where a profile has inspected the input before
    /// it.
    @Test(arguments: FaultTests.ways) func anEndIsReportedOnce(way: String) throws {
        let daemon = try DaemonProcess(suspension: way)
        let scripted = try ScriptedClientProcess(path: daemon.socketPath, Self.name)
        let peer = try scripted.connect("flow")
        try scripted.command("handover flow voip profile=lines interval=600000 within=900")
        try scripted.enterBackground()
        try suspended(daemon)
        close(peer)
        #expect(try scripted.event("wake").contains("id=1 reasons=socket sockets=flow:"))
        for round in 2...4 {
            try suspended(daemon)
            try daemon.killWorker()
            try suspended(daemon)
            let answer = try WireClient(path: daemon.socketPath).ask(
                .wakeClient(.with { $0.identifier = Self.name }))
            guard case .done = answer else { throw TestFailure("\(answer)") }
            #expect(try scripted.event("wake").contains("id=\(round) reasons=request sockets=- "))
        }
    }

    /// Of the sockets that there are and of those that have gone, by profile.
    @Test func totalsOutliveTheWorker() throws {
        let daemon = try DaemonProcess(suspension: "signal")
        let scripted = try ScriptedClientProcess(path: daemon.socketPath, Self.name)
        let observer = { try WireClient(path: daemon.socketPath).status() }
        let first = Peer(try scripted.connect("first"))
        let second = Peer(try scripted.connect("second"))
        defer {
            close(first.descriptor)
            close(second.descriptor)
        }
        for name in ["first", "second"] {
            try scripted.command("handover \(name) voip profile=lines interval=600000 within=900")
        }
        try scripted.command("auto-read on")
        try scripted.enterBackground()
        try suspended(daemon)
        for peer in [first, second] {
            try peer.descriptor.say("ping\n")
            #expect(
                try eventually {
                    try peer.listen()
                    return peer.answers == 1
                })
        }
        let before = try observer()
        #expect(before.offloadByProfile.keys.sorted() == ["bytes"])
        #expect(before.offloadByProfile["bytes"]?.answered == 2)
        #expect(before.offloadByProfile["bytes"]?.wakesAvoided == 2)
        // Its end is reported in a wake, and the owner closes it.
        try first.descriptor.say("news\n")
        #expect(try scripted.event("read").hasPrefix("read first 5 "))
        try scripted.command("release first")
        #expect(try eventually { try observer().sockets == 1 })
        try daemon.killWorker()
        #expect(try eventually { try observer().restarts == 1 })
        let after = try observer()
        #expect(after.offloadByProfile == before.offloadByProfile)
    }

    private func suspended(_ daemon: DaemonProcess) throws {
        let isReached = try eventually { try info(daemon).state == .suspended }
        guard isReached else { throw TestFailure("it does not sleep") }
    }

    /// The worker may die while it answers: then ask the next one.
    private func info(_ daemon: DaemonProcess) throws -> WireClientInfo {
        for _ in 0..<3 {
            do {
                return try WireClient(path: daemon.socketPath).show(Self.name)
            } catch is WireClient.EndOfConnection {
                continue
            } catch let error as SystemError where error.code == EPIPE || error.code == ECONNRESET {
                continue
            }
        }
        throw TestFailure("no worker answers")
    }
}
