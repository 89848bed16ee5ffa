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
        let file = fixture.directory.file("openapi.json")
        try Data(try fixture.get("/v1/openapi.json").body.utf8).write(to: URL(fileURLWithPath: file))
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
        _ = phone
    }
}
