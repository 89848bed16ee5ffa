import Glibc
import Launching
import LinuxSystem
import Logging
import NightbellCore

/// A supervisor's notes for the next one, in the runtime directory: that it has served since the machine was started, and
/// which processes of declared clients kept running when it ended. Those reconnect by themselves.
///
/// It is text: a line with the version, one with the boot ID, and one for each process.
///
///     nightbell-run 1
///     boot 6c7e8b0e-…
///     4711 8234567 org.example.phone.alice
struct LastRun {
    struct Process {
        var pid: pid_t
        /// Tells it from a later process with the same pid.
        var startTime: UInt64

        var isThere: Bool {
            guard let statistics = ProcFS.statistics(pid), statistics.startTime == startTime else {
                return false
            }
            return statistics.state != "Z" && statistics.state != "X"
        }

        /// Its user has quit it, and it has not reconnected to be told.
        func ask(toEnd logger: Logger, _ identifier: ClientIdentifier) {
            do throws(SystemError) {
                let process = try ProcessHandle(opening: pid)
                guard isThere else { return }
                logger.notice("\(identifier), pid \(pid), was quit and has not come back: it is asked to end")
                try process.signal(SIGTERM)
            } catch {
                logger.debug("\(identifier), pid \(pid), has ended: \(error)")
            }
        }
    }

    private(set) var running: [(identifier: ClientIdentifier, process: Process)] = []

    private static let name = "/last-run"
    /// A longer file was not written by us.
    private static let sizeLimit = 16 << 20
    private static let magic = "nightbell-run 1"

    init(running: [(identifier: ClientIdentifier, process: Process)] = []) {
        self.running = running
    }

    /// The previous supervisor of the same directory; nil: there was none since the machine was started, or its
    /// file cannot be used.
    ///
    /// - Parameter onProblem: called with the reason if the file cannot be read.
    init?(in directory: String, onProblem: (String) -> Void) {
        let path = directory + Self.name
        do throws(SystemError) {
            let boot = try Self.boot()
            let bytes: [UInt8]
            switch try SmallFile.find(path, limit: Self.sizeLimit) {
            case .content(let content): bytes = content
            case .stranger(let what):
                onProblem("\(path): \(what)")
                return nil
            }
            let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n")
            guard lines.count >= 2, lines[0] == Self.magic, lines[1] == "boot \(boot)" else { return nil }
            for line in lines.dropFirst(2) {
                let fields = line.split(separator: " ")
                guard fields.count == 3, let pid = pid_t(fields[0]), let startTime = UInt64(fields[1]),
                    let identifier = ClientIdentifier(String(fields[2]))
                else { return nil }
                running.append((identifier, Process(pid: pid, startTime: startTime)))
            }
        } catch {
            if error.code != ENOENT { onProblem("\(error)") }
            return nil
        }
    }

    /// Writes it, as a whole or not at all. It is of no use after the machine has stopped, so it is not synced
    /// to the disk.
    func write(in directory: String) throws(SystemError) {
        let boot = try Self.boot()
        var text = "\(Self.magic)\nboot \(boot)\n"
        for (identifier, process) in running {
            text += "\(process.pid) \(process.startTime) \(identifier)\n"
        }
        let path = directory + Self.name
        unsafe unlink(path + ".new")
        let file = try OwnedDescriptor(
            opening: path + ".new", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600)
        let rawValue = file.rawValue
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let count = try systemCall("write \(path)") {
                unsafe rest.withUnsafeBytes { unsafe Glibc.write(rawValue, $0.baseAddress, $0.count) }
            }
            rest = rest.dropFirst(count)
        }
        file.close()
        _ = try systemCall("rename \(path)") { unsafe rename(path + ".new", path) }
    }

    /// The boot ID: identifies the time from one start of the machine to the next.
    static func boot() throws(SystemError) -> String {
        String(try SmallFile.readText("/proc/sys/kernel/random/boot_id").prefix { $0 != "\n" })
    }
}

/// Declared clients with processes that have outlived the previous supervisor: they are not launched for a while.
struct Returning {
    var processes: [ClientIdentifier: LastRun.Process] = [:]
    /// When the missing ones are launched; nil: that time is over.
    var until: Instant?

    /// Clients of the library try to reconnect at least every two seconds; a busy machine may take longer.
    static let patience: Duration = .seconds(5)
}

