import FoundationEssentials
import Glibc
import LinuxSystem

/// Directories named like those of demos, each with a file in it.
final class Lookalikes {
    let names: [String]
    private let path: String
    /// The directory of a running demo.
    private var lock: OwnedDescriptor?

    init(in path: String) throws {
        self.path = path
        let gone = "1"
        var marks: [String: String?] = [
            "nightbell-demo-kept": nil, "nightbell-demo-odd": nil, "nightbell-demo-runs": "\(getpid())",
            "nightbell-demonstration": gone,
        ]
        if geteuid() == 0 { marks["nightbell-demo-theirs"] = gone }
        for (name, mark) in marks {
            mkdir("\(path)/\(name)", 0o700)
            try "text".write(toFile: "\(path)/\(name)/file", atomically: false, encoding: .utf8)
            guard let mark else { continue }
            try mark.write(toFile: "\(path)/\(name)/demo", atomically: false, encoding: .utf8)
        }
        mkdir("\(path)/nightbell-demo-odd/demo", 0o700)
        let file = try OwnedDescriptor(opening: "\(path)/nightbell-demo-runs/demo", O_RDONLY)
        guard flock(file.rawValue, LOCK_EX | LOCK_NB) == 0 else { throw SystemError("flock") }
        lock = consume file
        if geteuid() == 0 { chown("\(path)/nightbell-demo-theirs", 65_534, 65_534) }
        // A link to a directory that could be removed, except for its name.
        symlink("nightbell-demonstration", "\(path)/nightbell-demo-link")
        names = (marks.keys + ["nightbell-demo-link"]).sorted()
    }

    var areUntouched: Bool {
        names.allSatisfy { access("\(path)/\($0)/file", F_OK) == 0 }
    }
}
