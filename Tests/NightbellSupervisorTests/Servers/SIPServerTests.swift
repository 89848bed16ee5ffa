import Foundation
import LinuxSystem
import NightbellWire
import Testing

/// Kamailio, which pings all registered clients.
@Suite(.serialized, .timeLimit(.minutes(90))) struct SIPServerTests {
    static let program = "/usr/sbin/kamailio"

    /// Over UDP the module nathelper pings, which supports nothing else; over TCP the location table itself
    /// does.
    private func server(_ transport: String) throws -> RealServer {
        let pings =
            transport == "UDP"
            ? """
            modparam("nathelper", "natping_interval", 5)
            modparam("nathelper", "sipping_bflag", 7)
            modparam("nathelper", "sipping_method", "OPTIONS")
            modparam("nathelper", "sipping_from", "sip:pinger@example.org")
            """
            : """
            modparam("usrloc", "timer_interval", 5)
            modparam("usrloc", "ka_mode", 1)
            modparam("usrloc", "ka_domain", "example.org")
            modparam("usrloc", "ka_from", "sip:pinger@example.org")
            """
        return try RealServer(
            "\(Self.program) -DD -E -f DIRECTORY/kamailio.cfg -m 32 -M 4 -Y DIRECTORY",
            files: [
                "kamailio.cfg": """
                #!KAMAILIO
                debug=1
                log_stderror=yes
                children=2
                tcp_children=2
                auto_aliases=no
                listen=udp:127.0.0.1:PORT
                listen=tcp:127.0.0.1:PORT
                disable_tcp=no
                tcp_connection_lifetime=3700
                dns=no
                rev_dns=no
                loadmodule "pv.so"
                loadmodule "tm.so"
                loadmodule "sl.so"
                loadmodule "rr.so"
                loadmodule "textops.so"
                loadmodule "siputils.so"
                loadmodule "usrloc.so"
                loadmodule "registrar.so"
                loadmodule "nathelper.so"
                loadmodule "stun.so"
                loadmodule "kex.so"
                modparam("usrloc", "db_mode", 0)
                modparam("usrloc", "nat_bflag", 6)
                modparam("nathelper|registrar", "received_avp", "$avp(RECEIVED)")
                \(pings)
                request_route {
                    if (is_method("REGISTER")) {
                        fix_nated_register();
                        setbflag(6);
                        setbflag(7);
                        if (!save("location")) sl_reply_error();
                        exit;
                    }
                    if (!lookup("location")) {
                        sl_send_reply("480", "Temporarily Unavailable");
                        exit;
                    }
                    if (!t_relay()) sl_reply_error();
                }
                """
            ])
    }

    private func register(_ scene: ServerScene, _ server: RealServer, over transport: String) throws {
        try scene.connect(server.port, datagram: transport == "UDP")
        let parameter = transport == "TCP" ? ";transport=tcp" : ""
        try scene.say(
            """
            REGISTER sip:127.0.0.1:\(server.port) SIP/2.0\r
            Via: SIP/2.0/\(transport) 127.0.0.1:5070;rport;branch=z9hG4bKr1\r
            Max-Forwards: 70\r
            From: <sip:sleeper@127.0.0.1>;tag=f1\r
            To: <sip:sleeper@127.0.0.1>\r
            Call-ID: r1@127.0.0.1\r
            CSeq: 1 REGISTER\r
            Contact: <sip:sleeper@127.0.0.1:5070\(parameter)>;expires=3600\r
            Content-Length: 0\r
            \r

            """)
        try scene.hears("SIP/2.0 200 ")
        try scene.hears("\r\n\r\n")
    }

    private static func message(_ port: UInt16) -> String {
        """
        MESSAGE sip:sleeper@127.0.0.1:\(port) SIP/2.0\r
        Via: SIP/2.0/TCP 127.0.0.1:5071;rport;branch=z9hG4bKm1\r
        Max-Forwards: 70\r
        From: <sip:friend@127.0.0.1>;tag=f2\r
        To: <sip:sleeper@127.0.0.1>\r
        Call-ID: m1@127.0.0.1\r
        CSeq: 1 MESSAGE\r
        Content-Type: text/plain\r
        Content-Length: 7\r
        \r
        wake up
        """
    }

    /// The message as the friend sent it, with the changes that a proxy has to make, and nothing before or
    /// behind it.
    private func expectWhole(_ message: String, over transport: String) {
        let lines = message.components(separatedBy: "\r\n")
        let parameter = transport == "TCP" ? ";transport=tcp" : ""
        #expect(lines[0] == "MESSAGE sip:sleeper@127.0.0.1:5070\(parameter) SIP/2.0")
        let vias = lines.filter { $0.hasPrefix("Via: ") }
        #expect(vias.count == 2 && vias[0].hasPrefix("Via: SIP/2.0/\(transport) 127.0.0.1:"), "\(vias)")
        #expect(vias.last?.contains("branch=z9hG4bKm1") == true)
        let sent = Self.message(0).components(separatedBy: "\r\n").dropFirst().filter {
            !$0.hasPrefix("Via: ") && !$0.hasPrefix("Max-Forwards: ")
        }
        let read = lines.dropFirst().filter { !$0.hasPrefix("Via: ") && !$0.hasPrefix("Max-Forwards: ") }
        #expect(read == sent)
    }

    @Test(.enabled(if: RealServer.isInstalled(program)), arguments: ["UDP", "TCP"])
    func kamailio(transport: String) throws {
        let server = try server(transport)
        let scene = try ServerScene()
        try register(scene, server, over: transport)
        try scene.sleep("sip interval=15000")
        let seconds = ServerScene.seconds(atLeast: 34)
        let counters = try scene.staysAsleep(seconds: seconds)
        #expect(counters.answered >= UInt64(seconds / 6), "\(counters)")
        #expect(counters.sent >= UInt64(seconds / 16) && counters.confirmed == counters.sent, "\(counters)")
        let friend = try SecondClient(server)
        try friend.say(Self.message(server.port))
        let read = String(decoding: try scene.wakesOnce(for: "\r\n\r\nwake up"), as: UTF8.self)
        expectWhole(read, over: transport)
        print(
            "kamailio over \(transport): \(seconds) s asleep, sent \(counters.sent), confirmed "
                + "\(counters.confirmed), answered \(counters.answered), absorbed \(counters.absorbed), "
                + "wakes 0, then 1")
    }

    @Test(.enabled(if: RealServer.isInstalled(program)), arguments: ["UDP", "TCP"])
    func kamailioWithoutProfile(transport: String) throws {
        let server = try server(transport)
        let scene = try ServerScene()
        try register(scene, server, over: transport)
        try scene.sleep(nil)
        try scene.pass(seconds: 14)
        let wakes = try scene.info().counters["wakes"]
        #expect(wakes >= 2)
        print("kamailio over \(transport) without a profile: \(wakes) wakes in 14 s")
    }
}
