import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

/// The whole way of a notification: a client that sleeps, or has ended, the supervisor, the monitor of the
/// session, and a notification server on a private bus.
@Suite("Notifications of clients", .serialized, .timeLimit(.minutes(40)))
struct NotificationEndToEndTests {
    private let bus: PrivateBus
    private let identifier = "org.example.tea"

    init() throws { bus = try PrivateBus() }

    private func supervisor(_ settings: [String] = []) throws -> SupervisorProcess {
        try SupervisorProcess(environment: ["DBUS_SESSION_BUS_ADDRESS": bus.address], settings)
    }

    private func notifications(_ supervisor: SupervisorProcess) throws -> String {
        try supervisor.nightbell("notifications", "--json")
    }

    private func waits(_ supervisor: SupervisorProcess, for text: String) throws {
        let isThere = try eventually(within: 60_000) { try notifications(supervisor).contains(text) }
        try check(isThere, "not \(text), but \(try notifications(supervisor)), \(try supervisor.status())")
    }

    @Test(
        "A sleeping client's notification is shown by the server, and wakes it when it is activated",
        arguments: SupervisorProcess.ways)
    func sleeping(way: String) throws {
        let server = try NotificationTests.startServer(bus)
        let supervisor = try SupervisorProcess(
            suspension: way, environment: ["DBUS_SESSION_BUS_ADDRESS": bus.address])
        let client = try supervisor.example(identifier, ["notification", "2"])
        try client.reports("has a reminder")
        try client.fallsAsleep()
        try waits(supervisor, for: "\"state\":\"shown\"")
        #expect(try client.wakes == 0)
        let calls = try NotificationTests.shown(bus)
        #expect(calls.contains("'Time for tea'") && calls.contains("Water is hot &amp; ready"))
        try server.emit(NotificationTests.name, "ActionInvoked", "us", "[<uint32 1>, <'snooze'>]")
        try client.reports("is woken: notification")
        try client.reports("reminder is activated (snooze): table 7")
        try client.fallsAsleep()
        #expect(try notifications(supervisor) == "[]\n")
        server.end()
    }

    @Test("A notification waits for a server, also over a death of the worker, and is then shown once")
    func waiting() throws {
        let supervisor = try supervisor()
        let client = try supervisor.example(identifier, ["notification", "1"])
        try client.fallsAsleep()
        try waits(supervisor, for: "\"state\":\"waiting\"")
        let printed = try supervisor.nightbell("notifications")
        #expect(printed.contains("Time for tea"))
        let isTold = try eventually(within: 60_000) {
            let status = try supervisor.status()
            return status.contains("notifications of uid") && status.contains("Notifications is not running")
                || status.contains("cannot be started")
        }
        let status = try supervisor.status()
        #expect(isTold, "\(status)")
        let worker = try #require(try supervisor.processes().dropFirst().first)
        kill(worker, SIGKILL)
        try waits(supervisor, for: "\"state\":\"waiting\"")
        let server = try NotificationTests.startServer(bus)
        try waits(supervisor, for: "\"state\":\"shown\"")
        let calls = try NotificationTests.shown(bus)
        #expect(calls.components(of: "'Time for tea'") == 1)
        try client.fallsAsleep()
        #expect(try client.wakes == 0)
        server.end()
    }

    @Test("A client in the foreground is told instead, and nothing is shown")
    func foreground() throws {
        let server = try NotificationTests.startServer(bus)
        let supervisor = try supervisor()
        let client = try Child(
            product("scripted-client"), [], environment: ["PATH": "/usr/bin:/bin"])
        func command(_ text: String) throws -> String {
            try client.send(text + "\n")
            while let answer = try client.hear(within: 60_000) {
                if answer.contains("ok") || answer.contains("delivered") { return answer }
                try check(!answer.contains("error "), answer)
            }
            throw SupportError(text: "no answer to \(text)")
        }
        _ = try command("hello \(identifier) socket=\(supervisor.socket)")
        _ = try command("foreground")
        let badges = try BusRecord(bus, interface: "com.canonical.Unity.LauncherEntry")
        for count in [3, 0] {
            _ = try command("badge \(count)")
            let isTold = try eventually(within: 60_000) { try badges.text().contains("int64 \(count)") }
            let told = try badges.text()
            #expect(isTold, "\(told)")
        }
        var heard = try command("notify tea Tea after=200 payload=x")
        while !heard.contains("delivered tea"), let more = try client.hear(within: 60_000) { heard += more }
        #expect(heard.contains("delivered tea"))
        let shown = try NotificationTests.shown(bus)
        #expect(!shown.contains("Tea"))
        #expect(try eventually(within: 60_000) { try notifications(supervisor) == "[]\n" })
        server.end()
    }

