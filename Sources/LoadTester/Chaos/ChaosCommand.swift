package import ArgumentParser

package struct ChaosCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "chaos",
        abstract:
            "Kills, stops and upgrades the supervisor and crashes clients, under traffic: is anything lost?")

    @Option(help: "How clients are stopped.")
    package var suspend = SuspensionMethod.cgroup

    @Option(help: "The transport of the streams: unix or tcp.")
    package var transport = Transport.tcp

    @Option(help: "Clients.")
    package var clients = 200

    @Option(help: "Sockets of all clients together.")
    package var sockets = 5_000

    @Option(help: "How often the worker is killed.")
    package var kills = 200

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        try require("--clients", clients, Bounds.processes)
        try require("--kills", kills, Bounds.kills)
        guard transport.isStream else { throw ValidationError("--transport: unix or tcp") }
        // A client hands all of its sockets over in one packet, and inherits them in one launch.
        try require("--sockets, for each client", sockets / clients, 1...250)
    }

    package func run() throws {
        let runDirectory = try common.runDirectory(.parked(sockets, clients: clients))
        let settings = ChaosRun.Settings(
            suspension: suspend, transport: transport, clients: clients, sockets: sockets, kills: kills,
            seed: common.seed)
        try common.present(try ChaosRun(settings: settings, runDirectory: runDirectory).run())
    }
}
