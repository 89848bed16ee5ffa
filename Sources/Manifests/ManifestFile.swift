package import Glibc
import NightbellCore
import Yams

/// A file of manifests: one client in each of its YAML documents.
package struct ManifestFile: Sendable {
    /// A longer file is refused.
    package static let sizeLimit = 1 << 20
    /// The most problems of a file that are reported one by one.
    package static let problemLimit = 100

    /// The valid manifests.
    package private(set) var manifests: [Manifest] = []
    /// All errors, by line. A document with any of these gives no manifest.
    package private(set) var problems: [ManifestProblem] = []

    /// Reads a file.
    ///
    /// - Parameters:
    ///   - accounts: looks up users and groups.
    ///   - owner: the only uid besides root that may be able to write to it; nil accepts a file of any user.
    package init(path: String, accounts: some Accounts, owner: uid_t? = nil) {
        do throws(TrustedFile.Failure) {
            let text = try TrustedFile.text(of: path, owner: owner, limit: Self.sizeLimit)
            self.init(path: path, text: text, accounts: accounts)
        } catch {
            self.init(problem: ManifestProblem(file: path, line: error.line, key: "", problem: error.problem))
        }
    }

    private init(problem: ManifestProblem) {
        problems = [problem]
    }

    package init(path: String, text: String, accounts: some Accounts) {
        if let excess = YAMLBounds.excess(in: text) {
            problems = [ManifestProblem(file: path, line: excess.line, key: "", problem: excess.problem)]
            return
        }
        let roots: [Node]
        do {
            roots = try Self.documents(of: text)
        } catch {
            problems = Self.problems(error, text, path).sorted { ($0.line ?? 0) < ($1.line ?? 0) }
            return
        }
        let filled = roots.filter { $0.scalar?.string != "" }
        if filled.isEmpty {
            problems = [ManifestProblem(path, "declares no client")]
        }
        for root in filled {
            var reader = ManifestReader(file: path, accounts: accounts)
            if let manifest = reader.read(root) { manifests.append(manifest) }
            problems += reader.problems
        }
        refuseNamesakes()
        problems.sort { ($0.line ?? 0, $0.key) < ($1.line ?? 0, $1.key) }
        let more = problems.count - Self.problemLimit
        if more > 0 {
            problems.removeLast(more)
            problems.append(ManifestProblem(path, "has \(more) more mistakes"))
        }
    }

    private static func documents(of text: String) throws -> [Node] {
        var documents = try compose_all(yaml: text)
        var nodes: [Node] = []
        while let node = documents.next() { nodes.append(node) }
        // The sequence ends at an error and returns it only on request.
        if let error = documents.error { throw error }
        return nodes
    }

    private mutating func refuseNamesakes() {
        var first: [String: Int] = [:]
        manifests.removeAll { manifest in
            let name = manifest.identifier.description
            guard let line = first.updateValue(manifest.line, forKey: name) else { return false }
            first[name] = line
            problems.append(
                ManifestProblem(
                    file: manifest.file, line: manifest.line, key: "identifier",
                    problem: "'\(name)' is declared in line \(line) already"))
            return true
        }
    }

    private static func problems(_ error: any Error, _ text: String, _ path: String) -> [ManifestProblem] {
        guard let error = error as? YamlError else {
            return [ManifestProblem(path, "\(error)")]
        }
        switch error {
        case .scanner(_, let problem, let mark, _), .parser(_, let problem, let mark, _),
            .composer(_, let problem, let mark, _):
            return [ManifestProblem(file: path, line: mark.line, key: "", problem: problem)]
        case .reader(let problem, let offset, _, let yaml):
            let line = offset.map { 1 + yaml.prefix($0).count { $0.isNewline } }
            return [ManifestProblem(file: path, line: line, key: "", problem: problem)]
        case .duplicatedKeysInMapping(let duplicates, let context):
            let lines = text.split(omittingEmptySubsequences: false) { $0.isNewline }
            return duplicates.sorted().map { key in
                let places = Self.places(of: key, lines, context.mark)
                let first = places.first ?? context.mark.line
                return ManifestProblem(
                    file: path, line: places.dropFirst().first ?? first, key: key,
                    problem: places.count > 1 ? "is written in line \(first) already" : "is written twice")
            }
        case .no, .memory, .writer, .emitter, .representer, .dataCouldNotBeDecoded:
            return [ManifestProblem(path, "\(error)")]
        }
    }

    /// The lines that begin with a key, in the mapping at this mark that has it. None are found in a mapping
    /// in braces.
    private static func places(of key: String, _ lines: [Substring], _ mark: Mark) -> [Int] {
        let column = mark.column - 1
        func indentation(_ line: Substring) -> Int? {
            line.firstIndex { $0 != " " }.map { line.distance(from: line.startIndex, to: $0) }
        }
        func isWithin(_ number: Int) -> Bool {
            let line = lines[number - 1]
            guard let indentation = indentation(line), !line.hasPrefix("#") else { return true }
            return indentation >= column && !line.hasPrefix("---")
        }
        func begins(_ number: Int) -> Bool {
            guard indentation(lines[number - 1]) == column else { return false }
            let text = lines[number - 1].dropFirst(column)
            return [key, "'\(key)'", "\"\(key)\""].contains { spelling in
                text.hasPrefix(spelling) && text.dropFirst(spelling.count).drop { $0 == " " }.first == ":"
            }
        }
        guard (1...lines.count).contains(mark.line) else { return [] }
        let before = (1..<mark.line).reversed().prefix(while: isWithin).reversed()
        let after = (mark.line...lines.count).prefix(while: isWithin)
        return (Array(before) + after).filter(begins)
    }
}
