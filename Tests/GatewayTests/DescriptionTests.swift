import EdgeTestSupport
import Foundation
import Glibc
import ProgramTestSupport
import Testing

/// The description of the interface, tried by a program that makes requests of it, valid and invalid ones.
@Suite(.enabled(if: geteuid() == 0, "needs root"), .timeLimit(.minutes(40)))
struct DescriptionTests {
    /// Installed by scripts/test.
    private static let schemathesis = URL(fileURLWithPath: #filePath)
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
        .appendingPathComponent(".build-python/bin/schemathesis").path

    @Test(
        "The gateway does as its description says",
        .enabled(if: access(schemathesis, X_OK) == 0, "needs schemathesis"))
    func asDescribed() throws {
        let fixture = try GatewayFixture(gateway: ["--refusals", "10000"], pushes: true)
        let token = try fixture.token("test", "read", "wake", "push")
        try fixture.isReady()
        let phone = try fixture.supervisor.suspended("org.example.phone")
        let reader = try fixture.supervisor.client(GatewayFixture.pushedName)
        let path = try fixture.pushPath(reader)
        // It takes its messages at once, so that its mailbox never is full.
        try reader.say("foreground")
        let file = fixture.directory.file("openapi.json")
        let description = try described(by: fixture, pushing: String(path.dropFirst("/push/".count)))
        try description.write(to: URL(fileURLWithPath: file))
        let tool = try Program(
            // It leaves files where it runs.
            "/usr/bin/env",
            [
                "--chdir", fixture.directory.path, Self.schemathesis, "run", file, "--url",
                "http://127.0.0.1:\(fixture.port)",
                "--header", "Authorization: Bearer \(token)", "--max-examples", "40", "--seed", "1",
                // A stream has no end.
                "--exclude-path", "/v1/events", "--request-timeout", "20",
            ],
            environment: [
                "HOME": fixture.directory.path, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8",
            ])
        let outcome = try tool.outcome(within: 300_000)
        #expect(outcome.code == 0, "\(outcome.output) \(outcome.errors)")
        // It has found the address.
        #expect(reader.output.contains("\npushed "))
        _ = phone
    }

    /// The description, with an address that exists beside one that does not: it cannot be guessed.
    private func described(by fixture: GatewayFixture, pushing token: String) throws -> Data {
        var description = try fixture.get("/v1/openapi.json").object
        var paths = try #require(description["paths"] as? [String: Any])
        var operations = try #require(paths["/push/{token}"] as? [String: [String: Any]])
        for name in ["get", "post"] {
            var parameters = try #require(operations[name]?["parameters"] as? [[String: Any]])
            #expect(parameters[0]["name"] as? String == "token")
            let other = String(repeating: "A", count: 32)
            parameters[0]["schema"] = ["type": "string", "enum": [token, other]] as [String: Any]
            operations[name]?["parameters"] = parameters
        }
        paths["/push/{token}"] = operations
        description["paths"] = paths
        return try JSONSerialization.data(withJSONObject: description)
    }
}
