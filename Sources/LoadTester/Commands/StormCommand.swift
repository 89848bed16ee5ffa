package import ArgumentParser
import Glibc

package struct StormCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "storm",
        abstract: "Calls all sleeping clients at once: time to the last handler, and fairness.")

    @Option(help: "How clients are stopped.")
    package var suspend = SuspensionMethod.cgroup

    @Option(help: "What the callers' packets travel on.")
    package var transport = Transport.unix

    @Option(help: "Sleeping clients; the floor gets as many.")
    package var clients = 1_000

    @Option(help: "Rounds; the figures are medians of theirs.")
    package var rounds = 5

    @Option(help: ArgumentHelp("Every other client runs under this uid, if root asks.", valueName: "uid"))
    package var secondUser: UInt32 = 65_534

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        guard (1...4_000).contains(clients) else { throw ValidationError("--clients: from 1 to 4000") }
        guard rounds > 0 else { throw ValidationError("--rounds is at least 1") }
    }

    package func run() throws {
        let bench = try common.bench()
        let settings = StormRun.Settings(
            suspension: suspend, transport: transport, clients: clients, rounds: rounds, seed: common.seed,
            secondUser: geteuid() == 0 ? secondUser : nil)
        try common.tell(try StormRun(settings: settings, bench: bench).run())
    }
}
