import DaemonConfiguration
import NightbellCore
import Testing

@Suite("Combining the configuration")
struct LoaderTests {
    @Test("Without a source, the defaults apply")
    func defaults() throws {
        let loaded = try load()
        #expect(loaded.settings == DaemonSettings(mode: .system))
        #expect(loaded.settings.supervision == Settings())
        #expect(loaded.file == nil)
        #expect(loaded.warnings.isEmpty)
        #expect(loaded.origins.values.allSatisfy { $0 == "defaults" })
    }

    @Test("Flags count before the environment, that before the file, that before the defaults")
    func precedence() throws {
        let file = try TemporaryFile("wakes:\n    limit: 2\n    linger: 2s\n    period: 20s\n")
        let loaded = try load(
            file: file, flags: [("wakes.limit", "4")],
            environment: ["NIGHTBELL_WAKES_LIMIT": "3", "NIGHTBELL_WAKES_LINGER": "3s"])
        #expect(loaded.settings.supervision.wakes.limit == 4)
        #expect(loaded.settings.supervision.wakes.linger == .seconds(3))
        #expect(loaded.settings.supervision.wakes.period == .seconds(20))
        #expect(loaded.settings.supervision.wakes.lingerMaximum == .seconds(60))
        #expect(loaded.origins["wakes.limit"] == "command line")
        #expect(loaded.origins["wakes.linger"] == "environment")
        #expect(loaded.origins["wakes.period"] == "\(file.path):4")
        #expect(loaded.origins["wakes.lingerMaximum"] == "defaults")
    }

    @Test("The last one of a repeated flag counts")
    func lastFlag() throws {
        let loaded = try load(flags: [("wakes.limit", "4"), ("wakes.limit", "5")])
        #expect(loaded.settings.supervision.wakes.limit == 5)
    }

    @Test("Every key reaches the settings from the file, the environment and the flags", arguments: Keys.all)
    func everyKey(key: Key) throws {
        let defaults = DaemonSettings(mode: .system)
        let text = otherValue(for: key)
        let quoted = text.replacing("'", with: "''")
        let ways: [LoadedConfiguration] = [
            try load(file: try TemporaryFile("\(key.name.nested): '\(quoted)'\n")),
            try load(environment: [key.environmentVariable: text]),
            try load(flags: [(key.name, text)]),
        ]
        for loaded in ways {
            #expect(loaded.settings != defaults)
            #expect(key.value(in: loaded.settings) != key.value(in: defaults))
            // These follow the runtime directory.
            let following: Set = ["socket", "stateDirectory", "manifestDirectory"]
            for other in Keys.all where other.name != key.name && !following.contains(other.name) {
                #expect(other.value(in: loaded.settings) == other.value(in: defaults))
            }
        }
    }

    @Test("Every key refuses an invalid value and names itself", arguments: Keys.all)
    func nonsense(key: Key) {
        let error = #expect(throws: ConfigurationError.self) { try load(flags: [(key.name, "\u{1F514}")]) }
        #expect(error?.key == key.name)
        #expect(error?.source == .flags)
        #expect(error?.problem.contains(key.expected) == true)
    }

    @Test("There is a key for every number of the settings")
    func complete() {
        var names: [String] = []
        let settings = Mirror(reflecting: Settings())
        for section in settings.children {
            for setting in Mirror(reflecting: section.value).children {
                names.append("\(section.label ?? "?").\(setting.label ?? "?")")
            }
        }
        #expect(names.count > 20)
        for name in names {
            #expect(Keys.named(name) != nil, "\(name) is no configuration key")
        }
        #expect(Set(Keys.all.map(\.name)).count == Keys.all.count)
        #expect(Set(Keys.all.map(\.environmentVariable)).count == Keys.all.count)
    }

    @Test("An unknown key in the file is refused with its line")
    func unknownKey() throws {
        let file = try TemporaryFile("# a comment\n\nwakes:\n    limit: 3\n    limits: 4\n")
        let error = #expect(throws: ConfigurationError.self) { try load(file: file) }
        #expect(error?.source == .file(path: file.path, line: 5))
        #expect(error?.key == "wakes.limits")
    }

