import ArgumentParser
import Nightbell
import Presentation

struct WakeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "wake", abstract: "Wakes a suspended client, or tells a running one.")

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
        discussion: "Linger time is skipped; background tasks and media still hold it off.")

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
        discussion: "A running client is given notice; a suspended one ends without.")

    @OptionGroup var target: Target

    func run() throws {
        try target.act("quit") { administration, client throws(NightbellError) in
            try administration.quit(client)
        }
    }
}

struct UpgradeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "upgrade",
        abstract: "Replaces the supervisor's program by the one that is at its place on disk now.",
        discussion: """
            Clients and their peers notice nothing. A program that does not start, or cannot take over within five \
            seconds, is given up, and everything goes on as it was: exit code 1.
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

/// The client that a command does something to.
struct Target: ParsableArguments {
    @Argument(help: "The client's identifier.") var client: String
    @OptionGroup var options: SupervisorOptions

    func act(
        _ verb: String, _ body: (inout Administration, String) throws(NightbellError) -> Void
    ) throws(ExitCode) {
        try options.withSupervisor { (administration: consuming Administration) throws(NightbellError) in
            try body(&administration, client)
        }
        if options.json {
            emit(["request": .string(verb), "identifier": .string(client), "done": true])
        }
    }
}
