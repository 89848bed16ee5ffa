import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

/// A notification server of a desktop, dunst, on a display without a screen.
@Suite("A desktop", .serialized, .timeLimit(.minutes(40)))
struct DunstTests {
    private let bus: PrivateBus
    private let screen: Helper
    private let number: String
    private let directory: TemporaryDirectory

    init() throws {
        bus = try PrivateBus()
        directory = try TemporaryDirectory()
        var ends: [CInt] = [-1, -1]
        _ = try systemCall("pipe") { pipe(&ends) }
        let input = OwnedDescriptor(adopting: ends[0])
        let output = OwnedDescriptor(adopting: ends[1])
        screen = try Helper(
            [
                "/usr/bin/Xvfb", "-displayfd", "1", "-screen", "0", "800x300x24", "-nolisten", "tcp",
                "-noreset",
            ], output: output.rawValue)
        let readiness = Poll.wait(input.rawValue, for: .readable, timeoutMilliseconds: 60_000)
        try check(readiness.contains(.readable), "Xvfb does not start")
        var text = [UInt8](repeating: 0, count: 16)
        let count = read(input.rawValue, &text, text.count)
        number = String(decoding: text.prefix(max(0, count)).filter { $0 > 32 }, as: UTF8.self)
    }

    private var environment: [String: String] {
        [
            "DISPLAY": ":" + number, "DBUS_SESSION_BUS_ADDRESS": bus.address, "HOME": directory.path,
            "XDG_RUNTIME_DIR": directory.path,
        ]
    }

    private func startServer() throws -> Helper {
        let file = try OwnedDescriptor(
            opening: directory.file("dunstrc"), O_WRONLY | O_CREAT | O_TRUNC, mode: 0o600)
        let text = """
            [global]
            font = DejaVu Sans 14
            markup = full
            width = 500
            [urgency_normal]
            background = "#ffffff"
            foreground = "#000000"
            timeout = 0
            """
        write(file.rawValue, text, text.utf8.count)
        let server = try Helper(
            ["/usr/bin/dunst", "-config", directory.file("dunstrc")], environment: environment)
        try bus.waitForOwner(of: NotificationTests.name)
        return server
    }

    /// The share of the display that is white, in thousandths.
    private func whiteness() throws -> Int {
        let picture = directory.file("display.png")
        try check(
            try run(
                ["/usr/bin/import", "-silent", "-display", ":" + number, "-window", "root", picture],
                environment: environment, isQuiet: true), "there is no picture of the display")
        let mean = try output(
            ["/usr/bin/convert", picture, "-colorspace", "Gray", "-format", "%[fx:int(1000*mean)]", "info:"],
            environment: environment)
        return Int(mean) ?? 0
    }

    private func dunstctl(_ arguments: String...) throws -> String {
        try output(["/usr/bin/dunstctl"] + arguments, environment: environment)
    }

    @Test("A sleeping client's notification is displayed once, also after the worker's death, and wakes it")
    func notification() throws {
        let server = try startServer()
        #expect(try whiteness() == 0)
        let supervisor = try SupervisorProcess(environment: environment)
        let client = try supervisor.example("org.example.tea", ["notification", "1"])
        try client.fallsAsleep()
        let isDisplayed = try eventually(within: 60_000) { try whiteness() > 50 }
        try check(isDisplayed, "nothing is displayed")
        if let kept = getenv("NIGHTBELL_TEST_PICTURE") {
            try run(["/bin/cp", directory.file("display.png"), String(cString: kept)])
        }
        let worker = try #require(try supervisor.processes().dropFirst().first)
        kill(worker, SIGKILL)
        let isBack = try eventually(within: 60_000) {
            let status = try supervisor.status()
            return status.contains("\"restarts\":1,")
                && status.contains("\"name\":\"notifications of uid \(getuid())\",\"available\":true")
        }
        #expect(isBack)
        #expect(try dunstctl("count", "displayed") == "1\n")
        // The monitor of the next worker hears the click.
        let isWoken = try eventually(within: 60_000) {
            if try dunstctl("count", "displayed") == "1\n" { _ = try dunstctl("action", "0") }
            return try client.lines().contains { $0.contains("reminder is activated") }
        }
        try check(isWoken, "it is not activated: \(try client.lines())")
        #expect(try eventually(within: 60_000) { try whiteness() == 0 })
        server.end()
        screen.end()
    }
}