    @Test(
        "An error in a file is reported with its line",
        arguments: [
            ("wakes:\n    limit: many\n", 2), ("wakes:\n    limit: [1, 2]\n", 2),
            ("wakes:\n    limit: 1\n    limit: 2\n", 1), ("wakes: 3\n", 1), ("just text\n", 1),
            ("wakes:\n  limit: {a: b}\n", 2), ("- wakes\n", 1), ("1: 2\n", 1), ("wakes: [\n", nil),
            ("\"", nil),
        ] as [(String, Int?)])
    func wrongFile(text: String, line: Int?) throws {
        let file = try TemporaryFile(text)
        let error = #expect(throws: ConfigurationError.self) { try load(file: file) }
        guard case .file(let path, let found)? = error?.source else {
            Issue.record("blamed \(String(describing: error))")
            return
        }
        #expect(path == file.path)
        if let line { #expect(found == line || text.contains("limit: 2"), "\(String(describing: error))") }
    }

    @Test(
        "A file of comments, an empty one and an empty section set nothing",
        arguments: ["", "# c\n", "wakes:\n"])
    func emptyFile(text: String) throws {
        let loaded = try load(file: try TemporaryFile(text))
        #expect(loaded.settings == DaemonSettings(mode: .system))
        #expect(loaded.file != nil)
    }

    @Test(
        "A misspelled key is reported with a suggestion",
        arguments: [
            ("keepAlive.minimumTimout", "keepAlive.minimumTimeout"), ("wakes.limits", "wakes.limit"),
            ("keepalive.lead", "keepAlive.lead"), ("log_level", "logLevel"),
            ("minimumTimeout", "keepAlive.minimumTimeout"),
            ("scoket", "socket"),
        ])
    func nearly(key: String, meant: String) {
        let error = #expect(throws: ConfigurationError.self) { try load(flags: [(key, "1s")]) }
        #expect(error?.problem == "is not a key; did you mean \(meant)?")
    }

    @Test("A file that is named must exist and be text")
    func unreadable() throws {
        #expect(throws: ConfigurationError.self) {
            try Loader.load(
                flags: Flags(file: "/nonexistent/nightbelld.yaml"), environment: [:], mode: .system)
        }
        #expect(throws: ConfigurationError.self) {
            try Loader.load(flags: Flags(file: "/"), environment: [:], mode: .system)
        }
        #expect(throws: ConfigurationError.self) {
            try load(file: try TemporaryFile(bytes: [0xFF, 0xFE, 0x00]))
        }
    }

    @Test("/dev/null is an empty file")
    func noFile() throws {
        let loaded = try Loader.load(flags: Flags(file: "/dev/null"), environment: [:], mode: .system)
        #expect(loaded.settings == DaemonSettings(mode: .system))
        #expect(loaded.file == "/dev/null")
    }

    @Test(
        "The path of a cgroup has no . and ..",
        arguments: ["/..", "/../..", "/a/../b", "/a/..", "/..//", "/./a", "/a/.", "a", ".."])
    func cgroupWithDetours(path: String) throws {
        let file = try TemporaryFile("suspension:\n    cgroupParent: '\(path)'\n")
        let error = #expect(throws: ConfigurationError.self) { try load(file: file) }
        #expect(error?.key == "suspension.cgroupParent")
        #expect(error?.source == .file(path: file.path, line: 2))
    }

    @Test(
        "Dots within a name of a cgroup are allowed",
        arguments: ["", "/", "/nightbell.slice", "/a..b/...", "/.a//b/"])
    func cgroupWithDots(path: String) throws {
        #expect(try load(flags: [("suspension.cgroupParent", path)]).settings.cgroupParent == path)
    }

    @Test("Values that contradict each other are refused")
    func relations() throws {
        let file = try TemporaryFile("keepAlive:\n    minimumTimeout: 100ms\n")
        let error = #expect(throws: ConfigurationError.self) { try load(file: file) }
        #expect(error?.source == .file(path: file.path, line: 2), "the configured value is at fault")
        #expect(throws: ConfigurationError.self) { try load(flags: [("wakes.linger", "2h")]) }
        #expect(throws: ConfigurationError.self) { try load(flags: [("budgets.expirationNotice", "1h")]) }
        #expect(throws: ConfigurationError.self) { try load(flags: [("suspension.retry", "1h")]) }
        #expect(throws: ConfigurationError.self) { try load(flags: [("keepAlive.minimumTimeout", "100ms")]) }
    }

    @Test("The control socket follows the runtime directory unless it is named")
    func socketFollows() throws {
        let moved = try load(flags: [("runtimeDirectory", "/tmp/elsewhere")])
        #expect(moved.settings.socket == "/tmp/elsewhere/nightbell.sock")
        let named = try load(flags: [("runtimeDirectory", "/tmp/elsewhere"), ("socket", "/tmp/s")])
        #expect(named.settings.socket == "/tmp/s")
    }

    @Test("Only the supervisor with the usual runtime directory has the machine's manifests and state")
    func stateFollows() throws {
        let usual = try load().settings
        #expect(
            usual.manifestDirectory == "/etc/nightbell/clients.d"
                && usual.stateDirectory == "/var/lib/nightbell")
        let moved = try load(flags: [("runtimeDirectory", "/tmp/elsewhere")]).settings
        #expect(moved.manifestDirectory.isEmpty && moved.stateDirectory == "/tmp/elsewhere/state")
        let named = try load(flags: [
            ("runtimeDirectory", "/tmp/elsewhere"), ("manifestDirectory", "/etc/m"), ("stateDirectory", ""),
        ]).settings
        #expect(named.manifestDirectory == "/etc/m" && named.stateDirectory.isEmpty)
    }

    @Test("A per-user supervisor uses XDG_RUNTIME_DIR and admits no other user")
    func perUser() throws {
        let mode = try Mode.user(environment: ["XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/home/u"])
        let settings = try Loader.load(flags: Flags(), environment: [:], mode: mode).settings
        #expect(settings.socket == "/run/user/7/nightbell/nightbell.sock")
        #expect(settings.socketMode == 0o600)
        #expect(mode.configurationFile == "/home/u/.config/nightbell/nightbelld.yaml")
        #expect(settings.manifestDirectory == "/home/u/.config/nightbell/clients.d")
        #expect(settings.stateDirectory == "/home/u/.local/state/nightbell")
        #expect(settings.pushSocket == "/run/user/7/nightbell/push.sock")
        #expect(throws: ConfigurationError.self) { try Mode.user(environment: [:]) }
    }

    @Test("A variable that only looks like a key causes a warning, those of other tools do not")
    func strangeVariables() throws {
        let loaded = try load(
            environment: ["NIGHTBELL_WAKE_LIMIT": "3", "NIGHTBELL_IDENTIFIER": "x", "NIGHTBELL_LAUNCH": "y"])
        #expect(loaded.warnings.count == 1)
        #expect(loaded.warnings.first?.contains("NIGHTBELL_WAKE_LIMIT") == true)
    }

    @Test("Printed configuration can be read back")
    func printed() throws {
        let flags = Keys.all.map { ($0.name, otherValue(for: $0)) }
        let first = try load(flags: flags)
        let second = try load(file: try TemporaryFile(first.printed))
        #expect(second.settings == first.settings)
    }
}

