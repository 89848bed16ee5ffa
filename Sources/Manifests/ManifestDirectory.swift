import Descriptors
package import Glibc
import NightbellCore

/// All manifests of a directory: every `*.yaml` in it, in the order of their names.
package struct ManifestDirectory: Sendable {
    package private(set) var manifests: [Manifest] = []
    package private(set) var problems: [ManifestProblem] = []

    /// A directory that is not there declares nobody.
    ///
    /// - Parameter owner: the only uid besides root that may be able to write to the files.
    package init(path: String, accounts: some Accounts, owner: uid_t?) {
        let names: [String]
        do {
            if let owner, let problem = try ManifestTrust.problem(ofDirectory: path, owner: owner) {
                problems = [ManifestProblem(path, "\(problem): none of its manifests is used")]
                return
            }
            names = try SmallFile.names(in: path)
        } catch {
            guard error.code != ENOENT else { return }
            problems = [ManifestProblem(path, "cannot be read: \(SystemError.message(for: error.code))")]
            return
        }
        var places: [String: String] = [:]
        // Hidden files are what editors leave lying about.
        for name in names.sorted() where name.hasSuffix(".yaml") && !name.hasPrefix(".") {
            let file = ManifestFile(path: "\(path)/\(name)", accounts: accounts, owner: owner)
            problems += file.problems
            for manifest in file.manifests {
                let identifier = manifest.identifier.description
                guard let place = places[identifier] else {
                    places[identifier] = "\(manifest.file):\(manifest.line)"
                    manifests.append(manifest)
                    continue
                }
                problems.append(
                    ManifestProblem(
                        file: manifest.file, line: manifest.line, key: "identifier",
                        problem: "'\(identifier)' is declared in \(place) already"))
            }
        }
    }
}
