import EdgeTestSupport
import Foundation
import ProgramTestSupport
import Testing

/// The examples of `Examples/Modes` against a message bus, a network and PipeWire.
@Suite(.serialized, .timeLimit(.minutes(40))) struct ModesTests {
    private struct Figures: Decodable {
        var events: Int
        var wakes: Int
        var relaunches: Int
        var missed: Int
        var late: Int
        var overruns: Int
        var undeclared: Int
    }

    @Test("Every mode: all that has to be told is told in time, and nothing else", .enabled(if: isPossible))
    func everyMode() throws {
        let programs = URL(fileURLWithPath: Program.product("nightbell")).deletingLastPathComponent().path
        let run = try Program(
            Self.script, ["--json", "--short", "--programs", programs],
            environment: ["PATH": "/usr/sbin:/usr/bin:/sbin:/bin"])
        let outcome = try run.outcome(within: 540_000)
        let line = try #require(outcome.output.split(separator: "\n").last, "\(outcome.errors)")
        let modes = try JSONDecoder().decode([String: Figures].self, from: Data(line.utf8))
        let names = [
            "fetch", "push", "transfer", "newsstand", "notification", "network", "sleep", "unlock", "audio",
            "location", "bluetooth", "accessory",
        ]
        for mode in names {
            let figures = try #require(modes[mode], "\(mode) is missing")
            #expect(figures.events > 0, "nothing has happened in \(mode)")
            #expect(
                figures.missed + figures.late + figures.undeclared + figures.overruns == 0,
                "\(mode): \(figures), \(outcome.errors)")
        }
        for mode in ["fetch", "push", "transfer", "newsstand", "notification", "unlock"] {
            #expect(try #require(modes[mode]).relaunches > 0, "\(mode) has launched nothing")
        }
        #expect(try #require(modes["audio"]).wakes == 0)
        #expect(outcome.code == 0, "\(outcome.errors)")
    }

    private struct Disturbed: Decodable {
        struct Figures: Decodable {
            var kills: Int
            var flood: Int
            var limited: Bool
            var sent: Int
            var lost: Int
        }

        var disturbed: Figures
    }

    @Test("Sleepers answer while monitors are killed and a peer floods the bus", .enabled(if: isPossible))
    func disturbed() throws {
        let programs = URL(fileURLWithPath: Program.product("nightbell")).deletingLastPathComponent().path
        let run = try Program(
            Self.script,
            ["--json", "--short", "--mode", "accessory", "--disturb", "3", "--programs", programs],
            environment: ["PATH": "/usr/sbin:/usr/bin:/sbin:/bin"])
        let outcome = try run.outcome(within: 300_000)
        let line = try #require(outcome.output.split(separator: "\n").last, "\(outcome.errors)")
        let figures = try JSONDecoder().decode(Disturbed.self, from: Data(line.utf8)).disturbed
        // There are two, of the machine and of the session.
        #expect(figures.kills >= 3 && figures.lost == 0 && figures.sent > 0, "\(figures)")
        #expect(figures.flood >= 10_000 || figures.limited && figures.flood > 0, "\(figures)")
        #expect(outcome.code == 0, "\(outcome.errors)")
    }

    @Test("scripts/modes explains itself")
    func help() throws {
        let outcome = try Program.run(Self.script, ["--help"], environment: ["PATH": "/usr/bin:/bin"])
        #expect(outcome.code == 0)
        for member in ["events", "wakes", "relaunches", "missed", "late", "overruns", "undeclared"] {
            #expect(outcome.output.contains("\n  \(member) "), "\(member) is not explained")
        }
    }

    private static let script = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().appendingPathComponent("scripts/modes").path

    /// As root, with the packages that `scripts/test` installs.
    private static let isPossible =
        NetworkNamespace.isPossible
        && ["/usr/bin/pipewire", "/usr/bin/wireplumber", "/usr/lib/python3/dist-packages/dbusmock"]
            .allSatisfy(
                FileManager.default.fileExists)
}
