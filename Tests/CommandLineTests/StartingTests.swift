import EdgeTestSupport
import Foundation
import LinuxSystem
import ProgramTestSupport
import Testing

@Suite("nightbelld, started with obstacles", .serialized)
struct StartingTests {
    private static let stranger = [
        "--reuid", "4711", "--regid", "4711", "--clear-groups", "--", Program.product("nightbelld"),
    ]

    /// A daemon of this user, stopped as soon as it is ready.
    private func startAndStop(
        _ directory: TemporaryDirectory, home: String, state: String? = nil
    ) throws -> Program.Outcome {
        let manager = try Listener()
        let daemon = try Program(
            "/usr/bin/setpriv", Self.stranger + ["--suspend", "signal"],
            environment: [
                "XDG_RUNTIME_DIR": directory.path, "HOME": home, "NOTIFY_SOCKET": manager.address,
                "XDG_STATE_HOME": state ?? directory.file("state"),
            ])
        defer { try? FileManager.default.removeItem(atPath: directory.file("nightbell")) }
        do {
            try manager.heard("READY=1", within: 10_000)
        } catch {
            return try daemon.outcome()
        }
        daemon.send(signal: SIGTERM)
        return try daemon.outcome()
    }

    @Test(
        "An inaccessible home does not prevent a start; an inaccessible file does",
        .enabled(if: geteuid() == 0, "needs root"))
    func configurationOutOfReach() throws {
        let directory = try TemporaryDirectory()
        chown(directory.path, 4_711, 4_711)
        let home = try TemporaryDirectory()
        let configuration = home.file(".config/nightbell")
        defer { try? FileManager.default.removeItem(atPath: home.file(".config")) }
        try FileManager.default.createDirectory(atPath: configuration, withIntermediateDirectories: true)
        try "logLevel: warning\n".write(
            toFile: configuration + "/nightbelld.yaml", atomically: false, encoding: .utf8)

        let closedHome = try startAndStop(directory, home: home.path)
        #expect(closedHome.code == 0, "\(closedHome)")
        #expect(closedHome.errors.contains("warning \(configuration)/nightbelld.yaml is not looked for"))

        // If it is named, it must be readable.
        let named = try Program.run(
            "/usr/bin/setpriv", Self.stranger + ["--config", configuration + "/nightbelld.yaml"],
            environment: ["XDG_RUNTIME_DIR": directory.path])
        #expect(named.code == 78)
        #expect(named.errors.contains("Permission denied"), "\(named)")

        // If it is visible, it must be readable.
        chmod(home.path, 0o755)
        chmod(configuration + "/nightbelld.yaml", 0o600)
        let closedFile = try startAndStop(directory, home: home.path)
        #expect(closedFile.code == 78)
        #expect(closedFile.errors.contains("Permission denied"))

        chmod(configuration + "/nightbelld.yaml", 0o644)
        let open = try startAndStop(directory, home: home.path)
        #expect(open.code == 0 && open.errors.isEmpty, "\(open)")

        // State that cannot be written is no reason not to serve, but a critical log message.
        let closedState = try startAndStop(directory, home: home.path, state: home.file("state"))
        #expect(closedState.code == 0)
        #expect(closedState.errors.contains("error the table of identifiers cannot be read: mkdir"))
        #expect(
            closedState.errors.contains("critical the owners of identifiers are not known for certain"),
            "\(closedState)")
    }

    @Test("A lack of permission ends it with 77", .enabled(if: geteuid() == 0, "needs root"))
    func notPermitted() throws {
        let directory = try TemporaryDirectory()
        chmod(directory.path, 0o755)
        let outcome = try Program.run(
            "/usr/bin/setpriv", Self.stranger + ["--system", "--runtime-directory", directory.path])
        #expect(outcome.code == 77)
        #expect(outcome.errors.contains("Permission denied"), "\(outcome)")
        // It must not freeze a client either.
        chown(directory.path, 4_711, 4_711)
        let freezer = try Program.run(
            "/usr/bin/setpriv",
            Self.stranger + ["--system", "--suspend", "cgroup", "--runtime-directory", directory.path])
        #expect(freezer.code == 77, "\(freezer)")
    }

    @Test("Too few descriptors end it with 71 and advice, and no cgroup is left", arguments: 5...18)
    func fewDescriptors(limit: Int) throws {
        let directory = try TemporaryDirectory()
        let daemon = Program.product("nightbelld")
        let outcome = try Program.run(
            "/bin/bash",
            [
                "--norc", "-c",
                """
                for entry in /proc/self/fd/*; do
                    number=${entry##*/}
                    if ((number > 2)); then eval "exec $number>&-"; fi
                done
                ulimit -n \(limit); exec '\(daemon)' --system --runtime-directory '\(directory.path)'
                """,
            ])
        #expect(outcome.code == 71, "\(outcome)")
        #expect(
            outcome.errors.contains("this process may have only \(limit) descriptors: raise the limit"),
            "\(outcome)")
        #expect(cgroupsLeft(by: directory.path) == [])
    }

    /// Its first descriptor must not become its standard error.
    @Test("It works with closed standard descriptors")
    func closedStandardDescriptors() throws {
        let directory = try TemporaryDirectory()
        let manager = try Listener()
        let daemon = try Program(
            "/bin/sh",
            [
                "-c", "exec \"$@\" <&- >&- 2>&-", "sh", Program.product("nightbelld"), "--system",
                "--runtime-directory", directory.path, "--log-level", "trace",
            ], environment: ["NOTIFY_SOCKET": manager.address])
        try manager.heard("READY=1")
        for descriptor in 0...2 {
            #expect(try readLink("/proc/\(daemon.pid)/fd/\(descriptor)") == "/dev/null")
        }
        let socket = directory.file("nightbell.sock")
        let status = try Program.run("nightbell", ["status", "--socket", socket])
        #expect(status.code == 0, "\(status)")
        daemon.send(signal: SIGTERM)
        #expect(try daemon.outcome().code == 0)
    }

    /// The pipe is full after some 64 KiB; later messages are lost without blocking.
    @Test("An unread log blocks nothing")
    func unreadLog() throws {
        let directory = try TemporaryDirectory()
        let manager = try Listener()
        var ends: [CInt] = [-1, -1]
        #expect(pipe(&ends) == 0)
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        defer { for end in ends { close(end) } }
        let daemon = try Program(
            "nightbelld",
            [
                "--system", "--runtime-directory", directory.path, "--log-level", "trace", "--suspend",
                "none",
            ], environment: ["NOTIFY_SOCKET": manager.address], errors: ends[1])
        try manager.heard("READY=1")
        let socket = directory.file("nightbell.sock")
        // A client that goes to the background and comes back: some lines each time.
        let scripted = try Program(
            "nightbell",
            [
                "run", "--socket", socket, "--identifier", "org.example.ivan", "--",
                Program.product("scripted-client"),
            ])
        try scripted.say("hello org.example.ivan voip")
        for round in 1...400 {
            for command in ["background", "foreground", "echo round-\(round)."] { try scripted.say(command) }
            try scripted.wrote("ok round-\(round).")
            try #require(!scripted.output.contains("error "), "\(scripted.output.suffix(200))")
        }
        var waiting: CInt = 0
        #expect(ioctl(ends[0], UInt(FIONREAD), &waiting) == 0)
        #expect(waiting > 57_000, "the pipe is full, or this test shows nothing")
        #expect(try Program.run("nightbell", ["status", "--socket", socket]).code == 0)
        daemon.send(signal: SIGTERM)
        #expect(try daemon.outcome().code == 0)
    }

    @Test(
        "A client of another user that cannot be stopped is logged once, shown so, and served",
        .enabled(if: geteuid() == 0, "needs root"), arguments: ["auto", "signal"])
    func clientOfAnotherUser(method: String) throws {
        let directory = try TemporaryDirectory()
        chown(directory.path, 4_711, 4_711)
        let manager = try Listener()
        let daemon = try Program(
            "/usr/bin/setpriv",
            Self.stranger + ["--suspend", method, "--log-level", "notice", "--set", "wakes.linger=10ms"],
            environment: ["XDG_RUNTIME_DIR": directory.path, "NOTIFY_SOCKET": manager.address])
        defer { try? FileManager.default.removeItem(atPath: directory.file("nightbell")) }
        try manager.heard("READY=1")
        let socket = directory.file("nightbell/nightbell.sock")
        let scripted = try Program(
            "nightbell",
            [
                "run", "--socket", socket, "--identifier", "org.example.root", "--",
                Program.product("scripted-client"),
            ])
        try scripted.say("hello org.example.root voip")
        try scripted.wrote("suspension=none")
        try scripted.say("unix-pair a")
        try scripted.say("handover a voip")
        try scripted.say("auto-read on")
        try scripted.say("background")
        func show() throws -> String {
            try Program.run("nightbell", ["show", "org.example.root", "--socket", socket]).output
        }
        // Its sockets are watched as if it slept, again and again.
        for round in 1...3 {
            let sleeps = try eventually(within: 30_000) { try show().contains("suspended") }
            try #require(sleeps)
            try scripted.say("write a.peer call-\(round)")
            let isRead = eventually(within: 30_000) {
                scripted.output.count(of: "read a ") == round
            }
            try #require(isRead, "\(scripted.output)")
        }
        let shown = try show()
        #expect(shown.contains("cannot be suspended"), "\(shown)")
        #expect(shown.contains("it runs as uid 0, the supervisor as uid 4711"), "\(shown)")
        #expect(daemon.errors.count(of: "cannot be suspended") == 1, "\(daemon.errors)")
        #expect(!daemon.errors.contains("could not be stopped"), "\(daemon.errors)")
        daemon.send(signal: SIGTERM)
        #expect(try daemon.outcome().code == 0)
    }
}

extension String {
    /// The number of occurrences of this text.
    func count(of part: String) -> Int { components(separatedBy: part).count - 1 }
}