    @Test("A client that has ended is launched when its notification is activated")
    func launch() throws {
        let server = try NotificationTests.startServer(bus)
        let supervisor = try supervisor()
        let directory = try TemporaryDirectory()
        let report = directory.file("report")
        // The words of the launched process come into the same file.
        let run = try Helper(
            [
                product("nightbell"), "run", "--identifier", identifier, "--", "/bin/sh", "-c",
                "exec '\(product("mode-example"))' notification 1 >>'\(report)'",
            ],
            environment: bareEnvironment().merging(["NIGHTBELL_SOCKET": supervisor.socket]) { $1 })
        func says(_ text: String) throws {
            let isSaid = eventually(within: 60_000) {
                (try? SmallFile.readText(report))?.contains(text) ?? false
            }
            try check(isSaid, "not \(text), but \((try? SmallFile.readText(report)) ?? "nothing")")
        }
        try says("has a reminder")
        _ = try supervisor.nightbell("quit", identifier)
        try supervisor.wait(for: identifier, toBe: "dormant")
        try waits(supervisor, for: "\"state\":\"shown\"")
        try server.emit(NotificationTests.name, "ActionInvoked", "us", "[<uint32 1>, <'default'>]")
        try says("reminder is activated (default): table 7")
        try supervisor.wait(for: identifier, toBe: "suspended")
        #expect(try notifications(supervisor) == "[]\n")
        _ = try supervisor.nightbell("quit", identifier)
        run.end()
        server.end()
    }

    @Test(
        "A supervisor without rights shows those of its own user",
        .enabled(if: geteuid() == 0, "becoming another user needs root"))
    func unprivileged() throws {
        let server = try NotificationTests.startServer(bus)
        let directory = try TemporaryDirectory()
        chown(directory.path, 65_534, 65_534)
        let identity = ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        let socket = directory.file("nightbell.sock")
        let environment = bareEnvironment().merging([
            "DBUS_SESSION_BUS_ADDRESS": bus.address, "XDG_RUNTIME_DIR": directory.path,
            "NIGHTBELL_SOCKET": socket,
        ]) { $1 }
        let daemon = try Helper(
            identity + [
                product("nightbelld"), "--system", "--socket", socket, "--runtime-directory", directory.path,
                "--suspend", "signal", "--log-level", "critical", "--set", "stateDirectory=", "--set",
                "memoryPressure.file=",
            ], environment: environment)
        try check(eventually(within: 60_000) { access(socket, F_OK) == 0 }, "nightbelld does not serve")
        let report = try OwnedDescriptor(
            opening: directory.file("report"), O_WRONLY | O_CREAT | O_APPEND, mode: 0o600)
        let client = try Helper(
            identity + [product("mode-example"), "notification", "1"], environment: environment,
            output: report.rawValue)
        let isShown = try eventually(within: 60_000) {
            try NotificationTests.shown(bus).contains("Time for tea")
        }
        try check(isShown, "it is not shown")
        let isWoken = try eventually(within: 60_000) {
            try server.emit(NotificationTests.name, "ActionInvoked", "us", "[<uint32 1>, <'default'>]")
            return try SmallFile.readText(directory.file("report")).contains(
                "reminder is activated (default)")
        }
        try check(isWoken, "it is not activated")
        client.end()
        kill(daemon.pid, SIGTERM)
        if let process = try? ProcessHandle(opening: daemon.pid) {
            _ = Poll.wait(process.rawValue, for: .readable, timeoutMilliseconds: 10_000)
        }
        daemon.end()
        server.end()
    }
}
