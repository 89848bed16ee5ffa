package import ArgumentParser

package struct OffloadCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "offload",
        abstract: "The cost of sending and answering pings of many sockets for sleeping clients.")

    @Option(help: "How clients are stopped.")
    package var suspend = SuspensionMethod.cgroup

    @Option(help: "Pinged sockets.")
    package var sockets = 15_000

    @Option(help: "Clients that own them.")
    package var clients = 5

    @Option(help: ArgumentHelp("Between two pings of one socket, such as 30s.", valueName: "seconds"))
    package var interval = "30s"

    @Option(help: "The duration of the measurement, in intervals.")
    package var intervals = 2

    @OptionGroup package var common: CommonOptions

    package init() {}

    /// nil: not a duration.
    private var seconds: Int? { Int(interval.hasSuffix("s") ? String(interval.dropLast()) : interval) }

    package func validate() throws {
        guard let seconds, Self.pauses.contains(seconds) else {
            throw ValidationError("--interval: from \(Self.pauses.lowerBound)s to \(Self.pauses.upperBound)s")
        }
        try require("--intervals", intervals, Bounds.rounds)
        try require("--interval, --intervals times", seconds * intervals, Bounds.seconds)
        try require("--clients", clients, Bounds.processes)
        try require("--sockets", sockets, Bounds.sockets)
        try require("--sockets, for each client", sockets / clients, 1...Bounds.socketsOfOne.upperBound)
        try common.refuseSeed()
        guard sockets % clients == 0 else {
            throw ValidationError("--sockets is a multiple of --clients")
        }
    }

    /// The limits of profiles.
    private static let pauses = 1...7_200

    package func run() throws {
        let runDirectory = try common.runDirectory(.pinged(sockets, clients: clients))
        let settings = OffloadRun.Settings(
            suspension: suspend, sockets: sockets, clients: clients, intervalSeconds: seconds ?? 30,
            intervals: intervals)
        try common.present(try OffloadRun(settings: settings, runDirectory: runDirectory).run())
    }
}
