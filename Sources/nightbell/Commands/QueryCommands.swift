import ArgumentParser
import Glibc
import Nightbell
import Presentation
import StatusReports

struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status", abstract: "Shows the state of the supervisor.")

    @OptionGroup var options: SupervisorOptions

    func run() throws {
        try options.withSupervisor { (administration: consuming Administration) throws(NightbellError) in
            let status = try administration.status()
            if options.json {
                emit(status.json)
            } else {
                let path = administration.socketPath
                emit(Report.status(status, socketPath: path, width: terminalWidth, paint: paint))
            }
        }
    }
}

struct ListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "All clients, with their states.",
        discussion: """
            A terminal that is too narrow shows fewer columns. With --json: one array of objects, and with --watch one \
            such line a second.
            """)

    @Flag(help: "Show it again every second, until you press Ctrl-C or the supervisor ends.")
    var watch = false
    @OptionGroup var options: SupervisorOptions

    func run() throws {
        try options.withSupervisor { (administration: consuming Administration) throws(NightbellError) in
            var isFirst = true
            repeat {
                let clients = try administration.list()
                if options.json {
                    emit(.array(clients.map { $0.json(detailed: false) }))
                } else if watch {
                    showAgain(clients, isFirst: isFirst)
                } else {
                    emit(Report.list(clients, width: terminalWidth, paint: paint))
                }
                isFirst = false
            } while watch && pause()
        }
    }

    private func pause() -> Bool {
        poll(nil, 0, 1_000)
        return true
    }

    /// Replaces the earlier output, as far as the terminal is high; a pipe gets one table after the other.
    private func showAgain(_ clients: [ClientInfo], isFirst: Bool) {
        let asleep = clients.count { $0.state == .suspended }
        var lines = ["\(clients.count) client\(clients.count == 1 ? "" : "s"), \(asleep) asleep", ""]
        lines += Report.list(clients, width: terminalWidth, paint: paint)
        guard let size = terminalSize, movesCursor else { return emit(lines + [""]) }
        let room = max(1, Int(size.ws_row) - 1)
        if lines.count > room {
            let hidden = lines.count - room + 1
            lines.removeLast(hidden)
            lines.append(shortened("… and \(hidden) more lines", to: Int(size.ws_col)))
        }
        emit(text: repainted(lines, isFirst: isFirst))
    }
}

struct ShowCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show", abstract: "Shows one client in detail, sockets included.")

    @Argument(help: "The client's identifier.") var client: String
    @OptionGroup var options: SupervisorOptions

    func run() throws {
        try options.withSupervisor(about: client) {
            (administration: consuming Administration) throws(NightbellError) in
            let info = try administration.show(client)
            if options.json {
                emit(info.json(detailed: true))
            } else {
                emit(Report.show(info, width: terminalWidth, paint: paint))
            }
        }
    }
}

struct WatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch", abstract: "Prints events of clients as they happen.",
        discussion: "With --json: one object a line. It ends with exit code 3 when the supervisor does.")

    @Argument(help: "Only this client.") var client: String?
    @OptionGroup var options: SupervisorOptions

    func run() throws {
        try options.withSupervisor { (administration: consuming Administration) throws(NightbellError) in
            var events = try administration.watch(client)
            if let client { reportAbsence(of: client) }
            while let event = try events.next() {
                if options.json {
                    emit(event.json)
                } else {
                    let clock = timeOfDay(event.unixNanoseconds)
                    emit(Report.event(event, clock: clock, width: terminalWidth, paint: paint))
                }
            }
            throw NightbellError(.connectionLost, "the supervisor was stopped or replaced")
        }
    }

    /// A client may be watched before it comes, but a misspelled one never does.
    private func reportAbsence(of client: String) {
        do throws(NightbellError) {
            var administration = try Administration(socketPath: options.socket)
            _ = try administration.show(client)
        } catch {
            guard error.code == .noSuchClient else { return }
            let suggestion = options.suggestion(for: client)
            complain("\(client) is not there yet; its events are shown when it comes.\(suggestion)")
        }
    }
}

/// `15:04:05.123` in the local time zone.
private func timeOfDay(_ unixNanoseconds: UInt64) -> String {
    var seconds = time_t(unixNanoseconds / 1_000_000_000)
    var broken = unsafe tm()
    guard unsafe localtime_r(&seconds, &broken) != nil else { return "--:--:--" }
    let clock = unsafe [broken.tm_hour, broken.tm_min, broken.tm_sec].map { padded(Int($0), 2) }
    return clock.joined(separator: ":") + "." + padded(Int(unixNanoseconds / 1_000_000 % 1_000), 3)
}

private func padded(_ number: Int, _ width: Int) -> String {
    let digits = String(number)
    return String(repeating: "0", count: max(0, width - digits.count)) + digits
}
