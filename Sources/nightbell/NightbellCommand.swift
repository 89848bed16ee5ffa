import ArgumentParser

@main
struct NightbellCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nightbell",
        abstract: "Looks after a Nightbell supervisor and the clients that it lets sleep.",
        discussion: """
            The supervisor is found by --socket, else NIGHTBELL_SOCKET, else \
            $XDG_RUNTIME_DIR/nightbell/nightbell.sock if that exists, else /run/nightbell/nightbell.sock.

            Exit codes:
              0    done
              1    the request was refused; doctor: something is missing; validate: there are mistakes
              3    no supervisor can be reached, or it did not answer
              4    no such client
              5    permission denied
              64   the command line is wrong
              126  run: the command cannot be executed
              127  run: the command was not found
            """,
        version: nightbellVersion,
        subcommands: [
            StatusCommand.self, ListCommand.self, ShowCommand.self, WatchCommand.self, WakeCommand.self,
            SuspendCommand.self, QuitCommand.self, LaunchCommand.self, ForgetCommand.self, RunCommand.self,
            RelieveCommand.self, UpgradeCommand.self, ValidateCommand.self, DoctorCommand.self,
            ExplainCommand.self,
        ])
}

/// The version of these tools.
let nightbellVersion = "0.1.0"
