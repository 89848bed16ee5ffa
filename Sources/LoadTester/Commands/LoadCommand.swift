package import ArgumentParser
import CFloors
import Glibc
import Presentation

/// `nightbell-load`.
package struct LoadCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "nightbell-load",
        abstract: "Measures how a fleet of sleeping clients behaves under load.",
        discussion: """
            Each run starts a supervisor, clients and callers of its own and ends them again. Where there is \
            one, the floor is measured in the same run: a bare C program that does the least that any \
            implementation must do. --json prints one object as the last line; --report DIR writes a page with \
            pictures.

            Exit codes: 0 the run was made, whatever it showed; 1 it could not be made, or was interrupted; \
            64 the command line is wrong.
            """,
        subcommands: [
            WakeCommand.self, StormCommand.self, ParkCommand.self, AdoptCommand.self, KeepAliveCommand.self,
            CallsCommand.self, SoakCommand.self, ChaosCommand.self, OffloadCommand.self,
        ])

    package init() {}
}

/// What every subcommand takes.
package struct CommonOptions: ParsableArguments {
    @Flag(help: "Print one JSON object as the last line.")
    package var json = false

    @Option(help: ArgumentHelp("Write a page with pictures into this directory.", valueName: "directory"))
    package var report: String?

    @Flag(help: "Say nothing on the way.")
    package var quiet = false

    @Option(help: ArgumentHelp("The same numbers for the same seed.", valueName: "number"))
    package var seed: UInt64 = 1

    @Option(
        help: ArgumentHelp("Where nightbelld is; beside this program by default.", valueName: "directory"))
    package var programs: String?

    package init() {}

    func bench() throws -> Workbench {
        cfloors_catch_interrupts()
        _ = cfloors_raise_descriptor_limit()
        return try Workbench(programs: programs, progress: Progress(quiet: quiet))
    }

    /// Tells the results in every way that was asked for.
    func tell(_ results: any Reportable) throws {
        print(results.text)
        if let report {
            print("", "The report is in \(try Page(results).write(into: report))", separator: "\n")
        }
        if json { print(results.completeJSON.text) }
        fflush(nil)
    }
}

extension SuspensionMethod: ExpressibleByArgument {}
extension Transport: ExpressibleByArgument {}
