import ArgumentParser
import Nightbell
import Presentation
import StatusReports

struct ReloadCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "reload",
        abstract: "Has the supervisor read its configuration and the manifests again.",
        discussion: """
            Most numbers, the log level, and manifests change at once, without a client noticing. A newly declared \
            client is launched; a changed declaration takes effect at the next launch; a client that is not declared \
            any more keeps running. Flags and the environment of the supervisor still count before its file. Changes \
            that need a restart are listed.

            If the configuration cannot be used, nothing changes: exit code 1. The same if a manifest has mistakes: they \
            are listed, and the other manifests count.
            """)

    @OptionGroup var options: SupervisorOptions

    func run() throws {
        var isFlawless = true
        try options.withSupervisor(within: .seconds(60)) {
            (administration: consuming Administration) throws(NightbellError) in
            let report = try administration.reload()
            isFlawless = report.problems.isEmpty
            emit(options.json ? [report.json.text] : Report.reload(report))
        }
        if !isFlawless { throw ExitCode(1) }
    }
}
