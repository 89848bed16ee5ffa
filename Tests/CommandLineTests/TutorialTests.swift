import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import Testing

/// The steps of the tutorial: the commands, and their promised output.
struct Tutorial {
    struct Step {
        var commands: String
        var promise: [String] = []

        /// Whether it may be repeated until it prints the promised output, as by a fast reader.
        var onlyLooks: Bool {
            commands.split(separator: "\n").allSatisfy { line in
                ["nightbell status", "nightbell list", "cat ", "exec 3<>"].contains { line.hasPrefix($0) }
            }
        }
    }

    private(set) var steps: [Step] = []
    private(set) var programs: [String] = []

    init(_ page: String) {
        var language: Substring?
        var block: [String] = []
        for line in page.split(separator: "\n", omittingEmptySubsequences: false) {
            guard line.hasPrefix("```") else {
                if language != nil { block.append(String(line)) }
                continue
            }
            switch language {
            case nil:
                language = line.dropFirst(3)
                continue
            case "sh": steps.append(Step(commands: block.joined(separator: "\n")))
            case "": steps[steps.count - 1].promise = block
            default: programs.append(block.joined(separator: "\n"))
            }
            (language, block) = (nil, [])
        }
    }

    /// Whether lines match the promised ones: the number of spaces may differ, and ‹ › stands for any text.
    static func isKept(_ promise: [String], by text: String) -> Bool {
        var lines = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
        while lines.last == "" { lines.removeLast() }
        guard lines.count == promise.count else { return false }
        return zip(promise, lines).allSatisfy { promised, line in
            let pattern = promised.split(whereSeparator: \.isWhitespace).joined(separator: " ")
                .split(separator: "‹", omittingEmptySubsequences: false).enumerated()
                .map { index, part in
                    guard index > 0, let end = part.firstIndex(of: "›") else {
                        return NSRegularExpression.escapedPattern(for: String(part))
                    }
                    return ".+?"
                        + NSRegularExpression.escapedPattern(for: String(part[part.index(after: end)...]))
                }
                .joined()
            let plain = line.split(whereSeparator: \.isWhitespace).joined(separator: " ")
            return plain.range(of: "^\(pattern)$", options: .regularExpression) != nil
        }
    }
}

@Suite("The tutorial")
struct TutorialTests {
    private func page() throws -> String {
        try repositoryText("Sources/Nightbell/Nightbell.docc/Tutorial.md")
    }

    private func repositoryText(_ path: String) throws -> String {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        return try String(contentsOf: root.appendingPathComponent(path), encoding: .utf8)
    }

    @Test("Every command prints the output on the page")
    func walk() throws {
        let port = try freePort()
        let tutorial = Tutorial(try page().replacing("7010", with: "\(port)"))
        #expect(tutorial.steps.count > 12)
        let directory = try TemporaryDirectory()
        let shell = try TerminalShell(environment: [
            "TERM": "xterm", "NO_COLOR": "1", "TMPDIR": directory.path,
            // Memory pressure on this machine must not affect a test.
            "NIGHTBELL_MEMORY_PRESSURE_FILE": "",
        ])
        for step in tutorial.steps where !step.commands.hasPrefix("swift build") {
            var printed = try shell.run(step.commands)
            if step.onlyLooks {
                _ = try eventually(within: 60_000) {
                    if Tutorial.isKept(step.promise, by: printed) { return true }
                    printed = try shell.run(step.commands)
                    return false
                }
            }
            try #require(
                Tutorial.isKept(step.promise, by: printed),
                "\(step.commands)\nprints\n\(printed)\nand not\n\(step.promise.joined(separator: "\n"))")
            // Background commands are waited for here: a reader is not that fast.
            if step.commands.contains("nightbelld ") {
                #expect(try looks(shell, "nightbell status --json", until: "\"keeper_process_id\""))
            }
            if step.commands.contains("nightbell watch") {
                #expect(try looks(shell, "nightbell status --json", until: "\"connections\":3"))
            }
        }
        #expect(try looks(shell, "nightbell status 2>&1", until: "No supervisor can be reached"))
    }

    private func looks(_ shell: TerminalShell, _ command: String, until part: String) throws -> Bool {
        try eventually(within: 60_000) { try shell.run(command).contains(part) }
    }

    @Test("The program on the page is the tested one")
    func program() throws {
        let shown = Tutorial(try page()).programs
        #expect(shown == [try repositoryText("Examples/Parrot/main.swift").trimmingCharacters(in: .newlines)])
    }

    @Test("README and GettingStarted lead to it")
    func links() throws {
        #expect(try repositoryText("README.md").contains("(Sources/Nightbell/Nightbell.docc/Tutorial.md)"))
        #expect(
            try repositoryText("Sources/Nightbell/Nightbell.docc/GettingStarted.md").contains(
                "<doc:Tutorial>"))
        #expect(
            try repositoryText("Sources/Nightbell/Nightbell.docc/Nightbell.md").contains("<doc:Tutorial>"))
    }

    @Test("Other output is noticed")
    func matching() {
        let promise = ["up ‹1.2s›, 3  clients", "‹x›"]
        #expect(Tutorial.isKept(promise, by: "up   7ms, 3 clients\nany\n"))
        for text in [
            "up 7ms, 4 clients\nany\n", "up 7ms, 3 clients\n", "up , 3 clients\nany",
            "up 7ms, 3 clients, 1\nany",
            "up 7ms, 3 clients\nany\nmore\n",
        ] {
            #expect(!Tutorial.isKept(promise, by: text), "\(text)")
        }
    }
}
