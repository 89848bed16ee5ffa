import EdgeTestSupport
import Foundation
import Glibc
import ProgramTestSupport
import Testing

/// With a certificate the gateway speaks TLS, as curl sees it.
@Suite(.enabled(if: geteuid() == 0, "needs root"), .timeLimit(.minutes(40)))
struct TLSTests {
    /// A certificate that vouches for itself, at these paths.
    private struct Certificate {
        let chain: String
        let key: String

        init(in directory: TemporaryDirectory, _ name: String) throws {
            chain = directory.file("\(name).pem")
            key = directory.file("\(name).key")
            let made = try Program.run(
                "/usr/bin/openssl",
                [
                    "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=\(name)", "-addext", "subjectAltName=DNS:localhost",
                    "-keyout", key, "-out", chain,
                ])
            guard made.code == 0 else { throw Program.Failure(description: made.errors) }
            // The gateway has a user of its own.
            chmod(key, 0o644)
        }
    }

    private func fetch(_ path: String, _ gateway: GatewayFixture, trusting chain: String, _ more: String...)
        throws -> (output: String, code: Int32)
    {
        let result = try Program.run(
            "/usr/bin/curl",
            ["--silent", "--max-time", "30", "--cacert", chain, "https://localhost:\(gateway.port)\(path)"]
                + more)
        return (result.output, result.code)
    }

    private func replace(_ path: String, with new: String) throws {
        guard rename(new, path) == 0 else { throw Program.Failure(description: "cannot rename \(new)") }
    }

    @Test func aRenewedCertificateIsUsedWithoutARestart() throws {
        let directory = try TemporaryDirectory()
        chmod(directory.path, 0o755)
        let first = try Certificate(in: directory, "first")
        let second = try Certificate(in: directory, "second")
        let third = try Certificate(in: directory, "third")
        let trusted = ["first", "second", "third"].map { directory.file("\($0).trusted") }
        for (certificate, copy) in zip([first, second, third], trusted) {
            try FileManager.default.copyItem(atPath: certificate.chain, toPath: copy)
        }
        let gateway = try GatewayFixture(gateway: ["--certificate", first.chain, "--key", first.key])
        #expect(try fetch("/healthz", gateway, trusting: trusted[0]).code == 0)
        #expect(try fetch("/healthz", gateway, trusting: trusted[0], "--tls-max", "1.1").code != 0)
        #expect(try fetch("/healthz", gateway, trusting: trusted[1]).code != 0)
        // Without TLS there is no answer.
        let plain = try HTTPPeer(port: gateway.port)
        try plain.request("GET", "/healthz")
        #expect(try plain.ends(within: 30_000))

        // While only one of the two is renewed, the pair before is used.
        try replace(first.key, with: second.key)
        #expect(
            eventually(within: 30_000) {
                _ = try? fetch("/healthz", gateway, trusting: trusted[0])
                return gateway.gateway.errors.contains("the certificate before is used")
            })
        #expect(try fetch("/healthz", gateway, trusting: trusted[0]).code == 0)
        try replace(first.chain, with: second.chain)
        #expect(
            eventually(within: 30_000) {
                (try? fetch("/healthz", gateway, trusting: trusted[1]))?.code == 0
            })

        // Both at once.
        try replace(first.key, with: third.key)
        try replace(first.chain, with: third.chain)
        #expect(
            eventually(within: 30_000) {
                (try? fetch("/healthz", gateway, trusting: trusted[2]))?.code == 0
            })
    }

    @Test func aCertificateWithAnotherKeyIsRefused() throws {
        let directory = try TemporaryDirectory()
        let one = try Certificate(in: directory, "one")
        let other = try Certificate(in: directory, "other")
        let result = try Program.run(
            "nightbell-gateway",
            [
                "--listen", "0", "--tokens", directory.file("tokens"), "--certificate", one.chain, "--key",
                other.key,
            ])
        #expect(result.code == 78 && result.errors.contains("the certificate cannot be used"))
    }
}
