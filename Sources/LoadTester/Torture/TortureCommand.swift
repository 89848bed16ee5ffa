package import ArgumentParser
import CTorture

package struct TortureCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "torture",
        abstract:
            "Puts programs to sleep that do what is legal and unusual: is a wake-up lost, or a timer late?",
        discussion: """
            Each program is a nightbell-torture, started by `nightbell run --unmodified`: threads and processes that \
            wait, come and go in many ways. They are called while they sleep, while they fall asleep, and at random. Some more \
            run without Nightbell and are called in the same way, to tell its faults from the machine's. Needs root, for \
            cgroups.
            """)

    @Option(help: "Sleeps, of all programs together.")
    package var cycles = 10_000

    @Option(help: "Programs.")
    package var programs = 24

    @Option(help: "How often the supervisor's worker is killed meanwhile.")
    package var kills = 0

    @Option(
        name: .customLong("kind"),
        help: "Only threads and processes of this kind. Can be repeated.")
    var kinds: [TortureKind] = []

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        try require("--cycles", cycles, 1...10_000_000)
        try require("--programs", programs, 1...500)
        try require("--kills", kills, 0...1_000_000)
    }

    package func run() throws {
        let runDirectory = try common.runDirectory(.tortured(programs))
        let settings = TortureRun.Settings(
            cycles: cycles, programs: programs, kills: kills, kinds: kinds.isEmpty ? TortureKind.all : kinds,
            seed: common.seed)
        try common.present(try TortureRun(settings: settings, runDirectory: runDirectory).run())
    }
}

extension TortureKind: ExpressibleByArgument {
    package init?(argument: String) {
        guard let kind = TortureKind.all.first(where: { $0.name == argument }) else { return nil }
        self = kind
    }

    package static var allValueStrings: [String] { all.map(\.name) }
}
