import EdgeTestSupport
import Foundation
import ProgramTestSupport
import Testing

/// A client with an address for pushes.
extension GatewayFixture {
    static let pushedName = "org.example.reader"

    /// A client that sleeps, and the path of its address.
    func sleeper() throws -> (client: Program, path: String) {
        let client = try Program(
            "nightbell",
            [
                "run", "--socket", supervisor.socket, "--identifier", Self.pushedName, "--",
                Program.product("scripted-client"),
            ])
        try client.say("hello \(Self.pushedName)")
        let path = try pushPath(client)
        try client.say("background")
        try supervisor.reaches("suspended", Self.pushedName)
        return (client, path)
    }

    /// Has a client ask for an address.
    func pushPath(_ client: Program, named name: String = "") throws -> String {
        let before = client.output.components(separatedBy: "/push/").count
        try client.say("push-endpoint \(name)")
        let isThere = eventually(within: 20_000) {
            client.output.components(separatedBy: "/push/").count > before && client.output.hasSuffix("\n")
        }
        #expect(isThere, "\(client.output)")
        let line = try #require(client.output.split(separator: "\n").last { $0.contains("/push/") })
        return "/push/" + (try #require(line.split(separator: "/").last))
    }

    /// - Returns: the status.
    func push(_ path: String, _ body: String) throws -> Int {
        try post(path, headers: ["TTL: 600"], body: body).status
    }

    var pushStore: String { directory.file("push") }
}
