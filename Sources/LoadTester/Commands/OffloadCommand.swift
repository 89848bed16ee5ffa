package import ArgumentParser

package struct OffloadCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "offload",
        abstract: "Pings of many sockets, sent and answered for sleeping clients: what that costs.")

    @Option(help: "How clients are stopped.")
    package var suspend = SuspensionMethod.cgroup

    @Option(help: "Pinged sockets.")
    package var sockets = 15_000

    @Option(help: "Clients that own them.")
    package var clients = 5

    @Option(help: ArgumentHelp("Between two pings of one socket, such as 30s.", valueName: "seconds"))
    package var interval = "30s"

    @Option(help: "How long is measured, in intervals.")
    package var intervals = 2

    @OptionGroup package var common: CommonOptions

    package init() {}

    /// nil: it is none.
    private var seconds: Int? { Int(interval.hasSuffix("s") ? String(interval.dropLast()) : interval) }

    package func validate() throws {
        guard let seconds, (1...7_200).contains(seconds) else {
            throw ValidationError("--interval: from 1s to 7200s")
        }
        guard clients > 0, sockets > 0, sockets % clients == 0, intervals > 0 else {
            throw ValidationError("--sockets is a multiple of --clients, and --intervals at least 1")
        }
        guard sockets <= 18_000, sockets / clients <= 18_000 else {
            throw ValidationError("--sockets: at most 18000, as many as a process may have")
        }
    }

    package func run() throws {
        let bench = try common.bench()
        let settings = OffloadRun.Settings(
            suspension: suspend, sockets: sockets, clients: clients, intervalSeconds: seconds ?? 30,
            intervals: intervals)
        try common.tell(try OffloadRun(settings: settings, bench: bench).run())
    }
}
