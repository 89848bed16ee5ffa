package import ArgumentParser

package struct TransferCommand: ParsableCommand {
    package static let configuration = CommandConfiguration(
        commandName: "transfer",
        abstract:
            "Downloads files for clients that sleep or have no process, with kills; without kills, against curl.",
        discussion: """
            With kills, each session is one of a client under a supervisor: every other one is suspended, the others \
            have ended. The transfer process, the supervisor's worker and sleeping clients are killed in turn. Each \
            session is to be told in one wake.

            The server is nginx, which must be installed, and so must curl. The files and the copies lie in the run's \
            directory (TMPDIR).
            """)

    @Option(help: "Files to download.")
    package var files = 100

    @Option(help: ArgumentHelp("Bytes of all files together, as 256MiB.", valueName: "size"))
    package var bytes = "64MiB"

    @Option(help: "Kills, spread over the run. 0: no client sleeps, and the time is compared with curl's.")
    package var kills = 0

    @Option(
        help: "Without kills: downloads of all files by either side, which take turns at being the first.")
    package var rounds = 3

    @Option(help: "Sessions with these files; with kills, as many clients.")
    package var sessions = 10

    @Option(help: "With kills: how clients are stopped.")
    package var suspend = SuspensionMethod.cgroup

    @Option(help: "Downloads at the same time, of either side.")
    package var parallel = 16

    @OptionGroup package var common: CommonOptions

    package init() {}

    package func validate() throws {
        try require("--files", files, 1...9_000)
        try require("--kills", kills, 0...Bounds.kills.upperBound)
        try require("--rounds", rounds, 1...100)
        try require("--sessions", sessions, 1...min(files, 100))
        try require("--parallel", parallel, 1...256)
        guard let bytes = Self.size(bytes), (files...(1 << 40)).contains(bytes) else {
            throw ValidationError("--bytes: a number with KiB, MiB or GiB, at least one byte a file")
        }
    }

    package func run() throws {
        let settings = TransferRun.Settings(
            files: files, bytes: Self.size(bytes) ?? 0, kills: kills, rounds: rounds, sessions: sessions,
            parallel: parallel,
            seed: common.seed, suspension: suspend)
        let runDirectory = try common.runDirectory(.transferred(files))
        try common.present(try TransferRun(settings: settings, runDirectory: runDirectory).run())
    }

    /// In bytes.
    static func size(_ text: String) -> Int? {
        let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("", 1)]
        for (name, factor) in units where text.hasSuffix(name) {
            guard let number = Int(text.dropLast(name.count)), number >= 0 else { return nil }
            let product = number.multipliedReportingOverflow(by: factor)
            return product.overflow ? nil : product.partialValue
        }
        return nil
    }
}
