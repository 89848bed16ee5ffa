import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

/// `Examples/Modes` where something is missing, and those of its clients that no other test runs.
@Suite("The examples of modes", .timeLimit(.minutes(40))) struct ExampleTests {
    /// The lines of an example that ends by itself, and its exit code.
    private func end(_ arguments: String, socket: String) throws -> (lines: [Substring], code: CInt?) {
        let text = try output(
            ["/bin/sh", "-c", "'\(product("mode-example"))' \(arguments) 2>&1; echo $?"],
            environment: bareEnvironment().merging(["NIGHTBELL_SOCKET": socket]) { $1 })
        let lines = text.split(separator: "\n")
        return (lines.dropLast(), lines.last.flatMap { CInt($0) })
    }

    @Test(
        "Without a supervisor they say so in one line",
        arguments: [
            "fetch", "network", "sleep", "unlock", "location", "location foreground", "audio true",
            "bluetooth /a /b", "accessory /dev/null",
        ])
    func noSupervisor(arguments: String) throws {
        let end = try end(arguments, socket: "/nonexistent/nightbell.sock")
        #expect(end.code == EX_UNAVAILABLE)
        #expect(end.lines.count == 1 && end.lines[0].contains("No supervisor can be reached"), "\(end)")
    }

    @Test(
        "With a path that cannot be observed they say so in one line",
        arguments: [
            "bluetooth nonsense /b", "bluetooth /a nonsense", "accessory /tmp/x", "peripheral nonsense",
        ])
    func badPath(arguments: String) throws {
        let supervisor = try SupervisorProcess()
        let end = try end(arguments, socket: supervisor.socket)
        #expect(end.code == EX_DATAERR)
        #expect(end.lines.count == 1 && end.lines[0].hasPrefix("mode-example: "), "\(end)")
    }

    @Test(
        "With other words they explain themselves", arguments: ["", "nonsense", "location nowhere", "audio"])
    func usage(arguments: String) throws {
        let end = try end(arguments, socket: "/nonexistent/nightbell.sock")
        #expect(end.code == EX_USAGE)
        #expect(end.lines.first?.hasPrefix("usage: ") == true)
    }

    @Test(
        "Each location service tells where the machine is",
        arguments: ["significant", "continuous", "foreground"])
    func location(service: String) throws {
        let supervisor = try SupervisorProcess()
        let client = try supervisor.example("org.example.location", ["location", service])
        if service == "foreground" {
            try client.reports("is in the foreground")
        } else {
            try client.fallsAsleep()
        }
        _ = try supervisor.nightbell(
            "simulate", "location", client.name, "--observation", service, "--moved", "52.5,13.4")
        try client.reports("is woken: location")
        try client.reports("\(service): moved")
        if service == "foreground" {
            #expect(try client.lines().allSatisfy { !$0.contains("falls asleep") })
        }
    }

    @Test("The one for the first unlock says whether anything has waited for that")
    func unlock() throws {
        let supervisor = try SupervisorProcess()
        try supervisor.example("org.example.unlock", ["unlock"]).reports("was started by hand")
    }
}
