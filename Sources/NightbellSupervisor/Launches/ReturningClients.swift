import Glibc
import Launching
import LinuxSystem
import Logging
import NightbellCore
import Suspension

extension RuntimeState.Process {
    var isThere: Bool {
        guard let statistics = ProcFS.statistics(pid), statistics.startTime == startTime else { return false }
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

/// Declared clients with processes that have outlived the previous supervisor: they are not launched for a
/// while.
struct Returning {
    var processes: [ClientIdentifier: RuntimeState.Process] = [:]
    /// When the missing ones are launched; nil: that time is over.
    var until: Instant?
    /// Other declared clients may have processes too that are about to reconnect: until then, none is launched
    /// for what comes.
    var others = Instant(nanoseconds: .min)

    /// Clients of the library try to reconnect at least every two seconds; a busy machine may take longer.
    static let patience: Duration = .seconds(5)
}

/// Launches declared clients without starting a second process for any.
extension Supervisor {
    /// Called once, when the supervisor begins to serve. Clients with a process that has outlived the last
    /// supervisor reconnect by themselves, and have some time for it.
    func launchDeclared() {
        storeDeparted()
        for declaration in configuration.declarations where declaration.startsWithSupervisor {
            guard let problem = declaration.launch.problem else { continue }
            let identifier = declaration.registration.identifier
            logger.error("\(identifier) cannot be launched as it is declared: \(problem)")
        }
        waitForReturn(of: runtimeState.returning.filter(\.process.isThere))
        if launches.returning.until == nil { setReturning([]) }
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
        waitForReturn(of: runtimeState.returning)
        continueWatchingDeparted()
    }

    private func waitForReturn(of clients: [(identifier: String, process: RuntimeState.Process)]) {
        launches.returning.others = now + Returning.patience
        let declared = Set(startingWithSupervisor.map(\.registration.identifier))
        for (name, process) in clients {
            guard let identifier = ClientIdentifier(name), declared.contains(identifier),
                supervision.client(named: identifier) == nil
            else { continue }
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
        (launches.returning.processes, launches.returning.until) = ([:], nil)
        setReturning([])
    }

    private func wasQuit(_ identifier: ClientIdentifier) -> Bool {
        supervision.ownership(of: identifier)?.isQuit ?? false
    }

    /// Quits a declared client that has no record. One that is about to reconnect is told when it does; nothing
    /// that comes for it launches it any more, and its transfers and issues are cancelled.
    ///
    /// - Returns: false if there is no such client.
    func quitAbsent(_ name: String, _ connection: Connection, _ request: UInt64) -> Bool {
        guard let identifier = ClientIdentifier(name), supervision.client(named: identifier) == nil,
            let declaration = launches.declarations[identifier],
            mayAct(.wake, on: declaration.registration.user, connection), reserve(declaration) == nil
        else { return false }
        feed(.quitAbsent(identifier, RequestKey(connection: connection.key, request: request)))
        return true
    }

    /// Whether the process of this connection was quit before it reconnected.
    func wasQuitBeforeReturn(_ identifier: ClientIdentifier, _ connection: Connection) -> Bool {
        launches.returning.processes[identifier]?.pid == connection.credentials.pid && wasQuit(identifier)
    }

    /// Called at the end: notes the processes that keep running and will reconnect to the next supervisor.
    func noteReturning() {
        // Another worker may have begun to stop, and have noted clients that have left since.
        let noted = Dictionary(runtimeState.returning, uniquingKeysWith: { first, _ in first })
        setReturning(
            startingWithSupervisor.compactMap { declaration in
                let identifier = declaration.registration.identifier
                let name = identifier.description
                if let process = process(of: identifier) { return (name, process) }
                guard supervision.client(named: identifier) == nil,
                    let process = launches.returning.processes[identifier] ?? noted[name], process.isThere
                else { return nil }
                return (name, process)
            })
        // No client is launched any more, and the notes stay as they are.
        launches.returning = Returning()
    }

    private func process(of identifier: ClientIdentifier) -> RuntimeState.Process? {
        // A client that was quit, and was told so, has to end, even if it reconnects before it has.
        guard let client = supervision.client(named: identifier),
            supervision.state(of: client) != .terminating || wasQuit(identifier),
            let connection = connection(of: client), let record = connection.client
        else { return nil }
        // Of a program as it is, the process comes back that speaks for it.
        let pid = record.programStart == nil ? record.process.pid : connection.credentials.pid
        guard let startTime = ProcFS.startTime(pid) else { return nil }
        return RuntimeState.Process(pid: pid, startTime: startTime)
    }

    private var startingWithSupervisor: [Declaration] {
        configuration.declarations.filter {
            launches.declarations[$0.registration.identifier] != nil && $0.keepsRunning
        }
    }

    /// The declaration of a client that is to run as long as the supervisor does; nil: there is none.
    func startingWithSupervisor(_ identifier: ClientIdentifier) -> Declaration? {
        launches.declarations[identifier].flatMap { $0.keepsRunning ? $0 : nil }
    }

    private func setReturning(_ processes: [(identifier: String, process: RuntimeState.Process)]) {
        do throws(SystemError) {
            try runtimeState.setReturning(processes)
        } catch {
            logger.warning("cannot note which clients still run for the next supervisor: \(error)")
        }
    }
}
