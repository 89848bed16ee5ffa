package import ArgumentParser

package struct WakeCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "wake",
        abstract: "Calls sleeping clients one at a time: packet → first byte read by the handler.")

    @Option(help: "How clients are stopped.")
    package var suspend = SuspensionMethod.cgroup

    @Option(help: "The transport of the callers' packets.")
    package var transport = Transport.unix

    @Option(help: "Sleeping clients; the floor gets as many.")
    package var clients = 200

    @Option(help: "Calls to each side in a round.")
    package var calls = 1_000

    @Option(help: "Rounds; the figures are medians of theirs.")
    package var rounds = 5

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        try require("--clients", clients, Bounds.processes)
        try require("--calls", calls, Bounds.calls)
        try require("--rounds", rounds, Bounds.rounds)
    }

    package func run() throws {
        let runDirectory = try common.runDirectory(.called(clients, transport, suspend))
        let settings = WakeRun.Settings(
            suspension: suspend, transport: transport, clients: clients, calls: calls, rounds: rounds,
            seed: common.seed)
        try common.present(try WakeRun(settings: settings, runDirectory: runDirectory).run())
    }
}
