import ArgumentParser
import Nightbell
import Presentation
import StatusReports

struct WakeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "wake", abstract: "Wakes a suspended client, or notifies a running one.")

    @OptionGroup var target: Target

    func run() throws {
        try target.act("wake") { administration, client throws(NightbellError) in
            try administration.wake(client)
        }
    }
}

struct SuspendCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "suspend", abstract: "Begins the suspension of a client in the background.",
        discussion: "Linger time is skipped; background tasks and media still delay it.")

    @OptionGroup var target: Target

    func run() throws {
        try target.act("suspend") { administration, client throws(NightbellError) in
            try administration.suspend(client)
        }
    }
}

struct QuitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "quit", abstract: "Ends a client, as its user would.",
        discussion: "A running client is notified; a suspended one is killed.")

    @OptionGroup var target: Target

    func run() throws {
        try target.act("quit") { administration, client throws(NightbellError) in
            try administration.quit(client)
        }
    }
}

struct LaunchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "launch", abstract: "Launches a client that has no process.",
        discussion: """
            The client is dormant, or declared by a manifest. Does nothing if it runs.
            """)

    @OptionGroup var target: Target

    func run() throws {
        try target.act("launch") { administration, client throws(NightbellError) in
            try administration.launch(client)
        }
    }
}

struct ForgetCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "forget", abstract: "Forgets a client that has no process.",
        discussion: """
            Its parked sockets are closed, its saved state is dropped, and another user may take its identifier.
            """)

    @OptionGroup var target: Target

    func run() throws {
        try target.act("forget") { administration, client throws(NightbellError) in
            try administration.forget(client)
        }
    }
}

struct RelieveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "relieve",
        abstract: "Ends a few of the largest suspended clients that can be launched again.",
        discussion: """
            As the supervisor does by itself when memory is short (memoryPressure.endsAtOnce at a time). An event on a \
            surviving socket launches the client again.
            """)

    @OptionGroup var options: SupervisorOptions

    func run() throws {
        try options.withSupervisor { (administration: consuming Administration) throws(NightbellError) in
            try administration.relieveMemory()
        }
        if options.json { emit(["request": "relieve", "done": true]) }
    }
}

struct UpgradeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "upgrade",
        abstract: "Replaces the supervisor's program by the one that is now installed at its path.",
        discussion: """
            Clients and their peers lose nothing. A program that does not start, or cannot take over within five \
            seconds, is stopped, and nothing changes: exit code 1. While the started program is tried, requests wait \
            and are handled afterwards.
            """)

    @OptionGroup var options: SupervisorOptions

    func run() throws {
        try options.withSupervisor { (administration: consuming Administration) throws(NightbellError) in
            let status = try administration.upgrade()
            if options.json {
                emit(status.json)
            } else {
                emit(["version \(status.version) serves, process \(status.processID)"])
            }
        }
    }
}

/// The client that a command acts on.
struct Target: ParsableArguments {
    @Argument(help: "The client's identifier.") var client: String
    @OptionGroup var options: SupervisorOptions

    func act(
        _ verb: String, _ body: (inout Administration, String) throws(NightbellError) -> Void
    ) throws(ExitCode) {
        try options.withSupervisor(about: client) {
            (administration: consuming Administration) throws(NightbellError) in
            try body(&administration, client)
        }
        if options.json {
            emit(["request": .string(verb), "identifier": .string(client), "done": true])
        }
    }
}
