import Descriptors
import FoundationEssentials
import Glibc

/// Directories that are named as those of demos are, each with a file in it.
struct Lookalikes {
    let names: [String]
    private let path: String

    init(in path: String) throws {
        self.path = path
        let gone = "1 1"
        let ourStart = ProcFS.startTime(getpid()) ?? 0
        var marks: [String: String?] = [
            "nightbell-demo-kept": nil, "nightbell-demo-odd": "no number",
            "nightbell-demo-runs": "\(getpid()) \(ourStart)",
            "nightbell-demonstration": gone,
        ]
        if geteuid() == 0 { marks["nightbell-demo-theirs"] = gone }
        for (name, mark) in marks {
            mkdir("\(path)/\(name)", 0o700)
            try "text".write(toFile: "\(path)/\(name)/file", atomically: false, encoding: .utf8)
            guard let mark else { continue }
            try mark.write(toFile: "\(path)/\(name)/demo", atomically: false, encoding: .utf8)
        }
        if geteuid() == 0 { chown("\(path)/nightbell-demo-theirs", 65_534, 65_534) }
        // A link to a directory that could be removed itself, but for its name.
        symlink("nightbell-demonstration", "\(path)/nightbell-demo-link")
        names = (marks.keys + ["nightbell-demo-link"]).sorted()
    }

    var areUntouched: Bool {
        names.allSatisfy { access("\(path)/\($0)/file", F_OK) == 0 }
    }
}
