import ArgumentParser
import Glibc
import Manifests
import NightbellCore
import Presentation

struct ValidateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "validate", abstract: "Explains every mistake in manifests.",
        discussion: """
            A manifest is a YAML file that declares a client to the supervisor. It needs two keys:
              identifier: org.example.phone.alice
              command: [/usr/bin/softphone, --account, alice]

            The others are \(optionalKeys). Without modes a client has voip; without user it runs as the \
            supervisor's user. A file declares several clients by documents with --- between them.

            Users and groups are looked up on this machine, as the supervisor would, and a file that it would not \
            trust is refused: it and its directory must belong to root or to you, and no other user may be able to \
            write to them. Nothing is started, and no supervisor is needed.

            Each mistake is one line on the standard output: file, line, key and expected value. \
            Ends with exit code 1 if there is one, else with 0; 64 if no file is named.
            """)

    private static var optionalKeys: String {
        Manifest.keys.filter { !["identifier", "command"].contains($0) }.joined(separator: ", ")
    }

    @Argument(help: ArgumentHelp("The manifests.", valueName: "file"))
    var files: [String]

    @Flag(help: "Print JSON for programs.")
    var json = false

    func run() throws {
        let accounts = SystemAccounts()
        let checked = files.map { ManifestFile(path: $0, accounts: accounts, owner: geteuid()) }
        let manifests = checked.flatMap(\.manifests)
        var namesakes = Namesakes()
        let problems =
            ManifestDirectory.problems(around: files, owner: geteuid()) + checked.flatMap(\.problems)
            + manifests.compactMap { namesakes.problem(with: $0) }
        if json {
            emit([
                "valid": .bool(problems.isEmpty),
                "clients": .array(manifests.map { .string($0.identifier.description) }),
                "problems": .array(problems.map(\.json)),
            ])
        } else {
            emit(problems.map { printable("\($0)") })
            for manifest in manifests where problems.isEmpty {
                emit(["\(manifest.file):\(manifest.line): \(manifest.identifier) is valid"])
            }
        }
        if !problems.isEmpty { throw ExitCode(1) }
    }
}

extension ManifestProblem {
    fileprivate var json: JSON {
        [
            "file": .string(file), "line": line.map { .integer(Int64($0)) } ?? .null, "key": .string(key),
            "problem": .string(problem),
        ]
    }
}
