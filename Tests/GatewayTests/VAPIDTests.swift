import Crypto
import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport
import Testing

/// Senders that prove to be the one that an address is for (RFC 8292), with proofs made here.
@Suite("Proofs of senders", .enabled(if: geteuid() == 0, "needs root"), .timeLimit(.minutes(40)))
struct VAPIDTests {
    @Test("A proof is for this service, alone or among others, and not too old; others are refused at a rate")
    func audiences() throws {
        let fixture = try GatewayFixture(gateway: ["--refusals", "1"], pushes: true)
        let key = P256.Signing.PrivateKey()
        let client = try Program(
            "nightbell",
            [
                "run", "--socket", fixture.supervisor.socket, "--identifier", "org.example.reader", "--",
                Program.product("scripted-client"),
            ])
        try client.say("hello org.example.reader")
        let hex = key.publicKey.x963Representation.map { String(format: "%02x", $0) }.joined()
        try client.say("push-endpoint news \(hex)")
        try client.wrote("/push/")
        try client.say("echo asked")
        try client.wrote("ok asked")
        let line = try #require(client.output.split(separator: "\n").first { $0.contains("/push/") })
        let path = "/push/" + (try #require(line.split(separator: "/").last))
        let (own, other) = ("http://127.0.0.1:\(fixture.port)", "https://elsewhere.example")
        let soon = Date.now.timeIntervalSince1970 + 3_600
        let cases: [(claims: [String: Any], status: Int)] = [
            (["aud": own, "exp": soon], 201),
            (["aud": [own], "exp": soon], 201),
            (["aud": [other, own], "exp": soon], 201),
            (["aud": own + "/", "exp": soon], 201),
            (["aud": own.uppercased(), "exp": soon], 201),
            (["aud": [other], "exp": soon], 403),
            (["aud": [String](), "exp": soon], 403),
            (["aud": own + "/push", "exp": soon], 403),
            (["aud": 7, "exp": soon], 403),
            (["exp": soon], 403),
            (["aud": own], 403),
            (["aud": own, "exp": soon - 7_200], 403),
            (["aud": own, "exp": soon + 90_000], 403),
        ]
        let start = BootClock.now()
        for (claims, status) in cases {
            let response = try fixture.post(
                path, headers: ["TTL: 60", try SenderProof.header(key, claims)], body: "x")
            #expect(response.status == status, "\(claims)")
        }
        // Of eight, five at once, one a second by their rate, and one a second because it has waited.
        #expect(BootClock.now() - start >= 1_400_000_000)
    }
}
