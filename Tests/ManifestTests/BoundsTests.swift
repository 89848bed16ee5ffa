import EdgeTestSupport
import Glibc
import Launching
import Manifests
import NightbellCore
import Testing

@Suite("YAML that expands beyond the limits", .timeLimit(.minutes(40)))
struct BoundsTests {
    /// As nine lines: each expands to eight of the one before.
    static func bomb(_ line: (_ name: String, _ inner: String) -> String) -> String {
        let names = Array("abcdefghi").map { String($0) }
        let lines = zip(names.dropFirst(), names).map { line($0, "*\($1) ") }
        return "a: &a [x, x, x, x, x, x, x, x]\n" + lines.joined()
    }

    static let bombs = [
        // As values …
        bomb { "\($0): &\($0) [" + Array(repeating: $1, count: 8).joined(separator: ", ") + "]\n" },
        // … as keys, which are hashed …
        bomb { name, inner in
            "\(name): &\(name) {" + (0..<8).map { "[\(inner), \($0)]: x" }.joined(separator: ", ") + "}\n"
        } + "? *i\n: x\n",
        bomb { "\($0): &\($0) { ? [\($1), 1] : x, ? [\($1), 2] : x, ? [\($1), 3] : x }\n" } + "? *i\n: x\n",
        // … in a list of documents …
        "--- &a [x, x, x, x, x, x, x, x]\n"
            + (0..<16).map { _ in "--- &a [*a , *a , *a , *a , *a , *a , *a , *a ]\n" }.joined(),
        // … and without a single alias.
        String(repeating: "[", count: 200_000), String(repeating: "{a: ", count: 100_000),
        String(repeating: "- ", count: 100_000), String(repeating: "? ", count: 100_000),
        "identifier: [" + String(repeating: "x,", count: 400_000) + "]\n",
    ]

    @Test("A long value is cut in the message about it")
    func aLongValueIsCut() throws {
        let value = String(repeating: "x", count: 500_000)
        for text in [
            "command: [a]\nidentifier: \(value)\n", "command: [a]\nidentifier: a\n? \(value)\n: 1\n",
        ] {
            let file = ManifestFile(path: "m.yaml", text: text, accounts: TestAccounts())
            let problem = try #require(file.problems.first)
            #expect("\(problem)".utf8.count < 2_000)
            #expect("\(problem)".contains("xxx…"))
        }
    }

    @Test("It is refused before nodes are made", arguments: bombs.indices)
    func isRefused(index: Int) {
        let excess = YAMLBounds.excess(in: Self.bombs[index])
        // Errors of the parser are reported by the reader.
        #expect(excess.map { $0.problem.contains("more than") } ?? Self.bombs[index].hasPrefix("[["))
        let file = ManifestFile(path: "m.yaml", text: Self.bombs[index], accounts: TestAccounts())
        #expect(file.manifests.isEmpty && file.problems.count == 1)
        #expect(file.problems.first?.line != nil)
    }

    @Test("An anchor may be used twice")
    func aliases() throws {
        let text = """
            identifier: a
            command: &command [/p, x]
            environment: &environment { A: b, C: d }
            ---
            identifier: b
            command: *command
            environment: *environment
            """
        #expect(YAMLBounds.excess(in: text) == nil)
        let file = ManifestFile(path: "m.yaml", text: text, accounts: TestAccounts())
        #expect(file.manifests.map(\.identifier.description) == ["a", "b"])
        #expect(file.manifests.last?.launch.arguments == ["/p", "x"])
        #expect(
            YAMLBounds.excess(in: String(repeating: "[", count: 30) + String(repeating: "]", count: 30))
                == nil)
    }

    @Test("The reader reports mistakes", arguments: ["a: *b", "&a [*a ]", "a: [", "\u{1}", "", "{"])
    func mistakes(text: String) {
        #expect(YAMLBounds.excess(in: text) == nil)
    }
}
