import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport
import Testing

/// A gateway as a user of its own, with a supervisor that grants it rights.
final class GatewayFixture {
    let supervisor: Fixture
    private(set) var gateway: Program
    let directory: TemporaryDirectory
    private(set) var port: Int
    let tokenFile: String
    private let arguments: [String]
    private let environment: [String: String]

    static let user = "nobody"

    /// - Parameters:
    ///   - user: the gateway's, a name or a number.
    ///   - rights: what the supervisor grants; nil: nothing.
    ///   - more: arguments of the gateway.
    ///   - pushes: whether it is a push service.
    ///   - environment: of the gateway.
    init(
        user: String = GatewayFixture.user, rights: String? = "wake", daemon arguments: [String] = [],
        gateway more: [String] = [],
        pushes: Bool = false, environment: [String: String] = [:]
    ) throws {
        self.environment = environment
        directory = try TemporaryDirectory()
        chmod(directory.path, 0o755)
        let own = directory.file("push")
        let granted =
            rights.map { ["--set", "gateway.user=\(user)", "--set", "gateway.rights=\($0)"] } ?? []
        let socket = ["--set", "gateway.pushSocket=\(pushes ? own + "/push.sock" : "")"]
        supervisor = try Fixture(granted + socket + arguments)
        // Other users must reach the socket.
        chmod(supervisor.directory.path, 0o755)
        tokenFile = directory.file("tokens")
        var ownArguments = more
        if pushes {
            mkdir(own, 0o755)
            let account = try #require(getpwnam(user), "there is no user \(user)").pointee.pw_uid
            chown(own, account, gid_t.max)
            ownArguments += ["--push", own, "--push-socket", own + "/push.sock"]
        }
        self.arguments =
            [
                "--reuid", user, "--regid", "nogroup", "--clear-groups",
                Program.product("nightbell-gateway"), "--listen", "0", "--tokens", tokenFile, "--socket",
                supervisor.socket,
            ] + ownArguments
        (gateway, port) = try Self.start(self.arguments, environment)
    }

    private static func start(
        _ arguments: [String], _ environment: [String: String]
    ) throws -> (Program, port: Int) {
        let gateway = try Program("/usr/bin/setpriv", arguments, environment: environment)
        try gateway.wrote(":")
        try gateway.wrote("/\n")
        let text = gateway.output.split(separator: ":").last?.split(separator: "/").first
        guard let port = text.flatMap({ Int($0) }) else {
            throw Program.Failure(description: "no port: \(gateway.output)")
        }
        return (gateway, port)
    }

    /// Kills the gateway.
    func killGateway() throws {
        gateway.send(signal: SIGKILL)
        _ = try gateway.outcome()
    }

    /// Starts another one after `killGateway`, on another port.
    ///
    /// - Parameter more: further arguments.
    func startGateway(_ more: String...) throws {
        (gateway, port) = try Self.start(arguments + more, environment)
    }

    func loseStore() {
        for name in ["pushes.sqlite", "pushes.sqlite-wal", "pushes.sqlite-shm"] {
            unlink(pushStore + "/" + name)
        }
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

    func post(
        _ path: String, token: String? = nil, headers: [String] = [], body: String = ""
    ) throws -> HTTPPeer.Response {
        let peer = try HTTPPeer(port: port)
        try peer.request("POST", path, token: token, headers: headers, body: body)
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
