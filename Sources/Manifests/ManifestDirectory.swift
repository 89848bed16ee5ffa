package import Glibc
import LinuxSystem
import NightbellCore

/// All manifests of a directory: every `*.yaml` in it, in the order of their names.
package struct ManifestDirectory: Sendable {
    package private(set) var manifests: [Manifest] = []
    package private(set) var problems: [ManifestProblem] = []

    /// A directory that does not exist declares no clients.
    ///
    /// - Parameter owner: the only uid besides root that may be able to write to the files.
    package init(path: String, accounts: some Accounts, owner: uid_t?) {
        let names: [String]
        do {
            if let owner, let problem = try Self.problem(path, owner: owner) {
                problems = [problem]
                return
            }
            names = try SmallFile.names(in: path)
        } catch {
            guard error.code != ENOENT else { return }
            problems = [ManifestProblem(path, "cannot be read: \(SystemError.message(for: error.code))")]
            return
        }
        var namesakes = Namesakes()
        // Hidden files are leftovers of editors.
        for name in names.sorted() where name.hasSuffix(".yaml") && !name.hasPrefix(".") {
            let file = ManifestFile(path: "\(path)/\(name)", accounts: accounts, owner: owner)
            problems += file.problems
            for manifest in file.manifests {
                if let problem = namesakes.problem(with: manifest) {
                    problems.append(problem)
                } else {
                    manifests.append(manifest)
                }
            }
        }
    }
}

extension ManifestDirectory {
    /// Why no manifest of a directory is used, if so.
    private static func problem(_ path: String, owner: uid_t) throws(SystemError) -> ManifestProblem? {
        try ManifestTrust.problem(ofDirectory: path, owner: owner).map {
            ManifestProblem(path, "\($0): none of its manifests is used")
        }
    }

    /// Why these files would not be used where they are: the problems of their directories.
    ///
    /// - Parameter owner: the only uid besides root that may be able to write to them.
    package static func problems(around files: [String], owner: uid_t) -> [ManifestProblem] {
        Set(files.map(ManifestTrust.directory)).sorted().compactMap { directory in
            // The file of one that cannot be examined cannot be read, which is a problem of its own.
            do throws(SystemError) { return try problem(directory, owner: owner) } catch { return nil }
        }
    }
}

/// Finds clients that are declared by more than one file.
package struct Namesakes {
    private var places: [String: String] = [:]

    package init() {}

    /// Nil: it is the first of that name.
    package mutating func problem(with manifest: Manifest) -> ManifestProblem? {
        let identifier = manifest.identifier.description
        guard let place = places[identifier] else {
            places[identifier] = "\(manifest.file):\(manifest.line)"
            return nil
        }
        return ManifestProblem(
            file: manifest.file, line: manifest.line, key: "identifier",
            problem: "'\(identifier)' is declared in \(place) already")
    }
}
