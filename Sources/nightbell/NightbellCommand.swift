import ArgumentParser
import Manifests

@main
struct NightbellCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nightbell",
        abstract: "Administers a Nightbell supervisor and its clients.",
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
            StatusCommand.self, ListCommand.self, ShowCommand.self, NotificationsCommand.self,
            WatchCommand.self, WakeCommand.self,
            SuspendCommand.self, QuitCommand.self, LaunchCommand.self, KillCommand.self, ForgetCommand.self,
            RunCommand.self, AdoptCommand.self, SimulateCommand.self, PushCommand.self, RelieveCommand.self,
            ReloadCommand.self,
            UpgradeCommand.self,
            ValidateCommand.self,
            DoctorCommand.self,
            ExplainCommand.self,
        ])

    /// Distinguishes an unknown command from a superfluous argument.
    static func main() {
        let names = configuration.subcommands.compactMap { $0.configuration.commandName }
        if let word = CommandLine.arguments.dropFirst().first, !word.hasPrefix("-"), word != "help",
            !names.contains(word)
        {
            let hint = Spelling.nearest(to: word, among: names).map { "did you mean nightbell \($0)?" }
            complain("unknown command '\(word)'; \(hint ?? "see nightbell --help")")
            exit(withError: ExitCode(64))
        }
        main(nil)
    }
}

/// The version of these tools.
let nightbellVersion = "0.1.0"
