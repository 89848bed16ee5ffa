import EdgeTestSupport
import Foundation
import NightbellWire
import Testing

/// A WebSocket server on SwiftNIO, which pings.
@Suite(.serialized, .timeLimit(.minutes(90))) struct WebSocketServerTests {
    /// The server's counters.
    private struct Counts {
        private let words: String

        init(_ words: String) { self.words = words }

        subscript(name: String) -> Int {
            for word in words.split(whereSeparator: \.isWhitespace) where word.hasPrefix(name + "=") {
                return Int(word.dropFirst(name.count + 1)) ?? -1
            }
            return -1
        }
    }

    private func server() throws -> RealServer {
        try RealServer("'\(ScriptedClientProcess.program("websocket-server"))' PORT", files: [:])
    }

    @discardableResult
    private func order(_ words: String, _ server: RealServer) throws -> Counts {
        let friend = try SecondClient(server)
        try friend.say("GET /\(words) HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return Counts(try friend.hears("others="))
    }

    private func join(_ scene: ServerScene, _ server: RealServer) throws {
        try scene.connect(server.port)
        try scene.say(
            "GET /chat HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                + "Sec-WebSocket-Key: bmlnaHRiZWxsIHNsZWVwcw==\r\nSec-WebSocket-Version: 13\r\n\r\n")
        #expect(try scene.hears("\r\n").hasPrefix("HTTP/1.1 101 "))
        try scene.hears("\r\n\r\n")
    }

    @Test func pingsAreAnsweredAndOneMessageWakes() throws {
        let server = try server()
        let scene = try ServerScene()
        try join(scene, server)
        try scene.sleep("websocket interval=15000 within=5000")
        try order("pings/2000", server)
        let seconds = ServerScene.seconds(atLeast: 20)
        _ = try scene.staysAsleep(seconds: seconds)
        let sent = try order("pings/0", server)["pings"]
        #expect(sent >= seconds / 3)
        // The last one may be under way.
        var counts = try order("counters", server)
        #expect(
            try eventually {
                counts = try order("counters", server)
                return counts["pongs"] == sent
            })
        #expect(counts["wrong"] == 0 && counts["others"] == 0 && counts["clients"] == 1)
        let counters = try scene.staysAsleep(seconds: 0)
        #expect(counters.answered == UInt64(sent), "\(counters)")
        #expect(counters.sent >= UInt64(seconds / 16) && counters.confirmed == counters.sent, "\(counters)")
        try order("say/news", server)
        // A text frame: whole, not masked, of four bytes.
        #expect(try scene.wakesOnce(for: "news") == [0x81, 0x04] + Array("news".utf8))
        print(
            "SwiftNIO WebSocket: \(seconds) s asleep, \(sent) pings of the server, answered "
                + "\(counters.answered), sent \(counters.sent), confirmed \(counters.confirmed), wakes 0, then 1"
        )
    }

    @Test func withoutProfile() throws {
        let server = try server()
        let scene = try ServerScene()
        try join(scene, server)
        try scene.sleep(nil)
        try order("pings/4000", server)
        try scene.pass(seconds: 13)
        let wakes = try scene.info().counters["wakes"]
        #expect(wakes >= 2)
        print("SwiftNIO WebSocket without a profile: \(wakes) wakes in 13 s")
    }
}
