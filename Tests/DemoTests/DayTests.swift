import EdgeTestSupport
import FoundationEssentials
import Testing

/// `scripts/demo --modes` without its build: a newsreader and a phone live through a day.
@Suite("A day of the demo", .timeLimit(.minutes(40)))
struct DayTests {
    private struct Figures: Decodable {
        var events: Int
        var missed: Int
        var wakes: [String: Int]
        var asleep: [String: Double]
    }

    @Test("All that has to happen does, and both programs sleep for most of it")
    func day() throws {
        let (output, code) = try run(
            "--programs", try programDirectory(), "--seconds", "40", "--json", "--no-open")
        let line = try #require(output.split(separator: "\n").last { $0.hasPrefix("{") }, "\(output)")
        let figures = try JSONDecoder().decode(Figures.self, from: Data(line.utf8))
        #expect(code == 0 && figures.missed == 0 && figures.events == 9, "\(output)")
        #expect(figures.wakes["phone"] ?? 0 >= 4 && figures.wakes["newsreader"] ?? 0 >= 4, "\(figures)")
        // On a machine with other work a wake takes longer.
        #expect(figures.asleep.values.allSatisfy { $0 > 0.5 }, "\(figures)")
    }

    @Test("It explains itself, and refuses a day that is too short")
    func help() throws {
        let (help, code) = try run("--help")
        #expect(code == 0 && help.contains("scripts/demo --modes"))
        #expect(try run("--programs", "/nowhere", "--seconds", "5").code == 2)
    }

    /// All that it prints, also for people.
    private func run(_ arguments: String...) throws -> (output: String, code: CInt) {
        let repository = #filePath.split(separator: "/").dropLast(3).joined(separator: "/")
        let child = try Child(
            "/bin/sh",
            ["-c", "exec /usr/bin/python3 \"$0\" \"$@\" 2>&1", "/\(repository)/scripts/day"] + arguments,
            environment: ["PATH": "/usr/sbin:/usr/bin:/sbin:/bin"])
        var output = ""
        while let piece = try child.hear(within: 200_000), !piece.isEmpty { output += piece }
        child.reap()
        return (output, child.status >> 8)
    }
}
