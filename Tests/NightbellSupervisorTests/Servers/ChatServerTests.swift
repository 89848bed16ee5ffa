import Foundation
import LinuxSystem
import NightbellWire
import Testing

/// Prosody, and coturn.
@Suite(.serialized, .timeLimit(.minutes(90))) struct ChatServerTests {
    private static let prosodyProgram = "/usr/bin/prosody"
    private static let coturnProgram = "/usr/bin/turnserver"

    private func prosodyServer() throws -> RealServer {
        try RealServer(
            "\(Self.prosodyProgram) -F --config DIRECTORY/prosody.cfg.lua",
            files: [
                "prosody.cfg.lua": """
                run_as_root = true
                data_path = "DIRECTORY"
                pidfile = "DIRECTORY/prosody.pid"
                interfaces = { "127.0.0.1" }
                c2s_ports = { PORT }
                c2s_direct_tls_ports = {}
                s2s_ports = {}
                modules_enabled = { "saslauth", "ping", "disco" }
                modules_disabled = { "s2s", "tls" }
                c2s_require_encryption = false
                network_settings = { read_timeout = 5 }
                log = { info = "*console" }
                VirtualHost "localhost"
                    authentication = "anonymous"
                """
            ])
    }

    private static let open =
        "<?xml version='1.0'?><stream:stream to='localhost' xmlns='jabber:client' "
        + "xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>"
    private static let auth = "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='ANONYMOUS'/>"
    private static let bind =
        "<iq type='set' id='b1'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>"

    /// Returns the client's address.
    private func join(_ scene: ServerScene, _ server: RealServer) throws -> String {
        try scene.connect(server.port)
        try scene.say(Self.open)
        try scene.hears("</stream:features>")
        try scene.say(Self.auth)
        try scene.hears("<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>")
        try scene.say(Self.open)
        try scene.hears("</stream:features>")
        try scene.say(Self.bind)
        try scene.hears("<jid>")
        let address = try scene.hears("</jid>").dropLast("</jid>".count)
        try scene.hears("</iq>")
        return String(address)
    }

    @Test(.enabled(if: RealServer.isInstalled(prosodyProgram)))
    func prosody() throws {
        let server = try prosodyServer()
        let scene = try ServerScene()
        let address = try join(scene, server)
        try scene.sleep("xmpp interval=30000 within=10000 server=localhost address=\(address)")
        let seconds = ServerScene.seconds(atLeast: 34)
        let counters = try scene.staysAsleep(seconds: seconds)
        #expect(counters.sent >= UInt64(seconds / 31) && counters.confirmed == counters.sent, "\(counters)")
        // White space whenever nothing was received for 5 s.
        #expect(counters.absorbed >= UInt64(seconds / 8), "\(counters)")
        let friend = try SecondClient(server)
        try friend.say(Self.open)
        try friend.hears("</stream:features>")
        try friend.say(Self.auth)
        try friend.hears("<success")
        try friend.say(Self.open)
        try friend.hears("</stream:features>")
        try friend.say(Self.bind)
        let sender = try #require(try friend.hears("</iq>").inside("jid"))
        try friend.say("<message to='\(address)' id='m1'><body>wake up</body></message>")
        let read = String(decoding: try scene.wakesOnce(for: "</message>"), as: UTF8.self)
        expectStanza(read, from: sender, to: address)
        print(
            "prosody: \(seconds) s asleep, sent \(counters.sent), confirmed \(counters.confirmed), "
                + "absorbed \(counters.absorbed), wakes 0, then 1")
    }

    /// The stanza as the friend sent it, with the address that the server adds, and nothing before or behind
    /// it.
    private func expectStanza(_ stanza: String, from sender: String, to address: String) {
        #expect(stanza.hasPrefix("<message "))
        let head = stanza.dropFirst("<message ".count).prefix { $0 != ">" }
        let attributes = head.split(separator: " ").map { $0.replacingOccurrences(of: "\"", with: "'") }
        #expect(
            Set(attributes).isSuperset(of: ["from='\(sender)'", "to='\(address)'", "id='m1'"]), "\(head)")
        #expect(stanza.hasSuffix("><body>wake up</body></message>"), "\(stanza)")
        #expect(stanza.components(separatedBy: "<message ").count == 2)
    }

    @Test(.enabled(if: RealServer.isInstalled(prosodyProgram)))
    func prosodyWithoutProfile() throws {
        let server = try prosodyServer()
        let scene = try ServerScene()
        _ = try join(scene, server)
        try scene.sleep(nil)
        try scene.pass(seconds: 14)
        let wakes = try scene.info().counters["wakes"]
        #expect(wakes >= 2)
        print("prosody without a profile: \(wakes) wakes in 14 s")
    }

    @Test(.enabled(if: RealServer.isInstalled(coturnProgram)))
    func coturnAnswersBindingRequests() throws {
        let server = try RealServer(
            """
            \(Self.coturnProgram) -n -S --listening-ip=127.0.0.1 --listening-port=PORT --no-tls --no-dtls --no-cli \
            --log-file=stdout --pidfile=DIRECTORY/pid --userdb=DIRECTORY/db
            """, files: [:])
        let scene = try ServerScene()
        try scene.connect(server.port, datagram: true)
        try scene.sleep("stun interval=15000")
        let seconds = ServerScene.seconds(atLeast: 32)
        let counters = try scene.staysAsleep(seconds: seconds)
        #expect(counters.sent >= UInt64(seconds / 16) && counters.confirmed == counters.sent, "\(counters)")
        print("coturn: \(seconds) s asleep, sent \(counters.sent), confirmed \(counters.confirmed), wakes 0")
    }
}

extension String {
    /// The content of the first element of this name.
    fileprivate func inside(_ element: String) -> String? {
        guard let start = range(of: "<\(element)>"), let end = range(of: "</\(element)>") else { return nil }
        return String(self[start.upperBound..<end.lowerBound])
    }
}
