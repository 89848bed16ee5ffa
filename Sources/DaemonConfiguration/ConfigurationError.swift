import LinuxSystem

/// The reason why the configuration is refused: the source, the key, and the expected value.
package struct ConfigurationError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The origin of a value.
    package enum Source: Sendable, Equatable {
        case defaults
        case file(path: String, line: Int?)
        case environment
        case flags
    }

    package var source: Source
    /// The key as it is written there; empty when the error concerns no single key.
    package var key: String
    package var problem: String

    package init(source: Source, key: String, problem: String) {
        self.source = source
        self.key = key
        self.problem = problem
    }

    package var description: String {
        let place =
            switch source {
            case .defaults: "defaults"
            case .file(let path, let line?): "\(path):\(line)"
            case .file(let path, nil): path
            case .environment: "environment"
            case .flags: "command line"
            }
        let problem = Escaping.clipped(problem, to: 1_000)
        let key = Escaping.clipped(key, to: 200)
        return key.isEmpty ? "\(place): \(problem)" : "\(place): \(key) \(problem)"
    }
}
