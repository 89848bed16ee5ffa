import EdgeTestSupport
import Foundation
import Testing

@Suite("nightbell validate")
struct ValidateTests {
    @Test("What cannot be seen in one file is told as well: namesakes, and bytes that no text has")
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

    @Test("Good manifests are named, mistakes are told one a line, each with its exit code")
    func validates() throws {
        let directory = try TemporaryDirectory()
        let good = directory.file("good.yaml")
        let bad = directory.file("bad.yaml")
        try Data("identifier: a.b\ncommand: [/bin/true]\n".utf8).write(to: URL(fileURLWithPath: good))
        try Data("identifier: a b\ncommand: true\nuser: no-such-user\n".utf8).write(
            to: URL(fileURLWithPath: bad))
        let fine = try Program.run("nightbell", ["validate", good])
        #expect(fine.code == 0)
        #expect(fine.output == "\(good):1: a.b is declared well\n")

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
