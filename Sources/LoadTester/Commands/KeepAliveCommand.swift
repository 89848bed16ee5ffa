package import ArgumentParser
import Nightbell

package struct KeepAliveCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "keepalive",
        abstract: "Many clients with keep-alive timeouts, against a timer for each.")

    @Flag(name: .customLong("virtual"), help: "On the supervisor's core alone, under a virtual clock.")
    package var isVirtual = false

    @Option(help: "Clients; 1000 under the virtual clock, else 100.")
    package var clients: Int?

    @Option(help: "Virtual time.")
    package var hours = 24.0

    @Option(help: "Real time, without --virtual.")
    package var seconds = 60

    @Option(help: "The shortest timeout, in seconds; 600 under the virtual clock, else 4.")
    package var shortest: Int?

    @Option(help: "The longest timeout, in seconds; 1800 under the virtual clock, else 12.")
    package var longest: Int?

    @Option(help: "The width of the windows, as a share of the timeout; with --virtual.")
    package var tolerance = 0.1

    @Option(help: "How clients are stopped, without --virtual.")
    package var suspend = SuspensionMethod.cgroup

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        guard clients ?? 1 > 0, hours > 0, seconds > 0, (0...1).contains(tolerance) else {
            throw ValidationError("--clients, --hours and --seconds are above 0, --tolerance from 0 to 1")
        }
        guard timeouts.shortest > 0, timeouts.shortest <= timeouts.longest else {
            throw ValidationError("--shortest is above 0 and not above --longest")
        }
    }

    private var timeouts: (shortest: Int, longest: Int) {
        (shortest ?? (isVirtual ? 600 : 4), longest ?? (isVirtual ? 1_800 : 12))
    }

    package func run() throws {
        let clients = clients ?? (isVirtual ? 1_000 : 100)
        var machine = Machine()
        let outcome: VirtualKeepAlive.Outcome
        if isVirtual {
            var run = VirtualKeepAlive(
                .init(
                    clients: clients, hours: hours, shortest: .seconds(timeouts.shortest),
                    longest: .seconds(timeouts.longest), tolerance: tolerance, seed: common.seed))
            outcome = try run.run(Progress(quiet: common.quiet))
        } else {
            let settings = RealKeepAlive.Settings(
                suspension: suspend, clients: clients, seconds: seconds,
                shortest: .seconds(timeouts.shortest),
                longest: .seconds(timeouts.longest), seed: common.seed)
            outcome = try RealKeepAlive(settings: settings, bench: try common.bench()).run()
        }
        machine.finish()
        try common.tell(
            KeepAliveResults(
                isVirtual: isVirtual, clients: clients, hours: isVirtual ? hours : Double(seconds) / 3_600,
                seed: common.seed, outcome: outcome, machine: machine))
    }
}
