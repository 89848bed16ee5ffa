import ArgumentParser
import Nightbell
import Presentation
import StatusReports

struct NotificationsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "notifications",
        abstract: "The local notifications of clients, also of those that do not run.",
        discussion: """
            pending: its time is still to come. waiting: its time has come, and no notification server shows it yet. shown: it is \
            shown, and can be activated.
            """)

    @Argument(help: "Only this client's.") var client: String?
    @OptionGroup var options: SupervisorOptions

    func run() throws {
        try options.withSupervisor(about: client) {
            (administration: consuming Administration) throws(NightbellError) in
            let notifications = try administration.notifications(of: client)
            if options.json {
                emit(.array(notifications.map(\.json)))
            } else {
                emit(Report.notifications(notifications, width: terminalWidth, paint: paint))
            }
        }
    }
}
