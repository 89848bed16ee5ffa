package import ArgumentParser

package struct ParkCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "park",
        abstract:
            "Parks many sockets of few clients: what a socket and a client cost, even while nothing happens.")

    @Option(help: "How clients are stopped.")
    package var suspend = SuspensionMethod.cgroup

    @Option(help: "Parked sockets.")
    package var sockets = 15_000

    @Option(help: "A first population, to separate growth from the base.")
    package var firstSockets = 1_000

    @Option(help: "Clients that hold them.")
    package var clients = 20

    @Option(help: "Clients without sockets, to measure the cost of a client.")
    package var idleClients = 500

    @Option(help: "The kind of sockets.")
    package var transport = Transport.unix

    @Option(help: "How long to watch the idle supervisor.")
    package var idleSeconds = 10

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        try require("--clients", clients, Bounds.processes)
        try require("--idle-clients", idleClients, Bounds.processes)
        try require("--idle-seconds", idleSeconds, Bounds.seconds)
        try require("--sockets", sockets, Bounds.sockets)
        try require("--sockets, for each client", sockets / clients, Bounds.socketsOfOne)
        try common.refuseSeed()
        guard firstSockets > 10 * clients, firstSockets < sockets, firstSockets % (2 * clients) == 0,
            sockets % (2 * clients) == 0
        else {
            throw ValidationError(
                "--first-sockets < --sockets, both multiples of two sockets for each client and more than ten"
            )
        }
    }

    package func run() throws {
        let runDirectory = try common.runDirectory(.parked(sockets, clients: clients + idleClients))
        let settings = ParkRun.Settings(
            suspension: suspend, transport: transport, sockets: sockets, firstSockets: firstSockets,
            clients: clients, idleClients: idleClients, idleSeconds: idleSeconds)
        try common.present(try ParkRun(settings: settings, runDirectory: runDirectory).run())
    }
}
