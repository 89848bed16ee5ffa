package import ArgumentParser

package struct UnmodifiedCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "unmodified",
        abstract: "Calls sleeping programs that know nothing of Nightbell: packet → its answer.",
        discussion: """
            Each program is a nightbell-echo, started by `nightbell run --unmodified`. The floor has as many, frozen by \
            the load tester, and thawed by a bare C program that was given their sockets. Needs root, for cgroups.
            """)

    @Option(help: "Sleeping programs; the floor gets as many.")
    package var programs = 200

    @Option(help: "Rounds, each with a call to each program; the figures are medians of theirs.")
    package var rounds = 5

    @Option(help: "The kind of connections.")
    package var transport = Transport.tcp

    @Option(help: "How long to watch while all sleep.")
    package var idleSeconds = 60

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        try require("--programs", programs, Bounds.processes)
        try require("--rounds", rounds, Bounds.rounds)
        try require("--idle-seconds", idleSeconds, Bounds.seconds)
        guard transport.isStream else { throw ValidationError("--transport: unix or tcp") }
    }

    package func run() throws {
        let runDirectory = try common.runDirectory(.unmodified(programs))
        let settings = UnmodifiedRun.Settings(
            programs: programs, rounds: rounds, transport: transport, idleSeconds: idleSeconds,
            seed: common.seed)
        try common.present(try UnmodifiedRun(settings: settings, runDirectory: runDirectory).run())
    }
}
