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

    @Option(help: "Virtual time, with --virtual; 24 by default.")
    package var hours: Double?

    @Option(help: "Real time, without --virtual; 60 by default.")
    package var seconds: Int?

    @Option(help: "The shortest timeout, in seconds; 600 under the virtual clock, else 4.")
    package var shortest: Int?

    @Option(help: "The longest timeout, in seconds; 1800 under the virtual clock, else 12.")
    package var longest: Int?

    @Option(help: "The width of the windows, as a share of the timeout; with --virtual; 0.1 by default.")
    package var tolerance: Double?

    @Option(help: "How clients are stopped, without --virtual; cgroup by default.")
    package var suspend: SuspensionMethod?

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        if isVirtual {
            guard seconds == nil, suspend == nil else {
                throw ValidationError("--seconds and --suspend do not go with --virtual")
            }
        } else {
            guard hours == nil, tolerance == nil else {
                throw ValidationError("--hours and --tolerance go with --virtual")
            }
        }
        try require("--clients", clients ?? 1, isVirtual ? 1...100_000 : Bounds.processes)
        try require("--hours", hours ?? 1, 0.001...8_784)
        try require("--seconds", seconds ?? 1, Bounds.seconds)
        try require("--tolerance", tolerance ?? 0, 0...1)
        try require("--longest", timeouts.longest, 1...31_622_400)
        guard timeouts.shortest > 0, timeouts.shortest <= timeouts.longest else {
            throw ValidationError("--shortest is above 0 and not above --longest")
        }
    }

    private var timeouts: (shortest: Int, longest: Int) {
        (shortest ?? (isVirtual ? 600 : 4), longest ?? (isVirtual ? 1_800 : 12))
    }

    package func run() throws {
        let clients = clients ?? (isVirtual ? 1_000 : 100)
        let (hours, seconds, suspend) = (hours ?? 24, seconds ?? 60, suspend ?? .cgroup)
        var machine = Machine()
        let outcome: VirtualKeepAlive.Outcome
        if isVirtual {
            try common.checkReport()
            var run = VirtualKeepAlive(
                .init(
                    clients: clients, hours: hours, shortest: .seconds(timeouts.shortest),
                    longest: .seconds(timeouts.longest), tolerance: tolerance ?? 0.1, seed: common.seed))
            outcome = try run.run(Progress(quiet: common.quiet))
        } else {
            let settings = RealKeepAlive.Settings(
                suspension: suspend, clients: clients, seconds: seconds,
                shortest: .seconds(timeouts.shortest),
                longest: .seconds(timeouts.longest), seed: common.seed)
            let runDirectory = try common.runDirectory(.called(clients, .unix, suspend, hasFloor: false))
            outcome = try RealKeepAlive(settings: settings, runDirectory: runDirectory).run()
        }
        machine.finish()
        try common.present(
            KeepAliveResults(
                isVirtual: isVirtual, clients: clients, hours: isVirtual ? hours : Double(seconds) / 3_600,
                seed: common.seed, outcome: outcome, machine: machine))
    }
}
