import DaemonConfiguration
import Testing

@Suite("What is documented is what is built")
struct DocumentationTests {
    private static let example = "scripts/nightbelld.yaml"

    @Test("The example configuration is the defaults, and names every key")
    func exampleIsDefaults() throws {
        let path = Repository.path(Self.example)
        let loaded = try Loader.load(flags: Flags(file: path), environment: [:], mode: .system)
        #expect(loaded.settings == DaemonSettings(mode: .system))
        for key in Keys.all {
            #expect(
                loaded.origins[key.name]?.hasPrefix(path) == true,
                "\(key.name) is missing from \(Self.example)")
        }
    }

    @Test("Every key in the example is explained as in the code", arguments: Keys.all)
    func exampleExplains(key: Key) throws {
        #expect(try Repository.text(Self.example).contains("# \(key.summary)"))
    }

    @Test("The README's table has every key with its default", arguments: Keys.all)
    func readmeTable(key: Key) throws {
        let value = key.value(in: DaemonSettings(mode: .system))
        #expect(try Repository.text("README.md").contains("| `\(key.name)` | `\(value)` | \(key.summary) |"))
    }

    @Test("The README's first screen has the two commands and a client")
    func firstScreen() throws {
        let lines = try Repository.text("README.md").split(separator: "\n", omittingEmptySubsequences: false)
        let screen = lines.prefix(60).joined(separator: "\n")
        for part in ["scripts/demo", "scripts/test", "import Nightbell", "handOver"] {
            #expect(screen.contains(part), "\(part) is not on the first screen")
        }
    }

    @Test("The README's client compiles")
    func readmeClient() throws {
        let readme = try Repository.text("README.md")
        let start = try #require(readme.firstRange(of: "```swift\nimport Glibc\n")).upperBound
        let end = try #require(readme[start...].firstRange(of: "```")).lowerBound
        let compiled = try Repository.text("Tests/PackageTests/ReadmeClient.swift").split(separator: "\n")
            .map { $0.trimmingPrefix(while: \.isWhitespace) }
        let lines = readme[start..<end].split(separator: "\n").map {
            $0.trimmingPrefix(while: \.isWhitespace)
        }
        #expect((10...15).contains(lines.count))
        for line in lines {
            #expect(compiled.contains(line), "not in Tests/PackageTests/ReadmeClient.swift: \(line)")
        }
    }

    @Test("Every script can be executed")
    func scripts() throws {
        for name in [
            "scripts/test", "scripts/simulate", "scripts/bench-core", "scripts/fuzz", "scripts/install",
            "scripts/servers", ".ci/run",
        ] {
            #expect(try Repository.text(name).hasPrefix("#!/usr/bin/env bash\n"), "\(name)")
            #expect(Repository.isExecutable(name), "\(name)")
        }
    }
}
