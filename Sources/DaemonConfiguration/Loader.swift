import Configuration
import Manifests
import NightbellCore
import Synchronization

/// Configuration from the command line.
package struct Flags: Sendable, Equatable {
    /// `--config`: this file must exist, unlike the default one.
    package var file: String?
    /// Keys with values, in the order given; the last one of a key counts.
    package var values: [(key: String, text: String)] = []

    package init(file: String? = nil, values: [(key: String, text: String)] = []) {
        self.file = file
        self.values = values
    }

    package static func == (one: Flags, other: Flags) -> Bool {
        one.file == other.file && one.values.elementsEqual(other.values, by: ==)
    }
}

/// The settings with their origins.
package struct LoadedConfiguration: Sendable, Equatable {
    package var settings: DaemonSettings
    /// The file that was read; nil if there was none.
    package var file: String?
    /// Oddities that do not prevent a start.
    package var warnings: [String] = []
    /// A mistake hides the runtime directory, and the default one counts.
    package var isRuntimeDirectoryUncertain = false
    /// Where each key's value came from: `defaults`, the path of the file, `environment` or `command line`.
    package var origins: [String: String] = [:]
}

/// Combines the configuration: flags before environment before file before defaults.
package enum Loader {
    /// Variables of the same prefix that are not configuration of the supervisor.
    private static let foreignVariables: Set<String> = [
        "NIGHTBELL_IDENTIFIER", "NIGHTBELL_LAUNCH", "NIGHTBELL_CONNECTION_FD", "NIGHTBELL_CONNECTION_PID",
    ]

    /// - Parameter keepsDefaults: A mistake in the file or the environment is a warning, and the default
    ///   counts: for work that must not wait until the mistake is mended.
    package static func load(
        flags: Flags, environment: [String: String], mode: Mode, keepsDefaults: Bool = false
    ) throws(ConfigurationError) -> LoadedConfiguration {
        var warnings: [String] = []
        var isPlaceHidden = false
        func refuse(_ error: ConfigurationError, of key: String?) throws(ConfigurationError) {
            guard keepsDefaults, error.source != .flags else { throw error }
            warnings.append("\(error)")
            // nil: any key may be meant.
            if key == nil || key == "runtimeDirectory" { isPlaceHidden = true }
        }
        var file: ConfigurationFile?
        do throws(ConfigurationError) {
            file = try readFile(flags: flags, mode: mode, warnings: &warnings)
        } catch {
            try refuse(error, of: nil)
        }
        for error in unknownKeys(flags: flags, file: file) { try refuse(error, of: similar(to: error.key)) }

        let recorder = OriginRecorder()
        let reader = ConfigReader(
            providers: [
                InMemoryProvider(name: Origin.flags, values: table(flags.values.map { ($0.key, $0.text) })),
                EnvironmentVariablesProvider(environmentVariables: environment).prefixKeys(with: "nightbell"),
                InMemoryProvider(
                    name: Origin.file, values: table((file?.entries ?? []).map { ($0.key, $0.text) })),
            ],
            accessReporter: recorder)

        var result = LoadedConfiguration(settings: DaemonSettings(mode: mode), file: file?.path)
        for key in Keys.all {
            guard let text = reader.string(forKey: ConfigKey(key.name)) else {
                result.origins[key.name] = "defaults"
                continue
            }
            let source = recorder.source(of: key.name, in: file)
            guard key.store(text, &result.settings) else {
                let written = source == .environment ? key.environmentVariable : key.name
                try refuse(
                    ConfigurationError(
                        source: source, key: written, problem: "expected \(key.expected), not '\(text)'"),
                    of: key.name)
                result.origins[key.name] = "defaults"
                continue
            }
            result.origins[key.name] = recorder.origin(of: key.name, file: file)
        }
        // The socket's path follows the runtime directory unless both are given.
        if result.origins["socket"] == "defaults" {
            result.settings.socket = result.settings.runtimeDirectory + "/nightbell.sock"
        }
        // The default manifests and state belong to one supervisor per machine or user: another one has a
        // directory of its own.
        if result.origins["runtimeDirectory"] != "defaults" {
            if result.origins["stateDirectory"] == "defaults" {
                result.settings.stateDirectory = result.settings.runtimeDirectory + "/state"
            }
            if result.origins["manifestDirectory"] == "defaults" { result.settings.manifestDirectory = "" }
        }
        result.isRuntimeDirectoryUncertain =
            isPlaceHidden && result.origins["runtimeDirectory"] == "defaults"
        result.warnings = warnings + unknownVariables(in: environment)
        if !keepsDefaults { try checkRelations(result, recorder: recorder, file: file) }
        return result
    }

    /// A file that is named must exist. The default one need not exist, and is skipped if a directory on its
    /// path is not accessible, such as another user's home.
    private static func readFile(
        flags: Flags, mode: Mode, warnings: inout [String]
    ) throws(ConfigurationError) -> ConfigurationFile? {
        let path = flags.file ?? mode.configurationFile
        if flags.file == nil, ConfigurationFile.isOutOfReach(path) {
            warnings.append("\(path) is not looked for: a directory on its path is not accessible")
            return nil
        }
        let file = try ConfigurationFile.read(path: path)
        if file == nil, flags.file != nil {
            throw ConfigurationError(
                source: .flags, key: "--config", problem: "names a file that does not exist: \(path)")
        }
        return file
    }

    private static func unknownKeys(flags: Flags, file: ConfigurationFile?) -> [ConfigurationError] {
        let inFile = (file?.entries ?? []).filter { Keys.named($0.key) == nil }
        let inFlags = flags.values.filter { Keys.named($0.key) == nil }
        return inFile.map { unknown($0.key, .file(path: file?.path ?? "", line: $0.line)) }
            + inFlags.map { unknown($0.key, .flags) }
    }

    /// The key that was probably meant.
    private static func similar(to key: String) -> String? {
        let last = key.lowercased().split(separator: ".").last.map(String.init) ?? ""
        return Spelling.nearest(to: key, among: Keys.all.map(\.name))
            ?? Keys.all.first { $0.name.lowercased().split(separator: ".").last.map(String.init) == last }?
            .name
    }

    private static func unknown(_ key: String, _ source: ConfigurationError.Source) -> ConfigurationError {
        let hint =
            similar(to: key).map { "did you mean \($0)?" }
            ?? "see nightbelld --print-configuration for all keys"
        return ConfigurationError(source: source, key: key, problem: "is not a key; \(hint)")
    }

    private static func unknownVariables(in environment: [String: String]) -> [String] {
        let known = Set(Keys.all.map(\.environmentVariable)).union(foreignVariables)
        return environment.keys
            .filter { $0.hasPrefix("NIGHTBELL_") && !known.contains($0) }
            .sorted()
            .map { "environment variable \($0) is no configuration key and has no effect" }
    }

    /// Checks values that are valid one by one, but not together.
    private static func checkRelations(
        _ result: LoadedConfiguration, recorder: OriginRecorder, file: ConfigurationFile?
    ) throws(ConfigurationError) {
        let supervision = result.settings.supervision
        let relations: [(holds: Bool, shorter: String, longer: String)] = [
            (
                supervision.budgets.expirationNotice <= supervision.budgets.backgroundTasks,
                "budgets.expirationNotice", "budgets.backgroundTasks"
            ),
            (
                supervision.keepAlive.lead < supervision.keepAlive.minimumTimeout,
                "keepAlive.lead", "keepAlive.minimumTimeout"
            ),
            (
                supervision.suspension.retry <= supervision.suspension.retryMaximum,
                "suspension.retry", "suspension.retryMaximum"
            ),
            (
                supervision.wakes.linger <= supervision.wakes.lingerMaximum,
                "wakes.linger", "wakes.lingerMaximum"
            ),
            (
                supervision.launches.retry <= supervision.launches.retryMaximum,
                "launches.retry", "launches.retryMaximum"
            ),
            (
                result.settings.pressureStall < result.settings.pressureWindow,
                "memoryPressure.stall", "memoryPressure.window"
            ),
        ]
        for relation in relations where !relation.holds {
            // Report the value that was configured, not a default.
            let source = recorder.source(of: relation.shorter, in: file)
            let (lower, upper) = (value(relation.shorter, result), value(relation.longer, result))
            if source == .defaults {
                throw ConfigurationError(
                    source: recorder.source(of: relation.longer, in: file), key: relation.longer,
                    problem: "(\(upper)) is too short for \(relation.shorter) (\(lower))")
            }
            throw ConfigurationError(
                source: source, key: relation.shorter,
                problem: "(\(lower)) is too long for \(relation.longer) (\(upper))")
        }
    }

    private static func value(_ name: String, _ result: LoadedConfiguration) -> String {
        Keys.named(name)?.value(in: result.settings) ?? ""
    }

    private static func table(_ values: [(key: String, text: String)]) -> [AbsoluteConfigKey: ConfigValue] {
        Dictionary(
            values.map { key, text in
                let parts = key.split(separator: ".").map(String.init)
                return (AbsoluteConfigKey(parts), ConfigValue(.string(text), isSecret: false))
            },
            uniquingKeysWith: { _, last in last })
    }
}

private enum Origin {
    static let flags = "command line"
    static let file = "file"
}

/// Records which provider supplied a key, so that an error names the place where a bad value is written.
private final class OriginRecorder: AccessReporter {
    private let providers = Mutex<[String: String]>([:])

    func report(_ event: AccessEvent) {
        let answered = event.providerResults.first { result in
            if case .success(let lookup) = result.result { lookup.value != nil } else { false }
        }
        guard let answered else { return }
        providers.withLock {
            $0[event.metadata.key.components.joined(separator: ".")] = answered.providerName
        }
    }

    func source(of key: String, in file: ConfigurationFile?) -> ConfigurationError.Source {
        guard let provider = providers.withLock({ $0[key] }) else { return .defaults }
        if provider.contains("[\(Origin.flags)]") { return .flags }
        guard let file, provider.contains("[\(Origin.file)]") else { return .environment }
        return .file(path: file.path, line: file.entries.last { $0.key == key }?.line)
    }

    func origin(of key: String, file: ConfigurationFile?) -> String {
        switch source(of: key, in: file) {
        case .defaults: "defaults"
        case .flags: "command line"
        case .environment: "environment"
        case .file(let path, let line): line.map { "\(path):\($0)" } ?? path
        }
    }
}