/// Launches declared clients without starting a second process for any.
extension Supervisor {
    /// Called once, when the supervisor begins to serve. Clients with a process that has outlived the last supervisor
    /// reconnect by themselves, and have some time for it.
    func launchDeclared() {
        for declaration in configuration.declarations where declaration.startsWithSupervisor {
            guard let problem = declaration.launch.problem else { continue }
            let identifier = declaration.registration.identifier
            logger.error("\(identifier) cannot be launched as it is declared: \(problem)")
        }
        let last = lastRun()
        waitForReturn(of: (last?.running ?? []).filter(\.process.isThere))
        if launches.returning.until == nil { store(LastRun()) }
        for declaration in startingWithSupervisor {
            let identifier = declaration.registration.identifier
            guard launches.returning.processes[identifier] == nil else { continue }
            guard !wasQuit(identifier) else {
                logger.notice("\(identifier) was quit since the machine was started, and is not launched")
                continue
            }
            declare(declaration, RequestKey(connection: 0, request: 0), isRequested: false)
        }
    }

    /// The same for a worker that replaces another one.
    func continueWaiting() {
        waitForReturn(of: lastRun()?.running ?? [])
    }

    private func lastRun() -> LastRun? {
        LastRun(in: configuration.runtimeDirectory) { problem in
            logger.warning("cannot tell which clients still run from before: \(problem)")
        }
    }

    private func waitForReturn(of running: [(identifier: ClientIdentifier, process: LastRun.Process)]) {
        let declared = Set(startingWithSupervisor.map(\.registration.identifier))
        for (identifier, process) in running
        where declared.contains(identifier) && supervision.client(named: identifier) == nil {
            launches.returning.processes[identifier] = process
        }
        guard !launches.returning.processes.isEmpty else { return }
        let count = launches.returning.processes.count
        logger.notice("waiting for declared clients to come back: \(count) still run")
        launches.returning.until = now + Returning.patience
    }

    /// Launches the clients that have not reconnected in time.
    func launchMissing() {
        guard let until = launches.returning.until, now >= until else { return }
        for declaration in startingWithSupervisor {
            let identifier = declaration.registration.identifier
            guard let process = launches.returning.processes[identifier] else { continue }
            guard !wasQuit(identifier) else {
                process.ask(toEnd: logger, identifier)
                continue
            }
            logger.notice("\(identifier) has not come back: it is launched")
            declare(declaration, RequestKey(connection: 0, request: 0), isRequested: false)
        }
        launches.returning = Returning()
        store(LastRun())
    }

    private func wasQuit(_ identifier: ClientIdentifier) -> Bool {
        supervision.ownership(of: identifier)?.isQuit ?? false
    }

    /// Quits a client that is about to reconnect: it is told when it does, and is not launched again.
    ///
    /// - Returns: false if no such client is about to reconnect.
    func quitReturning(_ name: String, _ connection: Connection, _ request: UInt64) -> Bool {
        guard let identifier = ClientIdentifier(name), supervision.client(named: identifier) == nil,
            launches.returning.processes[identifier] != nil,
            isAdministrator(connection)
                || launches.declarations[identifier]?.registration.user == connection.credentials.uid
        else { return false }
        feed(.quitAbsent(identifier, RequestKey(connection: connection.key, request: request)))
        return true
    }

    /// Whether the process of this connection was quit before it reconnected.
    func wasQuitBeforeReturn(_ identifier: ClientIdentifier, _ connection: Connection) -> Bool {
        launches.returning.processes[identifier]?.pid == connection.credentials.pid && wasQuit(identifier)
    }

    /// Called at the end: notes the processes that keep running and will reconnect to the next supervisor.
    func noteRunning() {
        var running: [(identifier: ClientIdentifier, process: LastRun.Process)] = []
        for declaration in startingWithSupervisor {
            let identifier = declaration.registration.identifier
            if let process = launches.returning.processes[identifier], process.isThere {
                running.append((identifier, process))
            } else if let process = process(of: identifier) {
                running.append((identifier, process))
            }
        }
        store(LastRun(running: running))
        // No client is launched any more, and the notes stay as they are.
        launches.returning = Returning()
    }

    private func process(of identifier: ClientIdentifier) -> LastRun.Process? {
        // A client that was quit, and was told so, has to end, even if it reconnects before it has.
        guard let client = supervision.client(named: identifier),
            supervision.state(of: client) != .terminating || wasQuit(identifier),
            let pid = connection(of: client)?.client?.process.pid, let startTime = ProcFS.startTime(pid)
        else { return nil }
        return LastRun.Process(pid: pid, startTime: startTime)
    }

    private var startingWithSupervisor: [Declaration] {
        configuration.declarations.filter { declaration in
            declaration.startsWithSupervisor && declaration.registration.modes.contains(.voip)
                && launches.declarations[declaration.registration.identifier] != nil
        }
    }

    /// Without declarations there is nothing to tell the next supervisor.
    private func store(_ run: LastRun) {
        guard !configuration.declarations.isEmpty else { return }
        do throws(SystemError) {
            try run.write(in: configuration.runtimeDirectory)
        } catch {
            logger.warning("cannot note which clients still run for the next supervisor: \(error)")
        }
    }
}
