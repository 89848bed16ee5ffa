import ArgumentParser
import Glibc
import Identifiers
import Launching
import LinuxSystem
import Manifests
import Nightbell
import NightbellWire
import Presentation
import SwiftProtobuf

struct RunCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run", abstract: "Starts a program as a client.",
        discussion: """
            The program replaces this process, except with --unmodified. It finds in its environment:
              NIGHTBELL_IDENTIFIER  the identifier to register
              NIGHTBELL_SOCKET      the supervisor's control socket
              NIGHTBELL_LAUNCH      how it was started, for the supervisor

            The supervisor gets, and `nightbell show` prints, the command, its directory and these variables: HOME, \
            LANG, LOGNAME, PATH, SHELL, TZ, USER, XDG_RUNTIME_DIR and those given by --env. Others stay private. \
            Together they may be \(WireLaunchSpecification.maximumBytes) bytes long.

            Programs that use the Nightbell library do all of this by themselves. The identifier of --identifier takes \
            precedence over that in the program's Hello.

            If the program does not send Hello to the supervisor in time (`launches.budget`), a warning is printed on \
            the standard error. On a terminal, Ctrl-C also reaches sleeping clients: they are woken for it.

            With --unmodified the program need not know Nightbell: this process stays as its parent and looks at it \
            from outside. When all of its threads wait, and have for the time of --idle, it is suspended with all of \
            its processes, and runs on as soon as one of the waits would end: a connection, input, a timer. Signals \
            to this process wake it and are passed on; its exit code is that of the program, or 128 and a signal's \
            number.
            """)

    /// Variables that a program needs to be started again in the same way, without secrets.
    private static let recordedVariables = [
        "HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TZ", "USER", "XDG_RUNTIME_DIR",
    ]

    @Option(
        help: "The identifier to register; without it, that in the program's Hello, or else its name.")
    var identifier: String?

    @Option(
        name: .customLong("env"),
        help: ArgumentHelp(
            "Record this variable too; with a value, set it as well.", valueName: "name[=value]"))
    var variables: [String] = []

    @Option(help: ArgumentHelp("The supervisor's control socket.", valueName: "path"))
    var socket: String?

    @Flag(help: "Suspend the program as it is, without its knowledge.")
    var unmodified = false

    @OptionGroup(title: "With --unmodified")
    var sleep: SleepOptions

    @Option(
        help: ArgumentHelp(
            "With --unmodified: a limit of the program's, as in a manifest.", valueName: "name=value",
            visibility: .hidden))
    var limit: [Limit] = []

    /// `NAME=NUMBER`, or `NAME=unlimited`.
    struct Limit: ExpressibleByArgument {
        let value: ResourceLimit

        init?(argument: String) {
            let parts = argument.split(separator: "=", maxSplits: 1)
            guard parts.count == 2,
                let resource = ResourceLimit.Resource.allCases.first(where: { "\($0)" == parts[0] }),
                let number = parts[1] == "unlimited" ? ResourceLimit.unlimited : UInt64(parts[1])
            else { return nil }
            value = ResourceLimit(resource, soft: number, hard: number)
        }
    }

    @Argument(parsing: .postTerminator, help: "The program and its arguments, after --.")
    var command: [String] = []

    func validate() throws {
        try validateSocketPath(socket)
        guard !command.isEmpty else {
            throw ValidationError("Give a command after --, such as: run -- softphone")
        }
        guard IdentifierRule.permits(chosenIdentifier) else {
            let advice = identifier == nil ? "; choose one with --identifier" : ""
            throw ValidationError(
                "'\(printable(chosenIdentifier))' is no identifier: \(IdentifierRule.text)\(advice)"
            )
        }
        guard unmodified || !sleep.isGiven && limit.isEmpty else {
            throw ValidationError(
                "--timers, --idle, --page-out, --first-byte and --profile go with --unmodified")
        }
        guard variables.allSatisfy({ $0.first != "=" && !$0.isEmpty }) else {
            throw ValidationError("--env needs a name, such as --env DISPLAY or --env LEVEL=3")
        }
    }

    func run() throws {
        let recorded = setVariables()
        let directory = currentDirectory() ?? "/"
        // The program may change its directory before it connects.
        let path = absolute(socket ?? Client.Configuration.defaultSocketPath(), in: directory)
        if unmodified { throw ExitCode(try runUnmodified(path)) }
        unsafe setenv("NIGHTBELL_IDENTIFIER", chosenIdentifier, 1)
        unsafe setenv("NIGHTBELL_SOCKET", path, 1)
        var launch = WireLaunchSpecification()
        // Even of a program that cannot be launched again: it takes precedence.
        if let identifier { launch.identifier = identifier }
        if let recorded, isCommandText, !directory.unicodeScalars.contains("\u{FFFD}") {
            record(recorded, directory, in: &launch)
        } else {
            complain(
                "not all of the command, its directory and variables is UTF-8: it cannot be launched again")
        }
        let bytes: [UInt8] = try launch.serializedBytes()
        // The supervisor would refuse the client, long after it was started.
        guard bytes.count <= WireLaunchSpecification.maximumBytes else {
            complain(
                """
                the command and its variables are too long to be recorded: \(bytes.count) bytes, of at most \
                \(WireLaunchSpecification.maximumBytes)
                """)
            throw ExitCode(1)
        }
        if bytes.isEmpty {
            unsafe unsetenv("NIGHTBELL_LAUNCH")
        } else {
            unsafe setenv("NIGHTBELL_LAUNCH", base64(bytes), 1)
        }

        RunWatch(program: command[0], socketPath: path, identifier: identifier).begin()
        // The arguments as they were written, even if they are not UTF-8.
        let first = Int(CommandLine.argc) - command.count
        let arguments = unsafe CommandLine.unsafeArgv + first
        if let program = unsafe arguments.pointee { unsafe execvp(program, arguments) }
        let code = errno
        complain("\(command[0]): \(unsafe String(cString: strerror(code)))")
        throw ExitCode(code == ENOENT ? 127 : 126)
    }

    /// - Returns: the exit code of the program.
    private func runUnmodified(_ path: String) throws -> Int32 {
        let isLaunched = Self.refuseConnection()
        // Those of another client would be taken for the program's own if it knows Nightbell after all.
        for name in [
            "NIGHTBELL_IDENTIFIER", "NIGHTBELL_LAUNCH", "NIGHTBELL_CONNECTION_FD", "NIGHTBELL_CONNECTION_PID",
        ] { unsafe unsetenv(name) }
        var options = UnmodifiedProgram.Options(identifier: chosenIdentifier, socketPath: path)
        options.sleep = sleep.values
        options.limits = limit.map(\.value)
        options.endsWithUs = isLaunched
        do {
            let arguments = unsafe CommandLine.unsafeArgv + (Int(CommandLine.argc) - command.count)
            return try unsafe UnmodifiedProgram.start(options, arguments).run(command[0])
        } catch let error as NightbellError {
            complain(error.description)
            throw ExitCode(error.exitCode)
        } catch let error as SystemError {
            complain("\(command[0]) cannot be run: \(error)")
            throw ExitCode(1)
        }
    }

    /// The supervisor makes a connection for each process that it launches, which the program must not
    /// inherit. Whatever speaks for a program makes its own.
    ///
    /// - Returns: whether the supervisor has launched this process.
    private static func refuseConnection() -> Bool {
        guard let process = Environment.value("NIGHTBELL_CONNECTION_PID"), pid_t(process) == getpid(),
            let descriptor = Environment.value("NIGHTBELL_CONNECTION_FD").flatMap({ CInt($0) })
        else { return false }
        guard fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0 else { return false }
        // Nor its protection from the OOM killer, which the supervisor takes back from its own children only.
        if let score = try? SmallFile.readText("/proc/self/oom_score_adj"), score.hasPrefix("-") {
            try? SmallFile.write("0", to: "/proc/self/oom_score_adj")
        }
        return true
    }

    /// How the supervisor can start the program again.
    private func record(
        _ variables: [String: String], _ directory: String, in launch: inout WireLaunchSpecification
    ) {
        launch.directory = directory
        launch.arguments = command
        // A plain name is looked up in PATH each time; a path is resolved here.
        if command[0].contains("/") { launch.arguments[0] = absolute(command[0], in: directory) }
        launch.environment = variables
    }

    /// Whether the arguments in `command` equal the original bytes, that is, are UTF-8.
    private var isCommandText: Bool {
        let first = Int(CommandLine.argc) - command.count
        return command.indices.allSatisfy { index in
            let text = unsafe CommandLine.unsafeArgv[first + index].flatMap {
                unsafe String(validatingCString: $0)
            }
            return text == command[index]
        }
    }

    private var chosenIdentifier: String {
        identifier ?? command.first.flatMap { $0.split(separator: "/").last.map(String.init) } ?? ""
    }

    /// Sets the variables that were given with a value, and returns all that are sent to the supervisor; nil:
    /// one of them is not UTF-8.
    private func setVariables() -> [String: String]? {
        var names = Self.recordedVariables
        for variable in variables {
            let parts = variable.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let name = String(parts[0])
            if parts.count == 2, let value = unsafe givenValue(variable) { unsafe setenv(name, value, 1) }
            names.append(name)
        }
        var recorded: [String: String] = [:]
        for name in names {
            guard let value = unsafe getenv(name) else { continue }
            guard let text = unsafe String(validatingCString: value) else { return nil }
            recorded[name] = text
        }
        return recorded
    }

    /// The value in an argument as it was written: in `variable`, bytes that are not UTF-8 are U+FFFD.
    @unsafe private func givenValue(_ variable: String) -> UnsafePointer<CChar>? {
        for index in (1..<Int(CommandLine.argc) - command.count).reversed() {
            guard let argument = unsafe CommandLine.unsafeArgv[index] else { continue }
            let text = unsafe String(cString: argument)
            let isWithOption = text == "--env=\(variable)"
            guard isWithOption || text == variable else { continue }
            let start = isWithOption ? "--env=".utf8.count : 0
            guard let sign = unsafe strchr(argument + start, CInt(UInt8(ascii: "="))) else { continue }
            return unsafe UnsafePointer(sign + 1)
        }
        return nil
    }

    /// With U+FFFD for bytes that are not UTF-8.
    private func currentDirectory() -> String? {
        guard let path = unsafe getcwd(nil, 0) else { return nil }
        defer { unsafe free(path) }
        return unsafe String(cString: path)
    }

    private func absolute(_ path: String, in directory: String) -> String {
        path.hasPrefix("/") ? path : "\(directory)/\(path)"
    }
}
