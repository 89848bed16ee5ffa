import ArgumentParser
import Nightbell
import Presentation
import StatusReports

struct ReloadCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "reload",
        abstract: "Has the supervisor read its configuration and the manifests again.",
        discussion: """
            What can change does so at once, without a client noticing: most numbers, the log level, and manifests. A \
            client that is declared now is launched; one that is declared in another way is launched that way the next \
            time; one that is declared no more goes on as it is. Flags and the environment of the supervisor still count \
            before its file. What counts only from the next start is told.

            If the configuration cannot be used, nothing changes: exit code 1. The same if a manifest has mistakes: it \
            is told, and the others count.
            """)

    @OptionGroup var options: SupervisorOptions

    func run() throws {
        var isFlawless = true
        try options.withSupervisor { (administration: consuming Administration) throws(NightbellError) in
            let report = try administration.reload()
            isFlawless = report.problems.isEmpty
            emit(options.json ? [report.json.text] : Report.reload(report))
        }
        if !isFlawless { throw ExitCode(1) }
    }
}
