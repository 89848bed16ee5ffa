import EdgeTestSupport
import Gateway
import ProgramTestSupport
import Testing

/// The address that pushes' senders are given.
@Suite("The public address")
struct OriginTests {
    @Test(
        "It is written as senders compare it",
        arguments: [
            ("https://push.example.org", "https://push.example.org"),
            ("HTTPS://Push.Example.org/", "https://push.example.org"),
            ("https://push.example.org:443", "https://push.example.org"),
            ("http://push.example.org:80/", "http://push.example.org"),
            ("http://push.example.org:443", "http://push.example.org:443"),
            ("https://192.0.2.1:7480", "https://192.0.2.1:7480"),
            ("https://[2001:DB8::1]", "https://[2001:db8::1]"),
            ("https://[2001:db8::1]:443", "https://[2001:db8::1]"),
            ("https://[2001:0db8:0:0:0::0001]", "https://[2001:db8::1]"),
            ("https://[2001:db8::1]:7480/", "https://[2001:db8::1]:7480"),
        ])
    func origins(text: String, origin: String) {
        #expect(Origin(text)?.description == origin)
    }

    @Test(
        "Others are none",
        arguments: [
            "", "https://", "https:///", "push.example.org", "ftp://push.example.org", "://a", "https:/a",
            "https://a/b", "https://a//", "https://a?b", "https://a/?b", "https://a#b", "https://u@a",
            "https://u:p@a", "https://a:", "https://a:/", "https://a:0", "https://a:65536", "https://a:08",
            "https://a:x", "https://a:+1", "https://:80", "https://[::1", "https://::1", "https://[]",
            "https://[:::::]", "https://[fe80::1%eth0]", "https://[::1\u{0}]", "https://[a]", "https://a b",
            "https://a\n", "https://ä", "https://a\\b", "https://[::1]x",
        ])
    func none(text: String) {
        #expect(Origin(text) == nil)
    }

    @Test(
        "Without one that can be reached, it does not keep pushes",
        arguments: [
            "0.0.0.0:0", "[::]:0", "[0:0:0::0]:0", "0:0", "0x0:0", "[::ffff:0.0.0.0]:0", "[fe80::1%lo]:0",
        ])
    func wildcards(listen: String) throws {
        let directory = try TemporaryDirectory()
        func outcome(_ more: String...) throws -> Program.Outcome {
            try Program.run(
                "nightbell-gateway",
                [
                    "--listen", listen, "--plaintext", "--tokens", directory.file("tokens"), "--push",
                    directory.file("none"),
                ] + more)
        }
        let refused = try outcome()
        #expect(refused.code == 64 && refused.errors.contains("give --public-url"), "\(refused)")
        let path = try outcome("--public-url", "https://push.example.org/path")
        #expect(path.code == 64 && path.errors.contains("--public-url: expected"), "\(path)")
    }

    @Test("Other machines reach it only with a certificate, or if it is told to do without")
    func loopback() throws {
        let help = try Program.run("nightbell-gateway", ["serve", "--help"])
        let words = help.output.split(whereSeparator: \.isWhitespace).joined(separator: " ")
        #expect(words.contains("(default: 127.0.0.1:7480)"), "\(help.output)")
        let directory = try TemporaryDirectory()
        for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "127.example:0", "0:0"] {
            let refused = try Program.run(
                "nightbell-gateway", ["--listen", listen, "--tokens", directory.file("tokens")])
            #expect(
                refused.code == 64 && refused.errors.contains("can be reached by other machines"),
                "\(listen) \(refused)")
        }
    }
}