/// A valid value of the key that is not its default.
private func otherValue(for key: Key) -> String {
    switch key.name {
    case "socket", "runtimeDirectory", "suspension.cgroupParent", "manifestDirectory", "stateDirectory",
        "memoryPressure.file", "gateway.pushSocket":
        "/tmp/with 'quotes' and : # signs"
    case "socketMode": "0640"
    case "logLevel": "debug"
    case "suspension.method": "signal"
    case "keeper.use": "off"
    case "keepAlive.tolerance": "25%"
    case "wakes.period", "wakes.lingerMaximum", "suspension.retryMaximum", "budgets.backgroundTasks",
        "keepAlive.minimumTimeout", "transfer.lifetime", "transfer.orphans":
        "90s"
    case "outgoingBytesPerConnection": "200000"
    case "memoryPressure.share": "full"
    case "memoryPressure.pageOut": "on"
    case "monitor": "off"
    case "gateway.rights": "read"
    case "monitorProgram": "/opt/monitor"
    case "transfers": "off"
    case "transferProgram": "/opt/transfer"
    case "memoryPressure.window": "7s"
    case "launches.retryMaximum": "90s"
    default: key.expected.hasPrefix("a duration") ? "123ms" : "77"
    }
}

private func load(
    file: TemporaryFile? = nil, flags: [(key: String, text: String)] = [], environment: [String: String] = [:]
) throws -> LoadedConfiguration {
    try Loader.load(flags: Flags(file: file?.path, values: flags), environment: environment, mode: .system)
}

extension String {
    /// `a.b` as the YAML mapping `{a: {b`, on one line.
    fileprivate var nested: String {
        let parts = split(separator: ".")
        return parts.count == 2 ? "\(parts[0]):\n    \(parts[1])" : self
    }
}
