import DaemonConfiguration
import NightbellWire
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

    private static let protocolPage = "Sources/Nightbell/Nightbell.docc/Protocol.md"

    @Test("The protocol's page has the limits of packets as they are checked")
    func packetLimits() throws {
        let page = try Repository.text(Self.protocolPage)
        for (limit, value) in [
            ("bytes of `Hello`", PacketScan.maximumHelloBytes),
            (
                "bytes of `ScheduleNotification` and `CancelNotifications`",
                PacketScan.maximumNotificationBytes
            ),
            ("bytes of any other message", PacketScan.maximumBodyBytes),
            ("sockets of a `HandOver`", PacketScan.maximumSockets),
            ("bytes of all profiles of a `HandOver` together", PacketScan.maximumProfileBytes),
            ("fields of a packet, as counted below", PacketScan.maximumFields),
        ] {
            let digits =
                value < 1_000 ? "\(value)" : "\(value / 1_000),\(String(value % 1_000 + 1_000).dropFirst())"
            #expect(page.contains("| \(limit) | \(digits) |\n"), "\(limit): \(digits)")
        }
    }

    @Test("The protocol's page has every kind of event, and no other")
    func eventKinds() throws {
        let source = try Repository.text(
            "Sources/NightbellSupervisor/Administration/Supervisor+Traces.swift")
        let start = try #require(source.firstRange(of: "var kind: String {")).upperBound
        let end = try #require(source[start...].firstRange(of: "var detail")).lowerBound
        let kinds = source[start..<end].matches(of: /case [^:]+: "([^"]+)"/).map { String($0.output.1) }
        #expect(kinds.count > 20)
        let page = try Repository.text(Self.protocolPage)
        let table = try #require(page.firstRange(of: "| kind | event | detail |")).upperBound
        let documented = page[table...].split(separator: "\n").prefix { $0.hasPrefix("|") }
            .filter { $0.hasPrefix("| `") }
            .flatMap { $0.split(separator: "|")[0].matches(of: /`([^`]+)`/).map { String($0.output.1) } }
        // Those two are about no client's life.
        #expect(documented.sorted() == (kinds + ["machine", "paged-out"]).sorted())
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
