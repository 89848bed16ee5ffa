import EdgeTestSupport
import Foundation
import Glibc
import ProgramTestSupport
import Testing

/// Programs of others, with their real traffic, by `scripts/unmodified`.
@Suite("Real programs as they are", .enabled(if: geteuid() == 0, "needs root"), .timeLimit(.minutes(40)))
struct RealProgramTests {
    private struct Outcome: Decodable {
        struct Row: Decodable {
            var name: String
            var installed: Bool
            var sleeps: Int
            var requests: Int
            var reason: String
        }

        var programs: [Row]
        var lost: Int
        var noticed: Int
    }

    private static let script = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .appending(path: "../../scripts/unmodified").standardized.path

    @Test("They sleep, are woken by their traffic, lose nothing and notice nothing")
    func traffic() throws {
        let programs = URL(fileURLWithPath: Program.product("nightbell")).deletingLastPathComponent().path
        let names = ["baresip", "nginx", "redis-server", "threads"]
        let run = try Program(
            Self.script,
            [
                "--json", "--no-install", "--sleeps", "2", "--quiet", "0", "--idle", "0.5", "--programs",
                programs,
            ] + names, environment: ["PATH": "/usr/sbin:/usr/bin:/sbin:/bin"])
        let outcome = try run.outcome(within: 240_000)
        let line = try #require(outcome.output.split(separator: "\n").last, "\(outcome.errors)")
        let figures = try JSONDecoder().decode(Outcome.self, from: Data(line.utf8))
        #expect(figures.programs.map(\.name) == names)
        for row in figures.programs {
            #expect(row.installed && row.sleeps >= 2 && row.requests == 4 && row.reason.isEmpty, "\(row)")
        }
        #expect(figures.lost == 0 && figures.noticed == 0 && outcome.code == 0, "\(outcome)")
    }

    @Test("The script names its programs and explains itself")
    func help() throws {
        let help = try Program.run(Self.script, ["--help"], environment: ["PATH": "/usr/bin:/bin"])
        #expect(help.code == 0 && help.output.contains("--quiet"))
        let list = try Program.run(Self.script, ["--list"], environment: ["PATH": "/usr/bin:/bin"])
        #expect(list.output.split(separator: "\n").count >= 16)
        let unknown = try Program.run(Self.script, ["nothing"], environment: ["PATH": "/usr/bin:/bin"])
        #expect(unknown.code == 64)
    }
}
