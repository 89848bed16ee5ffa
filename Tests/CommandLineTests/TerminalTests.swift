import EdgeTestSupport
import Foundation
import Glibc
import ProgramTestSupport
import Testing

@Suite("The command line on a terminal", .serialized)
struct TerminalTests {
    private func shell(_ stage: Fixture, _ more: [String: String] = [:]) throws -> TerminalShell {
        var environment = ["NIGHTBELL_SOCKET": stage.socket, "TERM": "xterm"]
        environment.merge(more) { $1 }
        return try TerminalShell(environment: environment)
    }

    @Test("Tables fit 80 columns, with colours unless they are turned off")
    func fits() throws {
        let stage = try Fixture()
        let scripted = try stage.suspended("org.example.a.client.with.a.long.name")
        let plain = try shell(stage, ["NO_COLOR": "1"])
        for command in ["list", "status", "show org.example.a.client.with.a.long.name", "doctor"] {
            let lines = try plain.run("nightbell \(command)").split(separator: "\n")
            #expect(!lines.isEmpty)
            let long = lines.filter { line in
                // Paths and commands to be copied are not broken.
                line.count > 80 && (command != "doctor" || line.split(separator: " ").count > 2)
            }
            #expect(long.isEmpty, "\(command): \(long)")
            #expect(!lines.joined().contains("\u{1B}"))
        }
        #expect(try plain.run("nightbell list").contains("suspended"))
        let painted = try shell(stage)
        #expect(try painted.run("nightbell list").contains("\u{1B}[36msuspended\u{1B}[0m"))
        #expect(try !painted.run("nightbell list | cat").contains("\u{1B}"))
        #expect(try !shell(stage, ["TERM": "dumb"]).run("nightbell list").contains("\u{1B}"))
        withExtendedLifetime(scripted) {}
    }

    @Test("A watched list is repainted in place, and ends with the supervisor")
    func listWatched() throws {
        let stage = try Fixture()
        let shell = try shell(stage, ["NO_COLOR": "1"])
        try shell.begin("nightbell list --watch; printf '\\001'")
        _ = try shell.read(until: "\u{1B}[2J\u{1B}[H0 clients, 0 asleep")
        let scripted = try stage.suspended("org.example.watched")
        // The cursor goes to the top left; longer earlier lines are cleared.
        let shown = try shell.read(until: "1 client, 1 asleep")
        #expect(shown.contains("\u{1B}[J\u{1B}[H"))
        #expect(try shell.read(until: "\u{1B}[J").contains("org.example.watched"))
        stage.daemon.send(signal: SIGTERM)
        #expect(try shell.read(until: "\u{1}").contains("nightbell: "))
        withExtendedLifetime(scripted) {}
    }

    @Test("For programs, a list that is watched is an array a line")
    func listWatchedAsJSON() throws {
        let stage = try Fixture()
        let lists = try Program("nightbell", ["list", "--watch", "--json", "--socket", stage.socket])
        #expect(eventually(within: 30_000) { lists.output.split(separator: "\n").count >= 2 })
        let scripted = try stage.client("org.example.anna")
        try lists.wrote("\"identifier\":\"org.example.anna\"")
        for line in lists.output.split(separator: "\n").dropLast() {
            #expect(try JSONSerialization.jsonObject(with: Data(line.utf8)) is [Any])
        }
        stage.daemon.send(signal: SIGTERM)
        #expect(try lists.outcome().code == 3)
        withExtendedLifetime(scripted) {}
    }

    @Test("Watch prints the names of sockets, and how long a client was awake")
    func watchNames() throws {
        let stage = try Fixture()
        let events = try Program("nightbell", ["watch", "--socket", stage.socket])
        #expect(
            try eventually(within: 30_000) {
                try stage.nightbell("status", "--json").output.contains("\"connections\":2")
            })
        let scripted = try stage.client("org.example.fay")
        try events.wrote("  adopted  ")
        let adopted = try #require(events.output.split(separator: "\n").first { $0.contains("  adopted  ") })
        #expect(adopted.contains(/adopted  inactive  [a-z]+ \([0-9a-f]+\)/), "\(adopted)")
        try scripted.say("background")
        try stage.reaches("suspended", "org.example.fay")
        _ = try stage.nightbell("wake", "org.example.fay")
        try events.wrote("suspended, was awake for ")
        #expect(events.output.contains(/suspended, was awake for [0-9]+ ms\n/))
        withExtendedLifetime(scripted) {}
    }
}
