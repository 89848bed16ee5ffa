import Launching
import NightbellCore
import Yams

/// Makes a manifest of one YAML document, and continues after an error to find the others.
struct ManifestReader {
    let file: String
    let accounts: any Accounts
    private(set) var problems: [ManifestProblem] = []

    init(file: String, accounts: some Accounts) {
        self.file = file
        self.accounts = accounts
    }

    /// Nil if there are problems.
    mutating func read(_ root: Node) -> Manifest? {
        guard case .mapping(let mapping) = root else {
            complain(root, "", "expected keys with values")
            return nil
        }
        var values: [String: Node] = [:]
        for (key, value) in mapping {
            guard let name = key.scalar?.string, Manifest.keys.contains(name) else {
                complain(key, key.scalar?.string ?? "", unknown(key.scalar?.string ?? ""))
                continue
            }
            values[name] = value
        }
        let identifier = required("identifier", values, root).flatMap { readIdentifier($0) }
        let command = required("command", values, root).flatMap { readCommand($0) }
        let modes = values["modes"].map { readModes($0) } ?? .voip
        let account = readAccount(values)
        var launch = LaunchSpecification(arguments: command ?? [])
        launch.directory = values["directory"].flatMap { path($0, "directory") } ?? account?.home ?? "/"
        launch.environment = readEnvironment(values["environment"], account)
        launch.limits = values["limits"].map { readLimits($0) } ?? []
        launch.fileModeMask = values["fileModeMask"].flatMap { readFileModeMask($0) } ?? launch.fileModeMask
        launch.output = values["output"].flatMap { path($0, "output") }
        let keepAlive = values["keepAlive"].flatMap { readKeepAlive($0, modes) }
        let policy = values["wakeLimitPolicy"].flatMap { readWakeLimitPolicy($0) } ?? .linger
        let exits = values["exitsOnSuspend"].flatMap { truth($0, "exitsOnSuspend") } ?? false
        let starts = values["startsWithSupervisor"].flatMap { truth($0, "startsWithSupervisor") } ?? true
        let waits = values["waitsForUnlock"].flatMap { truth($0, "waitsForUnlock") } ?? false
        let newsstand = readNewsstand(values, modes, account)
        let unmodified = readUnmodified(values, modes)

        if problems.isEmpty { inspect(launch, values, root) }
        guard problems.isEmpty, let identifier, command != nil else { return nil }
        return Manifest(
            identifier: identifier, modes: modes, launch: launch, identity: account?.identity,
            keepAlive: keepAlive, wakeLimitPolicy: policy, exitsOnSuspend: exits,
            startsWithSupervisor: starts, waitsForUnlock: waits, newsstand: newsstand,
            unmodified: unmodified, file: file, line: values["identifier"]?.mark?.line ?? root.mark?.line ?? 0
        )
    }

    /// Checks whether the specification can be launched.
    private mutating func inspect(_ launch: LaunchSpecification, _ values: [String: Node], _ root: Node) {
        guard let problem = launch.problem else { return }
        let command = values["command"] ?? root
        guard launch.byteCount > LaunchSpecification.maximumBytes else {
            return complain(command, "command", problem)
        }
        // The largest part is named in the error.
        let ofCommand = launch.arguments.reduce(0) { $0 + $1.utf8.count }
        let ofEnvironment = launch.environment.reduce(0) { $0 + $1.key.utf8.count + $1.value.utf8.count }
        guard ofEnvironment > ofCommand, let environment = values["environment"],
            let longest = environment.mapping?.max(by: { Self.length($0.value) < Self.length($1.value) }),
            let name = longest.key.scalar?.string
        else { return complain(command, "command", problem) }
        complain(longest.key, "environment.\(name)", problem)
    }

    private static func length(_ node: Node) -> Int { node.scalar?.string.utf8.count ?? 0 }

    // MARK: Mistakes

    mutating func complain(_ node: Node, _ key: String, _ problem: String) {
        problems.append(ManifestProblem(file: file, line: node.mark?.line, key: key, problem: problem))
    }

    private func unknown(_ name: String) -> String {
        let hint =
            Spelling.nearest(to: name, among: Manifest.keys).map { "did you mean \($0)?" }
            ?? "there are \(Manifest.keys.joined(separator: ", "))"
        return name.isEmpty ? "a key is not a name" : "is not a key; \(hint)"
    }

