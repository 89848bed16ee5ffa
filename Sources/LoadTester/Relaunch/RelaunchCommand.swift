package import ArgumentParser

package struct RelaunchCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "relaunch",
        abstract: "Calls dormant clients, which have no process: packet → first byte read by a new one.")

    @Option(help: "How clients would be stopped.")
    package var suspend = SuspensionMethod.cgroup

    @Option(help: "Dormant clients, each with a parked TCP connection; the floor gets as many.")
    package var clients = 1_000

    @Option(help: "A first population, to separate growth from the base.")
    package var firstClients = 100

    @Option(help: "Calls to each side in a round.")
    package var calls = 200

    @Option(help: "Rounds; the figures are medians of theirs.")
    package var rounds = 5

    @Flag(help: "Launch each phone with an environment of its own.")
    package var ownEnvironments = false

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        try require("--clients", clients, Bounds.dormant)
        try require("--first-clients", firstClients, 1...clients - 1)
        try require("--calls", calls, Bounds.calls)
        try require("--rounds", rounds, Bounds.rounds)
    }

    package func run() throws {
        let runDirectory = try common.runDirectory(.dormant(clients, running: DormantPhones.mostAtOnce))
        let settings = RelaunchRun.Settings(
            suspension: suspend, clients: clients, firstClients: firstClients, calls: calls, rounds: rounds,
            seed: common.seed, hasOwnEnvironments: ownEnvironments)
        try common.present(try RelaunchRun(settings: settings, runDirectory: runDirectory).run())
    }
}
