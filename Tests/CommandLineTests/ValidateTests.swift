import EdgeTestSupport
import Foundation
import Glibc
import ProgramTestSupport
import Testing

@Suite("nightbell validate")
struct ValidateTests {
    @Test("Mistakes beyond one file are reported as well: namesakes, and bytes that are not UTF-8")
    func together() throws {
        let directory = try TemporaryDirectory()
        let (one, other, zero) = (directory.file("1"), directory.file("2"), directory.file("3"))
        let text = "identifier: a.b\ncommand: [/bin/true]\n"
        for file in [one, other] { try Data(text.utf8).write(to: URL(fileURLWithPath: file)) }
        try Data((text + "\nuser: \0\n").utf8).write(to: URL(fileURLWithPath: zero))
        let outcome = try Program.run("nightbell", ["validate", one, other])
        #expect(outcome.code == 1)
        #expect(outcome.output == "\(other):1: identifier 'a.b' is declared in \(one):1 already\n")
        #expect(
            try Program.run("nightbell", ["validate", zero]).output == "\(zero):4: contains a zero byte\n")
    }

    @Test("A file that the supervisor would not trust is refused", arguments: [0o664, 0o646] as [mode_t])
    func permissions(mode: mode_t) throws {
        let directory = try TemporaryDirectory()
        let file = directory.file("a.yaml")
        try Data("identifier: a.b\ncommand: [/bin/true]\n".utf8).write(to: URL(fileURLWithPath: file))
        chmod(file, mode)
        let open = try Program.run("nightbell", ["validate", file])
        #expect(open.code == 1 && open.output == "\(file): can be written to by others than its owner\n")
        chmod(file, 0o644)
        #expect(try Program.run("nightbell", ["validate", file]).code == 0)
        guard geteuid() == 0 else { return }
        chown(file, 4_711, 4_711)
        let foreign = try Program.run("nightbell", ["validate", file])
        #expect(foreign.code == 1 && foreign.output.hasPrefix("\(file): belongs to uid 4711"))
    }

    @Test("So is one in a directory that the supervisor would not trust")
    func directory() throws {
        let directory = try TemporaryDirectory()
        let file = directory.file("a.yaml")
        try Data("identifier: a.b\ncommand: [/bin/true]\n".utf8).write(to: URL(fileURLWithPath: file))
        chmod(file, 0o644)
        chmod(directory.path, 0o775)
        let open = try Program.run("nightbell", ["validate", file])
        let problem = "can be written to by others than its owner: none of its manifests is used\n"
        #expect(open.code == 1 && open.output == "\(directory.path): \(problem)", "\(open)")
        chmod(directory.path, 0o755)
        #expect(try Program.run("nightbell", ["validate", file]).code == 0)
    }

    /// 699 bytes that would expand beyond any memory.
    @Test("A huge expansion is refused at once, by the supervisor as well", .timeLimit(.minutes(40)))
    func bomb() throws {
        let directory = try TemporaryDirectory()
        let file = directory.file("bomb.yaml")
        var text = "a: &a { x: y }\n"
        for (name, inner) in zip("bcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxy") {
            text += "\(name): &\(name) { *\(inner) : 1, [*\(inner) ]: 2 }\n"
        }
        text += "? *z\n: x\n"
        try Data(text.utf8).write(to: URL(fileURLWithPath: file))
        chmod(file, 0o644)
        let outcome = try Program.run("nightbell", ["validate", file])
        #expect(outcome.code == 1 && outcome.output.hasPrefix("\(file):"), "\(outcome)")
        let daemon = try Program.run("nightbelld", ["--system", "--config", file])
        #expect(daemon.code == 78 && daemon.errors.hasPrefix("nightbelld: \(file):"), "\(daemon)")
        let stage = try Fixture(["--set", "manifestDirectory=\(directory.path)"])
        #expect(stage.daemon.errors.contains("\(file):"))
    }

    @Test(
        "A misspelled word gets a suggestion",
        arguments: [
            ("shwo", "unknown command 'shwo'; did you mean nightbell show?"),
            ("valdate", "did you mean nightbell validate?"), ("lst", "did you mean nightbell list?"),
            ("frobnicate", "unknown command 'frobnicate'; see nightbell --help"),
        ])
    func commands(word: String, answer: String) throws {
        let outcome = try Program.run("nightbell", [word, "x"])
        #expect(outcome.code == 64 && outcome.output.isEmpty)
        #expect(
            outcome.errors.hasPrefix("nightbell: ") && outcome.errors.hasSuffix(answer + "\n"), "\(outcome)")
    }

    @Test(
        "Known words are no mistakes",
        arguments: [["help", "show"], ["--version"], ["--help"], []])
    func known(arguments: [String]) throws {
        let outcome = try Program.run("nightbell", arguments)
        #expect(outcome.code == 0 && !outcome.output.isEmpty, "\(outcome)")
    }

    @Test("Valid manifests are named, mistakes are reported one a line, each with its exit code")
    func validates() throws {
        let directory = try TemporaryDirectory()
        let good = directory.file("good.yaml")
        let bad = directory.file("bad.yaml")
        try Data("identifier: a.b\ncommand: [/bin/true]\n".utf8).write(to: URL(fileURLWithPath: good))
        try Data("identifier: a b\ncommand: true\nuser: no-such-user\n".utf8).write(
            to: URL(fileURLWithPath: bad))
        let fine = try Program.run("nightbell", ["validate", good])
        #expect(fine.code == 0)
        #expect(fine.output == "\(good):1: a.b is valid\n")

        let wrong = try Program.run("nightbell", ["validate", good, bad])
        #expect(wrong.code == 1)
        let lines = wrong.output.split(separator: "\n")
        #expect(lines.count == 3)
        for (line, start) in zip(lines, ["\(bad):1: identifier ", "\(bad):2: command ", "\(bad):3: user "]) {
            #expect(line.hasPrefix(start))
        }
        let object = try Program.run("nightbell", ["validate", "--json", good, bad])
        #expect(object.code == 1)
        let parsed = try #require(
            try JSONSerialization.jsonObject(with: Data(object.output.utf8)) as? [String: Any])
        #expect(parsed["valid"] as? Bool == false && parsed["clients"] as? [String] == ["a.b"])
        #expect((parsed["problems"] as? [[String: Any]])?.map { $0["line"] as? Int } == [1, 2, 3])
        #expect(try Program.run("nightbell", ["validate"]).code == 64)
        #expect(try Program.run("nightbell", ["validate", directory.file("none")]).code == 1)
    }
}
