package import ArgumentParser

package struct PushCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "push",
        abstract: "Leaves messages for sleeping clients at the push service, with kills.",
        discussion: """
            Every other client can be launched. With kills, the gateway, the supervisor's worker and such clients are killed \
            in turn. A message counts as lost if it was answered with 201 and its client has not handled it. In a second \
            phase, messages of four topics come faster than the default hourly limit lets them through, and are merged.
            """)

    @Option(help: "Clients, each a process.")
    package var clients = 200

    @Option(help: "Messages, for clients that are drawn at random.")
    package var pushes = 4_000

    @Option(help: "Messages a second, at most.")
    package var rate = 500

    @Option(help: "Kills, spread over the run.")
    package var kills = 0

    @Option(help: "How clients are stopped.")
    package var suspend = SuspensionMethod.cgroup

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        try require("--clients", clients, 2...Bounds.processes.upperBound)
        try require("--pushes", pushes, 1...1_000_000)
        try require("--rate", rate, 1...100_000)
        try require("--kills", kills, 0...10_000)
    }

    package func run() throws {
        let settings = PushRun.Settings(
            suspension: suspend, clients: clients, pushes: pushes, rate: rate, kills: kills, seed: common.seed
        )
        let runDirectory = try common.runDirectory(.pushed(clients))
        try common.present(try PushRun(settings: settings, runDirectory: runDirectory).run())
    }
}
