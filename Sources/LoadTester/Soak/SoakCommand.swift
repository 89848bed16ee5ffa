package import ArgumentParser

package struct SoakCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "soak",
        abstract: "A mix of all for a long time: growth of memory, descriptors and latency.")

    @Option(help: "How clients are stopped.")
    package var suspend = SuspensionMethod.cgroup

    @Option(help: "The transport of the callers' packets.")
    package var transport = Transport.unix

    @Option(help: "Clients.")
    package var clients = 100

    @Option(help: "How long.")
    package var minutes = 10.0

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        try require("--clients", clients, Bounds.processes)
        try require("--minutes", minutes, 0.001...525_600)
    }

    package func run() throws {
        let runDirectory = try common.runDirectory(
            .called(clients, transport, suspend, hasFloor: false, passing: SoakRun.passingSockets))
        let settings = SoakRun.Settings(
            suspension: suspend, transport: transport, clients: clients, minutes: minutes, seed: common.seed)
        try common.present(try SoakRun(settings: settings, runDirectory: runDirectory).run())
    }
}
