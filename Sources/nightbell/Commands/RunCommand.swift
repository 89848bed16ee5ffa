import ArgumentParser
import Glibc
import Nightbell
import NightbellWire
import Presentation
import SwiftProtobuf

struct RunCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run", abstract: "Starts a program as a client.",
        discussion: """
            The program replaces this process. It finds in its environment:
              NIGHTBELL_IDENTIFIER  the identifier to register under
              NIGHTBELL_SOCKET      the supervisor's control socket
              NIGHTBELL_LAUNCH      how it was started, for the supervisor

            What is told to the supervisor, and shown by `nightbell show`, is the command, its directory and these \
            variables: HOME, LANG, LOGNAME, PATH, SHELL, TZ, USER, XDG_RUNTIME_DIR and those given by --env. \
            Others stay private.

            Programs that use the Nightbell library do all of this by themselves.
            """)

    /// What a program needs to be started again as it was, and what is no secret.
    private static let recordedVariables = [
        "HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TZ", "USER", "XDG_RUNTIME_DIR",
    ]

    @Option(help: "The identifier to register under; without it, the name of the program.")
    var identifier: String?

    @Option(
        name: .customLong("env"),
        help: ArgumentHelp(
            "Record this variable too; with a value, set it as well.", valueName: "name[=value]"))
    var variables: [String] = []

    @Option(help: ArgumentHelp("The supervisor's control socket.", valueName: "path"))
    var socket: String?

    @Argument(parsing: .postTerminator, help: "The program and its arguments, after --.")
    var command: [String] = []

    func validate() throws {
        try validateSocketPath(socket)
        guard !command.isEmpty else {
            throw ValidationError("Give a command after --, such as: run -- softphone")
        }
        guard isIdentifier(chosenIdentifier) else {
            throw ValidationError(
                "'\(chosenIdentifier)' is no identifier: 1 to 128 characters out of A-Z a-z 0-9 . _ -")
        }
        guard variables.allSatisfy({ $0.first != "=" && !$0.isEmpty }) else {
            throw ValidationError("--env needs a name, such as --env DISPLAY or --env LEVEL=3")
        }
    }

    func run() throws {
        let recorded = setVariables()
        var launch = WireLaunchSpecification()
        launch.directory = currentDirectory() ?? "/"
        launch.arguments = command
        // A plain name is looked for in PATH each time; a path is the one from here.
        if command[0].contains("/") { launch.arguments[0] = absolute(command[0], in: launch.directory) }
        launch.environment = recorded
        let bytes: [UInt8] = try launch.serializedBytes()
        // The supervisor would refuse the client, long after it was started.
        guard bytes.count <= WireLaunchSpecification.maximumBytes else {
            complain("the command and its variables are too long to be recorded: \(bytes.count) bytes")
            throw ExitCode(1)
        }

        // The program may change its directory before it connects.
        let path = absolute(socket ?? Client.Configuration.defaultSocketPath(), in: launch.directory)
        unsafe setenv("NIGHTBELL_IDENTIFIER", chosenIdentifier, 1)
        unsafe setenv("NIGHTBELL_SOCKET", path, 1)
        unsafe setenv("NIGHTBELL_LAUNCH", base64(bytes), 1)

        var arguments = unsafe command.map { unsafe strdup($0) }
        unsafe arguments.append(nil)
        unsafe execvp(command[0], arguments)
        let code = errno
        complain("\(command[0]): \(unsafe String(cString: strerror(code)))")
        throw ExitCode(code == ENOENT ? 127 : 126)
    }

    private var chosenIdentifier: String {
        identifier ?? command.first.flatMap { $0.split(separator: "/").last.map(String.init) } ?? ""
    }

    /// Sets the variables that were given with a value, and returns all that are told to the supervisor.
    private func setVariables() -> [String: String] {
        var names = Self.recordedVariables
        for variable in variables {
            let parts = variable.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let name = String(parts[0])
            if parts.count == 2 { unsafe setenv(name, String(parts[1]), 1) }
            names.append(name)
        }
        var recorded: [String: String] = [:]
        for name in names {
            guard let value = unsafe getenv(name) else { continue }
            recorded[name] = unsafe String(cString: value)
        }
        return recorded
    }

    private func currentDirectory() -> String? {
        guard let path = unsafe getcwd(nil, 0) else { return nil }
        defer { unsafe free(path) }
        return unsafe String(cString: path)
    }

    private func absolute(_ path: String, in directory: String) -> String {
        path.hasPrefix("/") ? path : "\(directory)/\(path)"
    }

    private func isIdentifier(_ text: String) -> Bool {
        (1...128).contains(text.utf8.count)
            && text.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"),
                    UInt8(ascii: "-"):
                    true
                default: false
                }
            }
    }
}
