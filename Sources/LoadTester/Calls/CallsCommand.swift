package import ArgumentParser

package struct CallsCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "calls",
        abstract: "Rings sleeping softphones through a SIP proxy, at a Poisson rate.")

    @Option(help: "How phones are stopped.")
    package var suspend = SuspensionMethod.cgroup

    @Option(help: "tcp or udp.")
    package var transport = Transport.tcp

    @Option(help: "Phones.")
    package var clients = 50

    @Option(help: "Calls.")
    package var calls = 300

    @Option(help: "Calls a second, on average.")
    package var rate = 20.0

    @Option(help: ArgumentHelp("How long a call lasts, on average.", valueName: "seconds"))
    package var meanLength = 0.5

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        guard transport != .unix else { throw ValidationError("SIP goes by tcp or udp") }
        try require("--clients", clients, 1...2_000)
        try require("--calls", calls, Bounds.calls)
        try require("--rate", rate, 0.001...10_000)
        try require("--mean-length", meanLength, 0.001...3_600)
    }

    package func run() throws {
        let runDirectory = try common.runDirectory(.parked(clients, clients: clients))
        let settings = CallsRun.Settings(
            suspension: suspend, transport: transport, clients: clients, calls: calls, rate: rate,
            meanLength: .seconds(meanLength), seed: common.seed)
        let common = common
        // Everything happens on the main thread, which is this one.
        try MainActor.assumeIsolated {
            try common.present(try CallsRun(settings: settings, runDirectory: runDirectory).run())
        }
    }
}
