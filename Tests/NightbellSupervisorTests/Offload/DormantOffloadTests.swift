import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellSupervisor
import NightbellWire
import Testing

/// Pings of sockets without an owner process are handled as for sleepers, and a message launches a process.
@Suite(.serialized, .timeLimit(.minutes(40))) struct DormantOffloadTests {
    private let name = "org.example.phone"

    private func hears(_ text: String, _ peer: Int32, _ supervisor: TestSupervisor) throws {
        var heard = ""
        while heard.utf8.count < text.utf8.count {
            guard !Poll.wait(peer, for: .readable, timeoutMilliseconds: 20_000).isEmpty else {
                let client = try supervisor.show(name)
                let state = client.map { "\($0.state), \($0.offload), \($0.sockets), \($0.counters)" }
                throw TestFailure("heard only \"\(heard)\": \(state ?? "no such client")")
            }
            var buffer = [UInt8](repeating: 0, count: text.utf8.count - heard.utf8.count)
            let count = recv(peer, &buffer, buffer.count, 0)
            guard count > 0 else { throw TestFailure("heard \"\(heard)\", then the end") }
            heard += String(decoding: buffer[..<count], as: UTF8.self)
        }
        #expect(heard == text)
    }

    @Test func aHibernatedClientIsNotLaunchedByPings() throws {
        let supervisor = try TestSupervisor(suspension: .none)
        let actor = try TestClient(name, of: supervisor)
        var process = try actor.start()
        let peer = try process.park("flow", "survives profile=lines")
        defer { close(peer) }
        try process.say("hibernate")
        try process.say("background")
        for round in 1...3 {
            try supervisor.reaches(.dormant, name)
            for _ in 0..<5 {
                try peer.say("ping\n")
                try hears("pong\n", peer, supervisor)
            }
            let info = try #require(try supervisor.show(name))
            #expect(info.processID == 0 && info.counters["launches"] == UInt64(round - 1))
            #expect(info.sockets[0].offload.active && info.sockets[0].survives)
            #expect(info.offload.answered == UInt64(6 * round - 1))
            try peer.say("ping\nnews\n")
            try hears("pong\n", peer, supervisor)
            process = try actor.returns()
            #expect(try process.event("wake").contains("reasons=socket sockets=flow:readable"))
            #expect(try supervisor.show(name)?.sockets[0].offload.active == false)
            try process.command("read flow")
            #expect(try process.event("read").hasPrefix("read flow 5 "))
            // It knows the profile that the previous process chose, and so that this profile takes no tags.
            try process.say("delegate flow idle a1")
            #expect(try process.event("error").contains("tags are delegated for the profile imap"))
            try process.say("hibernate")
        }
        try supervisor.stop()
    }

    /// Together they are longer than a packet may be.
    @Test func longProfilesOfManySocketsDoNotPreventARelaunch() throws {
        let supervisor = try TestSupervisor(suspension: .none)
        let actor = try TestClient(name, of: supervisor)
        let first = try actor.start()
        let peers = try (0..<45).map { try first.park("flow\($0)", "survives profile=lines padding=3000") }
        defer { for peer in peers { close(peer) } }
        try first.say("hibernate")
        try first.say("background")
        try supervisor.reaches(.dormant, name)
        try peers[44].say("ping\nnews\n")
        try hears("pong\n", peers[44], supervisor)
        let next = try actor.returns()
        #expect(try next.event("wake").contains("reasons=socket sockets=flow44:readable"))
        try next.command("read flow44")
        #expect(try next.event("read").hasPrefix("read flow44 5 "))
        // The last has its profile all the same.
        try next.say("hibernate")
        try supervisor.reaches(.dormant, name)
        try peers[44].say("ping\n")
        try hears("pong\n", peers[44], supervisor)
        try supervisor.stop()
    }

    @Test func aSilentPeerLaunchesAProcess() throws {
        let supervisor = try TestSupervisor(suspension: .none)
        let actor = try TestClient(name, of: supervisor)
        let first = try actor.start()
        let peer = try first.park("flow", "survives profile=lines interval=1000 within=300")
        defer { close(peer) }
        try first.say("hibernate")
        try first.say("background")
        try supervisor.reaches(.dormant, name)
        try hears("PING\n", peer, supervisor)
        try peer.say("PONG\n")
        try hears("PING\n", peer, supervisor)
        #expect(try supervisor.show(name)?.counters["launches"] == 0)
        let next = try actor.returns()
        #expect(try next.event("wake").contains("reasons=unanswered sockets=flow:unanswered"))
        try supervisor.stop()
    }
}
