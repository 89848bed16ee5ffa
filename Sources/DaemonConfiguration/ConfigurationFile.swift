import Glibc
import Manifests
import Yams

/// A YAML file, flattened to dotted keys, with the line of each.
struct ConfigurationFile: Sendable, Equatable {
    struct Entry: Sendable, Equatable {
        var key: String
        var text: String
        var line: Int
    }

    /// A longer file is refused.
    private static let sizeLimit = 1 << 20

    let path: String
    let entries: [Entry]

    /// Reads a file. It may name programs that the supervisor runs, so it is trusted as manifests are: it
    /// belongs to root or to the user that runs the supervisor, and only its owner can write to it.
    ///
    /// - Returns: nil if there is no such file.
    static func read(path: String) throws(ConfigurationError) -> ConfigurationFile? {
        let text: String
        do throws(TrustedFile.Failure) {
            text = try TrustedFile.text(of: path, owner: geteuid(), limit: sizeLimit)
        } catch {
            if error.isMissing { return nil }
            throw ConfigurationError(
                source: .file(path: path, line: error.line), key: "", problem: error.problem)
        }
        return try ConfigurationFile(path: path, text: text)
    }

    /// Whether a directory on the path is not accessible, so that the file may or may not exist. A file that
    /// exists but is not readable is a different case.
    static func isOutOfReach(_ path: String) -> Bool {
        var status = stat()
        return unsafe stat(path, &status) != 0 && errno == EACCES
    }

    init(path: String, text: String) throws(ConfigurationError) {
        self.path = path
        if let excess = YAMLBounds.excess(in: text) {
            throw ConfigurationError(
                source: .file(path: path, line: excess.line), key: "", problem: excess.problem)
        }
        let root: Node?
        do {
            root = try compose(yaml: text)
        } catch let error as YamlError {
            throw Self.syntaxError(error, path: path)
        } catch {
            throw ConfigurationError(source: .file(path: path, line: nil), key: "", problem: "\(error)")
        }
        var entries: [Entry] = []
        // A file without any value, such as one of comments only, is composed to nothing or to a null scalar.
        if let root, root.scalar?.string != "" {
            try Self.flatten(root, prefix: "", path: path, into: &entries)
        }
        self.entries = entries
    }

    private static func flatten(
        _ node: Node, prefix: String, path: String, into entries: inout [Entry]
    ) throws(ConfigurationError) {
        let line = node.mark?.line
        switch node {
        case .scalar(let scalar) where !prefix.isEmpty:
            entries.append(Entry(key: prefix, text: scalar.string, line: line ?? 0))
        case .mapping(let mapping):
            for (key, value) in mapping {
                let place = ConfigurationError.Source.file(path: path, line: key.mark?.line)
                guard let name = key.scalar?.string, !name.isEmpty else {
                    throw ConfigurationError(
                        source: place, key: prefix, problem: "has a key that is not a name")
                }
                let full = prefix.isEmpty ? name : "\(prefix).\(name)"
                if value.scalar?.string == "", Keys.all.contains(where: { $0.name.hasPrefix(full + ".") }) {
                    continue  // all keys of the section are commented out
                }
                try flatten(value, prefix: full, path: path, into: &entries)
            }
        case .scalar, .sequence, .alias:
            throw ConfigurationError(
                source: .file(path: path, line: line), key: prefix,
                problem: prefix.isEmpty ? "expected keys with values" : "expected a single value, not a list")
        }
    }

    private static func syntaxError(_ error: YamlError, path: String) -> ConfigurationError {
        switch error {
        case .scanner(_, let problem, let mark, _), .parser(_, let problem, let mark, _),
            .composer(_, let problem, let mark, _):
            ConfigurationError(source: .file(path: path, line: mark.line), key: "", problem: problem)
        case .duplicatedKeysInMapping(let duplicates, let context):
            ConfigurationError(
                source: .file(path: path, line: context.mark.line), key: "",
                problem: "written twice: \(duplicates.sorted().joined(separator: ", "))")
        case .no, .memory, .reader, .writer, .emitter, .representer, .dataCouldNotBeDecoded:
            ConfigurationError(source: .file(path: path, line: nil), key: "", problem: "\(error)")
        }
    }
}
