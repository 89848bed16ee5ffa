import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport

/// A gateway as a user of its own, with a supervisor that grants it rights.
final class GatewayFixture {
    let supervisor: Fixture
    let gateway: Program
    let directory: TemporaryDirectory
    let port: Int
    let tokenFile: String

    static let user = "nobody"

    /// - Parameters:
    ///   - rights: what the supervisor grants; nil: nothing.
    ///   - arguments: of the gateway.
    init(
        rights: String? = "wake", daemon arguments: [String] = [], gateway more: [String] = []
    ) throws {
        let granted =
            rights.map { ["--set", "gateway.user=\(Self.user)", "--set", "gateway.rights=\($0)"] } ?? []
        supervisor = try Fixture(granted + arguments)
        // Other users must reach the socket.
        chmod(supervisor.directory.path, 0o755)
        directory = try TemporaryDirectory()
        chmod(directory.path, 0o755)
        tokenFile = directory.file("tokens")
        gateway = try Program(
            "/usr/bin/setpriv",
            [
                "--reuid", Self.user, "--regid", "nogroup", "--clear-groups",
                Program.product("nightbell-gateway"), "--listen", "0", "--tokens", tokenFile, "--socket",
                supervisor.socket,
            ] + more)
        try gateway.wrote(":")
        try gateway.wrote("/\n")
        let text = gateway.output.split(separator: ":").last?.split(separator: "/").first
        guard let port = text.flatMap({ Int($0) }) else {
            throw Program.Failure(description: "no port: \(gateway.output)")
        }
        self.port = port
    }

    /// Makes a token and returns its text.
    func token(_ name: String = "test", _ scopes: String...) throws -> String {
        let made = try Program.run(
            "nightbell-gateway", ["token", "create", name, "--tokens", tokenFile, "--scope"] + scopes)
        guard made.code == 0 else { throw Program.Failure(description: made.errors) }
        let text = made.output.trimmingCharacters(in: .whitespacesAndNewlines)
        // The gateway looks at the file once a second.
        guard eventually(within: 10_000, { (try? get("/v1/status", token: text))?.status != 401 }) else {
            throw Program.Failure(description: "the token is not accepted: \(gateway.errors)")
        }
        return text
    }

    func get(_ path: String, token: String? = nil) throws -> HTTPPeer.Response {
        let peer = try HTTPPeer(port: port)
        try peer.request("GET", path, token: token)
        return try peer.response()
    }

    func post(_ path: String, token: String? = nil) throws -> HTTPPeer.Response {
        let peer = try HTTPPeer(port: port)
        try peer.request("POST", path, token: token)
        return try peer.response()
    }

    /// Waits until the gateway has the supervisor's events.
    func isReady() throws {
        guard try eventually(within: 30_000, { try get("/readyz").status == 200 }) else {
            throw Program.Failure(description: "it is not ready: \(gateway.errors)")
        }
    }

    func state(_ identifier: String, token: String) throws -> String? {
        try get("/v1/clients/\(identifier)", token: token).object["state"] as? String
    }
}
