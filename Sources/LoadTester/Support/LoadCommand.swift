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
            CallsCommand.self, SoakCommand.self, ChaosCommand.self, RelaunchCommand.self, OffloadCommand.self,
            ChatCommand.self, HostileCommand.self, UnmodifiedCommand.self, TransferCommand.self,
            PushCommand.self, GatewayCommand.self, TortureCommand.self,
        ])

    package init() {}

    /// Opens those of standard input, output and error that are closed, so that no socket gets their numbers.
    package static func holdStandardDescriptors() { cfloors_hold_standard_descriptors() }
}

/// Options of every subcommand.
package struct CommonOptions: ParsableArguments {
    @Flag(help: "Print one JSON object as the last line.")
    package var json = false

    @Option(help: ArgumentHelp("Write a page with pictures into this directory.", valueName: "directory"))
    package var report: String?

    @Flag(help: "Print no progress.")
    package var quiet = false

    @Option(
        name: .customLong("seed"),
        help: ArgumentHelp(
            "The same numbers for the same seed, where any are drawn; 1 by default.", valueName: "number"))
    package var givenSeed: UInt64?
    package var seed: UInt64 { givenSeed ?? 1 }

    @Option(
        help: ArgumentHelp("The directory of nightbelld; this program's by default.", valueName: "directory"))
    package var binaries: String?

    package init() {}

    package func validate() throws {
        guard report != "" else { throw ValidationError("--report: name a directory") }
    }

    /// - Parameter needs: a run that cannot have so many descriptors is refused.
    func runDirectory(_ needs: DescriptorNeeds = DescriptorNeeds()) throws -> RunDirectory {
        cfloors_catch_interrupts()
        let peers = try needs.peerProcesses(limit: Int(clamping: cfloors_raise_descriptor_limit()))
        try checkReport()
        let progress = Progress(quiet: quiet)
        if peers > 0 { progress.say("descriptors are few: the callers have \(peers) further processes") }
        return try RunDirectory(programs: binaries, peerProcesses: peers, progress: progress)
    }

    /// Throws before the run when the report cannot be written.
    func checkReport() throws {
        if let report { try ReportPage.prepare(report) }
    }

    func refuseSeed() throws {
        guard givenSeed == nil else { throw ValidationError("--seed: this run uses no random numbers") }
    }

    /// Prints the results in every requested form.
    func present(_ results: any Reportable) throws {
        var lines = [results.text]
        var failure: LoadError?
        if let report {
            do throws(LoadError) {
                lines += ["", "The report is in \(try ReportPage(results).write(into: report))"]
            } catch {
                // The results are printed even so.
                failure = error
            }
        }
        if json { lines.append(results.completeJSON.text) }
        Progress(quiet: quiet).clear()
        try writeAll(lines.joined(separator: "\n") + "\n", to: STDOUT_FILENO, "standard output")
        if let failure { throw failure }
    }
}

extension HostileKind: ExpressibleByArgument {}
extension SuspensionMethod: ExpressibleByArgument {}
extension Transport: ExpressibleByArgument {}