    private mutating func required(_ key: String, _ values: [String: Node], _ root: Node) -> Node? {
        if let value = values[key] { return value }
        complain(root, key, "is missing")
        return nil
    }

    // MARK: Kinds of values

    mutating func text(_ node: Node, _ key: String, _ expected: String) -> String? {
        guard let text = node.scalar?.string, !text.isEmpty else {
            complain(node, key, "expected \(expected)")
            return nil
        }
        guard !text.utf8.contains(0) else {
            complain(node, key, "contains a zero byte")
            return nil
        }
        return text
    }

    mutating func list(_ node: Node, _ key: String, _ example: String) -> [Node] {
        guard case .sequence(let sequence) = node else {
            complain(node, key, "expected a list, such as \(example)")
            return []
        }
        return Array(sequence)
    }

    private mutating func path(_ node: Node, _ key: String) -> String? {
        guard let path = text(node, key, "an absolute path") else { return nil }
        guard path.hasPrefix("/"), path.utf8.count < 4_096 else {
            complain(node, key, "expected an absolute path, not '\(path)'")
            return nil
        }
        return path
    }

    mutating func truth(_ node: Node, _ key: String) -> Bool? {
        switch node.scalar?.string {
        case "true", "yes": return true
        case "false", "no": return false
        default:
            complain(node, key, "expected true or false")
            return nil
        }
    }

    // MARK: Single keys

    private mutating func readIdentifier(_ node: Node) -> ClientIdentifier? {
        let expected = ClientIdentifier.rule
        guard let text = text(node, "identifier", expected) else { return nil }
        if let identifier = ClientIdentifier(text) { return identifier }
        complain(node, "identifier", "expected \(expected), not '\(text)'")
        return nil
    }

    private mutating func readModes(_ node: Node) -> Modes {
        var modes: Modes = []
        for entry in list(node, "modes", "[voip] or [voip, audio]") {
            let text = entry.scalar?.string
            if let known = Modes.named.first(where: { $0.name == text }) {
                modes.insert(known.mode)
            } else {
                let names = Modes.named.map(\.name).joined(separator: ", ")
                complain(entry, "modes", "expected one of \(names), not '\(text ?? "a list")'")
            }
        }
        return modes
    }

    private mutating func readCommand(_ node: Node) -> [String]? {
        guard case .sequence(let entries) = node else {
            complain(
                node, "command",
                "expected a list, the program first: there is no shell to take a line of text apart")
            return nil
        }
        var arguments: [String] = []
        for entry in entries {
            guard let scalar = entry.scalar?.string else {
                complain(entry, "command", "expected a text")
                continue
            }
            guard !scalar.utf8.contains(0) else {
                complain(entry, "command", "contains a zero byte")
                continue
            }
            arguments.append(scalar)
        }
        guard let program = arguments.first, !program.isEmpty else {
            complain(node, "command", "has no program")
            return nil
        }
        guard program.hasPrefix("/") || !program.contains("/") else {
            complain(
                node, "command",
                "expected an absolute path, or a name to be looked for in PATH, not '\(program)'")
            return nil
        }
        return arguments
    }

    private mutating func readKeepAlive(_ node: Node, _ modes: Modes) -> Duration? {
        guard let text = text(node, "keepAlive", "a duration such as 600s") else { return nil }
        guard let duration = DurationText.parse(text), duration > .zero else {
            complain(node, "keepAlive", "expected a duration such as 600s or 10m, not '\(text)'")
            return nil
        }
        guard duration <= Settings.KeepAlive.maximumTimeout else {
            complain(node, "keepAlive", "is at most 30d")
            return nil
        }
        guard modes.contains(.voip) else {
            complain(node, "keepAlive", "needs the mode voip")
            return nil
        }
        return duration
    }

    private mutating func readWakeLimitPolicy(_ node: Node) -> WakeLimitPolicy? {
        switch node.scalar?.string {
        case "linger": return .linger
        case "terminate": return .terminate
        default:
            complain(node, "wakeLimitPolicy", "expected linger or terminate")
            return nil
        }
    }

    private mutating func readFileModeMask(_ node: Node) -> UInt32? {
        guard let text = node.scalar?.string, let mask = UInt32(text, radix: 8), mask <= 0o777 else {
            complain(node, "fileModeMask", "expected permission bits in octal, such as 0027")
            return nil
        }
        return mask
    }
}
