import Testing

@Suite("The ban list of prose")
struct BanListTests {
    static let roots = ["Sources", "Tests", "Examples", "Benchmarks", "Fuzz", "docs", "scripts"]

    /// Every file with prose below a directory.
    private static func files(in root: String) throws -> [String] {
        let named = try [".swift", ".c", ".h", ".proto", ".md", ".yaml", ".service"].flatMap {
            try Repository.files(in: root, suffix: $0)
        }
        let scripts = try root == "scripts" ? Repository.executables(in: root) : []
        return Set(named + scripts).filter { !$0.hasSuffix(".pb.swift") && !$0.contains("/.build") }.sorted()
    }

    private static func report(_ files: [String]) throws -> [String] {
        try files.flatMap { file in
            BanList.findings(in: Prose(try Repository.text(file), path: file))
                .map { "\(file):\($0.line): \($0.word)" }
        }
    }

    @Test("Comments and pages keep to it", arguments: roots)
    func tree(root: String) throws {
        let files = try Self.files(in: root)
        #expect(!files.isEmpty)
        let findings = try Self.report(files)
        #expect(findings.isEmpty, "\n\(findings.joined(separator: "\n"))")
    }

    @Test("So do the README, the list of changes, the package description and the script of the checks")
    func topLevel() throws {
        let findings = try Self.report(["README.md", "CHANGELOG.md", "Package.swift", ".ci/run"])
        #expect(findings.isEmpty, "\n\(findings.joined(separator: "\n"))")
    }

    @Test(
        "Functions have names without these words",
        arguments: ["Sources", "Tests", "Examples", "Benchmarks", "Fuzz"])
    func names(root: String) throws {
        let files = try Self.files(in: root).filter { $0.hasSuffix(".swift") }
        let banned = /\bfunc ((?:who|what|whoever)[A-Z]\w*|\w*(?:[Ss]ome|[Nn]o|[Ee]very|[Aa]ny)body\w*)/
        let findings = try files.flatMap { file in
            try Repository.text(file).matches(of: banned).map { "\(file): \($0.1)" }
        }
        #expect(!files.isEmpty && findings.isEmpty, "\n\(findings.joined(separator: "\n"))")
    }

    private func findings(_ text: String, _ path: String = "A.swift") -> [BanList.Finding] {
        BanList.findings(in: Prose(text, path: path))
    }

    @Test("Each banned word is found in each kind of comment", arguments: BanList.words.sorted())
    func words(word: String) {
        let found = BanList.Finding(line: 2, word: word)
        #expect(findings("let a = 1\n/// The client \(word) sleeps.") == [found])
        #expect(findings("let a = 1\nlet b = 2  // the client \(word) sleeps") == [found])
        #expect(findings("\n/* a (\(word)'s) */ let a = 1") == [found])
        #expect(findings("int a;\n// a: \(word)\n", "a.c") == [found])
        #expect(findings("syntax = \"proto3\";\nbool a = 1;  // \(word)", "a.proto") == [found])
        #expect(findings("#!/bin/sh\necho a  # \(word)\n", "scripts/a") == [found])
        #expect(findings("# Title\n| a | \(word) |\n", "a.md") == [found])
        #expect(findings("\n## A \(word) heading\n", "a.md") == [found])
        let capital = word.prefix(1).uppercased() + word.dropFirst()
        #expect(findings("// \(capital).") == [BanList.Finding(line: 1, word: capital)])
    }

    @Test("Longer words with a banned one inside are others")
    func longerWords() {
        #expect(findings("// the whole of it, whosoever").isEmpty)
    }

    @Test(
        "Code and string literals are not looked at",
        arguments: [
            "let who = nobody()",
            "let a = \"who // whom /* whose\"",
            "let a = \"\\(b ?? \"// who\") // whom\"",
            "let a = #\"who \" // whom\"#",
            "let a = \"\"\"\n    // who\n    \\(b) \"whom\" // whose\n    \"\"\"",
            "let a = \"\\\\\"  // the end of a literal with a backslash",
            "let a = /\\]\\(([A-Z\"]*)\\)/\nlet b = \"// who\"",
            "// The property `who` and ``Somebody/whom`` are code, and so is `a\n// who b`.",
            "/// Like this:\n/// ```\n/// who(What)\n/// ```\n/// and so on",
        ])
    func code(text: String) {
        #expect(findings(text).isEmpty)
    }

    @Test("Code of C, of scripts and of pages is not looked at")
    func otherCode() {
        #expect(findings("char a = '\"'; char *b = \"// who\";\nint who;", "a.c").isEmpty)
        #expect(findings("echo \"# who\" '# whom' ${#whose}\nwho=1\n", "scripts/a").isEmpty)
        #expect(findings("a\n\n    who > users\n\nb\n```sh\nwho\n```\n", "a.md").isEmpty)
    }

    @Test("A comment behind a literal is found")
    func behindLiterals() {
        let literals = [
            "\"a\"", "\"\"", "#\"\\\"#", "\"\\(b(\"c\"))\"", "\"\\\"\"", "\"\"\"a\"\"\"", "/\"/\n",
        ]
        for literal in literals {
            let line = literal.hasSuffix("\n") ? 2 : 1
            let found = BanList.Finding(line: line, word: "who")
            #expect(findings("let a = \(literal)  // who") == [found], "\(literal)")
        }
    }

    @Test(
        "A sentence that begins with a noun clause is found",
        arguments: [
            "// What sleeps is frozen.",
            "/// The core decides. What it\n/// wants is done.",
            "// Two things: What sleeps, and the rest.",
            "// - What sleeps",
            "/// - Parameter a: What sleeps.",
            "// **What** sleeps is frozen. Why?",
        ])
    func nounClauses(text: String) {
        #expect(findings(text).map(\.word) == ["What"])
    }

    @Test(
        "Questions, headings and clauses inside a sentence are allowed",
        arguments: [
            "// What sleeps?",
            "/// The core asks: What\n/// sleeps now? It is frozen.",
            "// It says what sleeps.",
            "// MARK: What sleeps",
            "// Whatever sleeps is frozen.",
            "// The message\n// What is a name.",
        ])
    func noNounClauses(text: String) {
        #expect(findings(text).isEmpty)
        #expect(findings("## What sleeps\n", "a.md").isEmpty)
    }

    @Test("Another comment begins another sentence")
    func newComments() {
        #expect(findings("// the client\n\n// What sleeps").map(\.line) == [3])
        #expect(findings("let a = 1  // the client\n// What sleeps").map(\.line) == [2])
        #expect(findings("/// the client\n// What sleeps").map(\.line) == [2])
        #expect(findings("// the client\n//\n// What sleeps").map(\.line) == [3])
    }
}
