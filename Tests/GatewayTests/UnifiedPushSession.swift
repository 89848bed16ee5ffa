import EdgeTestSupport
import Foundation
import Glibc
import ProgramTestSupport
import Testing

/// A bus of its own, the distributor, and programs that know only the specification.
final class UnifiedPushSession {
    private static let program = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .appendingPathComponent("connector.py").path
    private static let python = "/usr/bin/python3"

    let fixture: GatewayFixture
    let bus: Program
    private(set) var distributor: Program
    private let directory: String

    /// - Parameters:
    ///   - isActivatable: the bus can start the program.
    ///   - version: of the specification, of a program that the bus starts.
    ///   - perHour: pushes of which a client in the background is told.
    init(
        isActivatable: Bool = true, version: String = "2", retry: String = "200ms", perHour: Int = 9
    ) throws {
        fixture = try GatewayFixture(
            daemon: [
                "--set", "push.retry=\(retry)", "--set", "push.perHour=\(perHour)", "--set",
                "launches.retry=100ms",
            ], pushes: true)
        directory = fixture.directory.path
        let services = directory + "/services"
        mkdir(services, 0o755)
        if isActivatable {
            let text = """
                [D-BUS Service]
                Name=org.example.Chat
                Exec=/usr/bin/env VERSION=\(version) \(Self.python) \(Self.program) \(directory)/log

                """
            try Data(text.utf8).write(to: URL(fileURLWithPath: services + "/org.example.Chat.service"))
        }
        let configuration = """
            <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
            "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd"><busconfig>
            <type>session</type><listen>unix:path=\(directory)/bus</listen><auth>EXTERNAL</auth>
            <servicedir>\(services)</servicedir>
            <policy context="default"><allow send_destination="*" eavesdrop="true"/>
            <allow eavesdrop="true"/><allow own="*"/></policy></busconfig>
            """
        try Data(configuration.utf8).write(to: URL(fileURLWithPath: directory + "/bus.conf"))
        bus = try Program("/usr/bin/dbus-daemon", ["--nofork", "--config-file", directory + "/bus.conf"])
        let path = directory + "/bus"
        guard eventually(within: 20_000, { access(path, F_OK) == 0 }) else {
            throw Program.Failure(description: "no bus: \(bus.errors)")
        }
        distributor = try Self.makeDistributor(fixture, path)
    }

    /// Starts another one.
    func startDistributor() throws {
        distributor = try Self.makeDistributor(fixture, directory + "/bus")
    }

    private static func makeDistributor(_ fixture: GatewayFixture, _ path: String) throws -> Program {
        let distributor = try Program(
            "nightbell",
            [
                "run", "--socket", fixture.supervisor.socket, "--identifier", "org.unifiedpush", "--",
                Program.product("nightbell-distributor"), "--bus", "unix:path=\(path)",
            ])
        let isThere = try eventually(within: 20_000) {
            try Program(
                "/usr/bin/dbus-send",
                [
                    "--bus=unix:path=\(path)", "--print-reply", "--dest=org.freedesktop.DBus", "/",
                    "org.freedesktop.DBus.GetNameOwner", "string:org.unifiedpush.Distributor.nightbell",
                ]
            ).outcome().code == 0
        }
        guard isThere else { throw Program.Failure(description: "no distributor: \(distributor.errors)") }
        return distributor
    }

    func connector(
        _ arguments: String..., service: String = "org.example.Chat"
    ) throws -> Program {
        try Program(
            Self.python, [Self.program, directory + "/log"] + arguments, environment: environment(service))
    }

    /// A program that knows nothing of Nightbell, and sleeps when it has nothing to do.
    func sleepingConnector(_ identifier: String, _ arguments: String...) throws -> Program {
        try Program(
            "nightbell",
            [
                "run", "--unmodified", "--socket", fixture.supervisor.socket, "--identifier", identifier,
                "--idle",
                "100ms", "--", Self.python, Self.program, directory + "/log",
            ] + arguments, environment: environment("org.example.Chat"), endsChildren: true)
    }

    private func environment(_ service: String) -> [String: String] {
        [
            "DBUS_SESSION_BUS_ADDRESS": "unix:path=\(directory)/bus", "PATH": "/usr/bin:/bin",
            "SERVICE": service,
        ]
    }

    var log: [String] {
        ((try? String(contentsOfFile: directory + "/log", encoding: .utf8)) ?? "")
            .split(separator: "\n").map(String.init)
    }

    func noted(_ part: String, times: Int = 1) throws {
        guard eventually(within: 30_000, { log.count { $0.contains(part) } >= times }) else {
            throw Program.Failure(
                description: "no \(part) in \(log); \(distributor.errors) \(fixture.gateway.errors)")
        }
    }

    /// The path of the address that was told last.
    func address() throws -> String {
        let line = try #require(log.last { $0.contains("\"endpoint\": \"http") })
        let token = try #require(line.split(separator: "/").last?.prefix(32))
        return "/push/\(token)"
    }

    /// Has the bus call the distributor for a registration.
    ///
    /// - Returns: the answer.
    func register(_ service: String, token: String) throws -> String {
        try Program(
            "/usr/bin/dbus-send",
            [
                "--bus=unix:path=\(directory)/bus", "--print-reply",
                "--dest=org.unifiedpush.Distributor.nightbell", "/org/unifiedpush/Distributor",
                "org.unifiedpush.Distributor1.Register", "string:\(service)", "string:\(token)", "string:a",
            ]
        ).outcome().output
    }

    func stopDistributor() throws {
        distributor.send(signal: SIGTERM)
        _ = try distributor.outcome()
    }

    func send(_ body: String, _ headers: String...) throws -> Int {
        try fixture.post(try address(), headers: ["TTL: 600"] + headers, body: body).status
    }

    /// The bodies that programs got, in hexadecimal digits.
    var messages: [String] {
        log.compactMap { line in
            let words = try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [Any]
            guard words?.first as? String == "message" else { return nil }
            return (words?.last as? [String: String])?["message"]
        }
    }
}
