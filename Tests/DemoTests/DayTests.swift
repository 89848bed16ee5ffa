import EdgeTestSupport
import FoundationEssentials
import Glibc
import ProgramTestSupport
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

    @Test("Its page shows what both programs do", .enabled(if: Browser.isInstalled, "needs chromium"))
    func page() throws {
        let day = try start("--programs", try programDirectory(), "--seconds", "20", "--no-open")
        var output = ""
        while !output.contains("/\n") {
            let piece = try day.hear(within: 200_000) ?? ""
            guard !piece.isEmpty else { throw Failure(text: output) }
            output += piece
        }
        let line = try #require(output.split(separator: "\n").first { $0.hasPrefix("The day is shown at ") })
        let browser = try Browser()
        let page = try browser.open(String(line.dropFirst("The day is shown at ".count)))
        let isDrawn = try page.becomes(
            """
            document.querySelector('#clock').textContent > '00:30' && document.querySelector('#story li')
                && document.querySelector('rect.asleep')
            """)
        #expect(isDrawn, "\(output)")
        // Each lane with its spans.
        let lanes = try page.value(
            """
            [...document.querySelectorAll('.lane')].map((it) => it.querySelector('h2').textContent
                + (it.querySelector('svg rect') ? ' is drawn' : '')).join()
            """)
        #expect(lanes as? String == "phone is drawn,newsreader is drawn")
        #expect(browser.complaints.isEmpty, "\(browser.complaints)")
        kill(day.pid, SIGINT)
        while let piece = try day.hear(within: 200_000), !piece.isEmpty { output += piece }
        day.reap()
        #expect(day.status >> 8 == 130, "\(output)")
    }

    @Test("It explains itself, and refuses a day that is too short")
    func help() throws {
        let (help, code) = try run("--help")
        #expect(code == 0 && help.contains("scripts/demo --modes"))
        #expect(try run("--programs", "/nowhere", "--seconds", "5").code == 2)
    }

    /// Its output has all that it prints, also for people.
    private func start(_ arguments: String...) throws -> Child {
        try start(arguments)
    }

    private func start(_ arguments: [String]) throws -> Child {
        let repository = #filePath.split(separator: "/").dropLast(3).joined(separator: "/")
        return try Child(
            "/bin/sh",
            ["-c", "exec /usr/bin/python3 \"$0\" \"$@\" 2>&1", "/\(repository)/scripts/day"] + arguments,
            environment: ["PATH": "/usr/sbin:/usr/bin:/sbin:/bin"])
    }

    private func run(_ arguments: String...) throws -> (output: String, code: CInt) {
        let child = try start(arguments)
        var output = ""
        while let piece = try child.hear(within: 200_000), !piece.isEmpty { output += piece }
        child.reap()
        return (output, child.status >> 8)
    }
}
