import EdgeTestSupport
import Foundation
import ProgramTestSupport
import Testing

@Suite("nightbell explain")
struct ExplainTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    private static let ping = """
        OPTIONS sip:bob@192.0.2.7 SIP/2.0\r
        Via: SIP/2.0/TCP 192.0.2.1:5060;branch=z9hG4bK1\r
        From: <sip:ka@example.org>;tag=1\r
        To: <sip:bob@example.org>\r
        Call-ID: 1\r
        CSeq: 80 OPTIONS\r
        Content-Length: 0\r
        \r\n
        """

    private func file(_ name: String, _ text: String) throws -> String {
        try Data(text.utf8).write(to: URL(fileURLWithPath: directory.file(name)))
        return directory.file(name)
    }

    @Test("A capture is inspected message by message, up to the first for the owner")
    func stream() throws {
        let capture = try file("capture", Self.ping + "\r\n\r\nINVITE sip:bob SIP/2.0\r\n\r\n" + Self.ping)
        let nightbell = Program.product("nightbell")
        let outcome = try Program.run(
            "/bin/sh", ["-c", "'\(nightbell)' explain --profile sip < '\(capture)'"])
        #expect(outcome.code == 0, "\(outcome.errors)")
        let lines = outcome.output.split(separator: "\n")
        let length = Self.ping.utf8.count
        #expect(lines.first == "0 +\(length)  noise: a ping, answered")
        #expect(lines.contains { $0.hasPrefix("    > SIP/2.0 200 OK\\r\\nVia: ") })
        #expect(lines.contains("\(length) +4  noise: a ping, answered"))
        #expect(lines.contains("\(length + 4) +\(26 + length)  significant: a message for the owner"))
        #expect(lines.last == "2 absorbed (\(length + 4) B), \(26 + length) B left for the owner")
    }

    @Test("A stream may come in several files, cut anywhere")
    func pieces() throws {
        let stream = Self.ping + "\r\n\r\n" + Self.ping
        let whole = try Program.run("nightbell", ["explain", "--profile", "sip", try file("whole", stream)])
        #expect(whole.output.hasSuffix("3 absorbed (\(stream.utf8.count) B), 0 B left for the owner\n"))
        for cut in [1, 5, Self.ping.count - 1, Self.ping.count + 1, stream.count - 1] {
            let first = try file("first", String(stream.unicodeScalars.prefix(cut)))
            let second = try file("second", String(stream.unicodeScalars.dropFirst(cut)))
            let outcome = try Program.run("nightbell", ["explain", "--profile", "sip", first, second])
            #expect(outcome.output == whole.output, "cut at \(cut)")
        }
        // Nothing behind the first message for the owner is inspected, also in another piece.
        let call = try file("call", "INVITE sip:bob SIP/2.0\r\n\r\n")
        let ping = try file("ping", Self.ping)
        let outcome = try Program.run("nightbell", ["explain", "--profile", "sip", call, ping])
        #expect(outcome.output.split(separator: "\n").count == 3)
        #expect(outcome.output.contains("0 absorbed (0 B), \(26 + Self.ping.utf8.count) B left"))
    }

    @Test("Programs get one object a line")
    func json() throws {
        let capture = try file("capture", Self.ping + "\r")
        let outcome = try Program.run(
            "nightbell", ["explain", "--profile", "sip", "--ping", "--json", capture])
        let objects = try outcome.output.split(separator: "\n").map {
            try #require(try JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any])
        }
        #expect(objects.map { $0["decision"] as? String } == ["sent", "noise", "need_more"])
        #expect(objects.first?["reply_base64"] as? String == "DQoNCg==")
        let reply = try #require(Data(base64Encoded: objects[1]["reply_base64"] as? String ?? ""))
        #expect(reply.starts(with: Array("SIP/2.0 200 OK\r\n".utf8)))
        #expect(objects[2]["offset"] as? Int == Self.ping.utf8.count)
        #expect(objects[2]["limit_bytes"] as? Int == 2)
    }

    @Test("Each file is a datagram, inspected by itself")
    func datagrams() throws {
        let ping = try file("ping", Self.ping.replacingOccurrences(of: "TCP", with: "UDP"))
        let call = try file("call", "INVITE sip:bob SIP/2.0\r\n\r\n")
        let arguments = ["explain", "--profile", "sip", "--datagram", "--peer", "192.0.2.1:5060"]
        let outcome = try Program.run("nightbell", arguments + [ping, call, ping])
        #expect(outcome.output.contains("0 +\(Self.ping.utf8.count)  noise"))
        #expect(outcome.output.contains("1 +26  significant"))
        #expect(outcome.output.contains("2 +\(Self.ping.utf8.count)  noise"))
    }

    @Test("Patterns, roles and delegated state come from the command line")
    func settings() throws {
        let cases: [([String], String, String)] = [
            (["line", "--pattern", "ping=pong", "--line-end", "lf"], "ping\n", "> pong\\n"),
            (["bytes", "--hex", "--pattern", "41 42=43"], "AB", "> C"),
            (["mqtt", "--role", "server"], "\u{40}", "significant"),
            (
                ["xmpp", "--delegate-counters", "12,7"], "<r xmlns='urn:xmpp:sm:3'/>",
                "> <a xmlns='urn:xmpp:sm:3' h='12'/>"
            ),
            (["imap", "--ping", "--delegate-tag", "a1"], "a1 OK done\r\n", "> NB1 IDLE\\r\\n"),
            (["imap", "--delegate-tag", "a1", "--filler", "Zzz"], "* OK Zzz\r\n", "noise: a filler"),
            (["imap", "--delegate-tag", "a1", "--filler", "Zzz"], "* OK Still here\r\n", "significant"),
            (["sip", "--user", "bob"], Self.ping, "noise: a ping"),
            (["sip", "--user", "carol"], Self.ping, "significant"),
            (
                ["xmpp", "--server", "example.org"],
                "<iq from='example.org' id='1' type='get'><ping xmlns='urn:xmpp:ping'/></iq>", "noise: a ping"
            ),
            (
                ["xmpp", "--server", "example.org"],
                "<iq from='example.net' id='1' type='get'><ping xmlns='urn:xmpp:ping'/></iq>", "significant"
            ),
        ]
        for (arguments, traffic, expected) in cases {
            let capture = try file("capture", traffic)
            let outcome = try Program.run("nightbell", ["explain", "--profile"] + arguments + [capture])
            #expect(outcome.output.contains(expected), "\(arguments): \(outcome.output) \(outcome.errors)")
        }
    }

    @Test("Invalid options are refused")
    func refusals() throws {
        for arguments in [
            ["--profile", "smtp"], ["--profile", "xmpp", "--datagram"],
            ["--profile", "xmpp", "--delegate-counters", "x"],
            ["--profile", "imap", "--delegate-tag", "a b"], ["--profile", "sip", "--peer", "somewhere"],
            ["--profile", "bytes", "--pattern", "a", "--pattern", "ab"],
            ["--profile", "bytes", "--hex", "--pattern", "abc"], [],
            ["--profile", "sip", "--pattern", "a"], ["--profile", "xmpp", "--user", "a"],
            ["--profile", "imap", "--server", "a"], ["--profile", "stun", "--role", "server"],
        ] {
            #expect(try Program.run("nightbell", ["explain"] + arguments).code == 64, "\(arguments)")
        }
        let missing = try Program.run(
            "nightbell", ["explain", "--profile", "sip", directory.file("missing")])
        #expect(missing.code == 1)
        #expect(missing.errors.contains("No such file"))
    }
}
