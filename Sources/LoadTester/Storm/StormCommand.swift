package import ArgumentParser
import Glibc

package struct StormCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "storm",
        abstract: "Calls all sleeping clients at once: time to the last handler, and fairness.")

    @Option(help: "How clients are stopped.")
    package var suspend = SuspensionMethod.cgroup

    @Option(help: "The transport of the callers' packets.")
    package var transport = Transport.unix

    @Option(help: "Sleeping clients; the floor gets as many.")
    package var clients = 1_000

    @Option(help: "Rounds; the figures are medians of theirs.")
    package var rounds = 5

    @Option(
        help: ArgumentHelp(
            "Every other client runs under this uid; 65534 by default if root asks.", valueName: "uid")
    )
    package var secondUser: UInt32?

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        try require("--clients", clients, Bounds.processes)
        try require("--rounds", rounds, Bounds.rounds)
        guard let secondUser else { return }
        guard geteuid() == 0 else { throw ValidationError("--second-user: only root can do that") }
        // The largest number stands for no user.
        try require("--second-user", secondUser, 1...(.max - 1))
    }

    package func run() throws {
        let others = geteuid() == 0 ? secondUser ?? 65_534 : nil
        let runDirectory = try common.runDirectory(
            .called(clients, transport, suspend, areOthers: others != nil))
        let settings = StormRun.Settings(
            suspension: suspend, transport: transport, clients: clients, rounds: rounds, seed: common.seed,
            secondUser: others)
        try common.present(try StormRun(settings: settings, runDirectory: runDirectory).run())
    }
}
