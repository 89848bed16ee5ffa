import EdgeTestSupport
import Foundation
import Glibc
import ProgramTestSupport
import Testing

/// A sender that was written by others: pywebpush, which encrypts messages (RFC 8291) and proves to be the
/// sender of an address (RFC 8292).
@Suite(.enabled(if: geteuid() == 0, "needs root"), .timeLimit(.minutes(40)))
struct WebPushTests {
    /// Installed by scripts/test.
    static let python = URL(fileURLWithPath: #filePath)
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
        .appendingPathComponent(".build-python/bin/python").path
    static let isThere =
        (try? Program("/usr/bin/env", [python, "-c", "import pywebpush"]).outcome().code) == 0

    /// Prints its public key, and then the answer to each line of its input.
    static let program = """
        import base64, json, os, sys, http_ece, pywebpush
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from py_vapid import Vapid

        def point(key):
            return key.public_key().public_bytes(
                serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)

        def text(data):
            return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

        sender, other = Vapid(), Vapid()
        sender.generate_keys()
        other.generate_keys()
        receiver, secret = ec.generate_private_key(ec.SECP256R1()), os.urandom(16)
        print(point(sender.private_key).hex(), flush=True)
        for line in sys.stdin:
            words = line.split()
            if words[0] == "decrypt":
                clear = http_ece.decrypt(
                    bytes.fromhex(words[1]), private_key=receiver, auth_secret=secret, version="aes128gcm")
                print("clear", clear.decode(), flush=True)
                continue
            who, address, message, audience = words
            subscription = {"endpoint": address, "keys": {"p256dh": text(point(receiver)), "auth": text(secret)}}
            key = {"sender": sender, "other": other, "nobody": None}[who]
            claims = {"sub": "mailto:sender@example.org"}
            if audience != "-":
                claims["aud"] = audience
            try:
                answer = pywebpush.webpush(
                    subscription, message, vapid_private_key=key, vapid_claims=claims if key else None, ttl=60)
                print("status", answer.status_code, flush=True)
            except pywebpush.WebPushException as problem:
                print("status", problem.response.status_code, flush=True)
        """

    @Test(
        "Only the sender that the client named is heard, and its message arrives as it was encrypted",
        .enabled(if: isThere, "needs pywebpush"))
    func sender() throws {
        let fixture = try GatewayFixture(pushes: true)
        let sender = try Program(
            "/usr/bin/env", [Self.python, "-c", Self.program], environment: ["PATH": "/usr/bin:/bin"])
        try sender.wrote("\n")
        let key = sender.output.trimmingCharacters(in: .whitespacesAndNewlines)
        #expect(key.hasPrefix("04") && key.utf8.count == 130)
        let client = try Program(
            "nightbell",
            [
                "run", "--socket", fixture.supervisor.socket, "--identifier", "org.example.reader", "--",
                Program.product("scripted-client"),
            ])
        try client.say("hello org.example.reader")
        try client.say("push-endpoint news 04" + String(repeating: "00", count: 64))
        try client.wrote("error pushRefused")
        try client.say("push-endpoint news \(key)")
        try client.wrote("/push/")
        try client.say("background")
        try fixture.supervisor.reaches("suspended", "org.example.reader")
        let line = try #require(client.output.split(separator: "\n").first { $0.contains("/push/") })
        let address = try #require(line.split(separator: " ").last)

        var count = 0
        func send(_ who: String, _ message: String, audience: String = "-") throws -> Int? {
            count += 1
            try sender.say("\(who) \(address) \(message) \(audience)")
            let isAnswered = eventually(within: 30_000) {
                sender.output.split(separator: "\n").count == count + 1
            }
            #expect(isAnswered, "\(sender.errors)")
            return sender.output.split(separator: "\n").last?.split(separator: " ").last.flatMap { Int($0) }
        }
        #expect(try send("nobody", "nothing") == 401)
        #expect(try send("other", "nothing") == 403)
        #expect(try send("sender", "nothing", audience: "https://elsewhere.example") == 403)
        #expect(try send("sender", "news-of-today") == 201)
        try client.wrote("\npushed ")
        try client.wrote("hex:")
        #expect(
            eventually(within: 20_000) {
                client.output.split(separator: "\n").contains {
                    $0.hasPrefix("pushed ") && $0.contains("hex:")
                }
            })
        let pushed = try #require(client.output.split(separator: "\n").first { $0.hasPrefix("pushed ") })
        let hex = try #require(pushed.split(separator: ":").last)
        try sender.say("decrypt \(hex)")
        try sender.wrote("clear news-of-today\n")
    }
}
