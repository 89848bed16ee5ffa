package import ArgumentParser

package struct HostileCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "hostile",
        abstract: "Calls sleepers while other users attack the supervisor.",
        discussion: """
            As root, the attackers are users of their own; else they are the one that starts this, which has less to \
            fear from the supervisor's shares.
            """)

    @Option(help: "How clients are stopped.")
    package var suspend = SuspensionMethod.cgroup

    @Option(help: "Clients; half of them are called, half have a keep-alive.")
    package var clients = 20

    @Option(help: "How long each kind lasts.")
    package var seconds = 10

    @Option(
        name: .customLong("kind"),
        help: "Only this kind, beside the two without attack. Can be repeated.")
    var kinds: [HostileKind] = []

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        try require("--clients", clients, 2...100)
        try require("--seconds", seconds, 1...3_600)
    }

    package func run() throws {
        let runDirectory = try common.runDirectory(.called(clients, .unix, suspend, hasFloor: false))
        let settings = HostileRun.Settings(
            suspension: suspend, clients: clients, seconds: seconds,
            kinds: HostileKind.allCases.filter { !$0.isAttack || kinds.isEmpty || kinds.contains($0) },
            seed: common.seed)
        try common.present(try HostileRun(settings: settings, runDirectory: runDirectory).run())
    }
}
