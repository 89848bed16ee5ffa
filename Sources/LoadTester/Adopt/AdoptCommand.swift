package import ArgumentParser

package struct AdoptCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "adopt",
        abstract: "Hands sockets over as fast as the supervisor takes them.")

    @Option(help: "Sockets.")
    package var sockets = 15_000

    @Option(help: "Sockets in a packet; 250 is what the client library puts into one.")
    package var batch = 250

    @Option(help: "The kind of sockets.")
    package var transport = Transport.unix

    @Option(help: "Rounds; the figures are medians of theirs.")
    package var rounds = 5

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        try require("--batch", batch, 1...250)
        try require("--sockets", sockets, Bounds.socketsOfOne)
        try require("--rounds", rounds, Bounds.rounds)
        try common.refuseSeed()
        guard sockets % 2 == 0, sockets % batch == 0 else {
            throw ValidationError("--sockets is even, and a multiple of --batch")
        }
    }

    package func run() throws {
        let runDirectory = try common.runDirectory(.parked(sockets, clients: 1))
        let settings = AdoptRun.Settings(transport: transport, sockets: sockets, batch: batch, rounds: rounds)
        try common.present(try AdoptRun(settings: settings, runDirectory: runDirectory).run())
    }
}
