import DaemonConfiguration
import Testing

@Suite("The documentation matches the code")
struct DocumentationTests {
    private static let example = "scripts/nightbelld.yaml"

    /// Uncomments keys: only comments for readers have a space behind their mark.
    private static func uncommented(_ text: String) -> String {
        text.split(separator: "\n", omittingEmptySubsequences: false).map { line in
            let rest = line.drop { $0 == " " }
            guard rest.first == "#", rest.dropFirst().first?.isLetter == true else { return String(line) }
            return String(line.prefix { $0 == " " } + rest.dropFirst())
        }.joined(separator: "\n")
    }

    @Test("The example configuration names every key with its default")
    func exampleIsDefaults() throws {
        let path = "/tmp/nightbell-example-\(UInt64.random(in: 0 ... .max)).yaml"
        try Repository.write(Self.uncommented(try Repository.text(Self.example)), to: path)
        defer { Repository.remove(path) }
        let loaded = try Loader.load(flags: Flags(file: path), environment: [:], mode: .system)
        #expect(loaded.settings == DaemonSettings(mode: .system))
        for key in Keys.all {
            #expect(
                loaded.origins[key.name]?.hasPrefix(path) == true,
                "\(key.name) is missing from \(Self.example)")
        }
    }

    @Test("As installed it sets nothing, so that the defaults of a later version apply")
    func exampleSetsNothing() throws {
        let path = Repository.path(Self.example)
        let loaded = try Loader.load(flags: Flags(file: path), environment: [:], mode: .system)
        #expect(loaded.file == path)
        for key in Keys.all {
            #expect(loaded.origins[key.name] == "defaults", "\(key.name) is set in \(Self.example)")
        }
    }

    @Test("Every key in the example is explained as in the code", arguments: Keys.all)
    func exampleExplains(key: Key) throws {
        #expect(try Repository.text(Self.example).contains("# \(key.summary)"))
    }

    @Test("The page of the configuration has every key with its default", arguments: Keys.all)
    func configurationTable(key: Key) throws {
        let value = key.value(in: DaemonSettings(mode: .system))
        let page = try Repository.text(
            "Sources/NightbellSupervisor/NightbellSupervisor.docc/Configuration.md")
        #expect(page.contains("| `\(key.name)` | `\(value)` | \(key.summary) |"))
    }

    @Test("Each step of a wake and a recovery is in the file, and the functions, that the page names")
    func stepsOfAWake() throws {
        let page = try Repository.text(
            "Sources/NightbellSupervisor/NightbellSupervisor.docc/FollowingAWake.md")
        let rows = page.split(separator: "\n").filter { $0.hasPrefix("| ") && $0.contains(".swift`") }
        #expect(rows.count > 20)
        for row in rows {
            let cells = row.split(separator: "|").map {
                $0.matches(of: /`([^`]+)`/).map { String($0.output.1) }
            }
            let text = try Repository.text("Sources/\(cells[1][0])")
            for name in cells.count > 2 ? cells[2] : [] {
                #expect(
                    text.contains(name == "init" ? "init(" : "func \(name)("), "\(name) in \(cells[1][0])")
            }
        }
    }

    @Test("The README has at most 150 lines, and its links lead to files")
    func readme() throws {
        let readme = try Repository.text("README.md")
        #expect(readme.split(separator: "\n", omittingEmptySubsequences: false).count <= 151)
        for link in readme.matches(of: /\]\(([A-Za-z][^):]*)\)/) {
            #expect(Repository.exists(String(link.output.1)), "\(link.output.1) is not there")
        }
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

    @Test("The server on NightbellNIO's page is the built one, with no other module of Nightbell")
    func lineServer() throws {
        let path = "Examples/LineServer/main.swift"
        #expect(try Repository.imports(of: path) == ["Glibc", "NIOCore", "NIOPosix", "NightbellNIO"])
        let page = try Repository.text("Sources/NightbellNIO/NightbellNIO.docc/NightbellNIO.md")
        #expect(page.contains("```swift\n\(try Repository.text(path))```\n"))
    }

    @Test(
        "Programs on pages are compiled like those of other packages", arguments: ["line-server", "parrot"])
    func strangers(name: String) throws {
        let package = try Repository.text("Package.swift")
        let target = try #require(
            package.firstRange(of: "name: \"\(name)\",\n            dependencies")
                ?? package.firstRange(of: "name: \"\(name)\", dependencies"))
        let end = try #require(package[target.upperBound...].firstRange(of: "swiftSettings")).lowerBound
        #expect(package[target.upperBound..<end].contains("packageAccess: false"))
    }

    @Test("Every script can be executed")
    func scripts() throws {
        for name in [
            "scripts/test", "scripts/simulate", "scripts/bench-core", "scripts/fuzz", "scripts/install",
            "scripts/uninstall", "scripts/servers", "scripts/build-phone", "scripts/check-embedding",
            ".ci/run",
        ] {
            #expect(try Repository.text(name).hasPrefix("#!/usr/bin/env bash\n"), "\(name)")
            #expect(Repository.isExecutable(name), "\(name)")
        }
    }
}
