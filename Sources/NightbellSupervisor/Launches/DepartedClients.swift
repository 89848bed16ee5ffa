import EventLoop
import Glibc
import Keeper
import Launching
import LinuxSystem
import Logging
import NightbellCore
import Suspension

/// A process that was a declared client, and runs on without its connection.
final class DepartedProcess {
    let process: ProcessHandle
    let startTime: UInt64
    /// When its connection ended, or this worker learned of it.
    let departedAt: Instant
    private let exit: Watch

    init(
        _ process: consuming ProcessHandle, startTime: UInt64, departedAt: Instant, loop: LoopExecutor
    ) throws {
        exit = try loop.watch(
            process.rawValue, .read, .oneShot,
            token: WatchToken(.reloaded, id: WatchToken.departed).rawValue)
        try exit.arm()
        self.process = process
        self.startTime = startTime
        self.departedAt = departedAt
    }

    /// Call it before the last reference goes: the loop watches the descriptor.
    func end() { exit.disarm() }
}

/// A declared client may lose its connection and run on: it closes it, or is disconnected for what it sends.
/// It is no client then, and has no sockets. If its process fails later without having come back, it is
/// launched again, as if it had failed as a client.
extension Supervisor {
    /// Called before a client that is forgotten loses its connection.
    func noteDeparture(_ client: ClientID, _ identifier: ClientIdentifier) {
        guard !supervision.isStopping, startingWithSupervisor(identifier) != nil,
            supervision.ownership(of: identifier)?.isQuit != true,
            let record = connection(of: client)?.client, record.ending == nil
        else { return }
        // It may have ended and been waited for. No process has started then, so the next worker finds none, either.
        let startTime = ProcFS.startTime(record.process.pid) ?? 0
        do {
            let process = try record.process.duplicate()
            watchDeparted(
                try DepartedProcess(process, startTime: startTime, departedAt: now, loop: loop), identifier)
            storeDeparted()
        } catch {
            warnOfDeparted(identifier, record.process.pid, error)
        }
    }

    /// The processes that another worker has noted.
    func continueWatchingDeparted() {
        for (name, process) in runtimeState.departed {
            guard let identifier = ClientIdentifier(name), startingWithSupervisor(identifier) != nil else {
                continue
            }
            do {
                let handle = try ProcessHandle(opening: process.pid, startedAt: process.startTime)
                watchDeparted(
                    try DepartedProcess(
                        handle, startTime: process.startTime, departedAt: now, loop: loop), identifier)
            } catch let error as SystemError where error.code == ESRCH {
                // It has ended between the two workers, and how is unknown, which counts as a failure.
                launchAgain(identifier)
            } catch {
                warnOfDeparted(identifier, process.pid, error)
            }
        }
        // The next worker must find one or the other.
        journal?.link.flush()
        storeDeparted()
    }

    /// Until when a declared client without a record is not launched, because its process may be about to connect again;
    /// nil: it is not.
    func mayReturn(_ identifier: ClientIdentifier) -> Instant? {
        let departedAt = launches.departed[identifier]?.departedAt
        let until = max(departedAt.map { $0 + Returning.patience } ?? now, launches.returning.others)
        return until > now ? until : nil
    }

    /// It may run on: a second process would do its work twice.
    private func warnOfDeparted(_ identifier: ClientIdentifier, _ pid: pid_t, _ error: any Error) {
        log(
            .launches, .warning, of: launches.declarations[identifier]?.registration.user,
            "\(identifier), pid \(pid), is not launched again if it fails: \(error)")
    }

    /// It has come back. The client's own record tells of its end: the exit status of a child can be read once only
    /// on kernels before 6.15.
    func forgetDeparture(of pid: pid_t, _ identifier: ClientIdentifier) {
        guard launches.departed[identifier]?.process.pid == pid else { return }
        launches.departed.removeValue(forKey: identifier)?.end()
        // The next worker must find one or the other.
        journal?.link.flush()
        storeDeparted()
    }

    private func watchDeparted(_ process: DepartedProcess, _ identifier: ClientIdentifier) {
        launches.departed.removeValue(forKey: identifier)?.end()
        launches.departed[identifier] = process
    }

    /// One of them has ended, or several.
    func departedEnded() {
        for (identifier, departed) in launches.departed where departed.process.hasExited {
            let ending = Self.ending(of: departed.process)
            departed.end()
            launches.departed[identifier] = nil
            if ending != .succeeded { launchAgain(identifier) }
        }
        // The next worker must find one or the other.
        journal?.link.flush()
        storeDeparted()
    }

    /// The pause is the longest one after a failure, so that they need not be counted: it may have lasted for
    /// days or be disconnected as soon as it is launched.
    private func launchAgain(_ identifier: ClientIdentifier) {
        guard !supervision.isStopping, let declaration = startingWithSupervisor(identifier),
            launches.returning.processes[identifier] == nil,
            supervision.ownership(of: identifier)?.isQuit != true, reserve(declaration) == nil
        else { return }
        let pause = configuration.settings.launches.retryMaximum
        log(
            .launches, .notice, of: declaration.registration.user,
            "\(identifier) has failed without its connection: it is launched again in \(pause.components.seconds) s"
        )
        var context = RequestContext(declaration: declaration)
        feed(
            .declare(declaration.registration, notBefore: now + pause, reasons: .launched), &context)
    }

    /// Also at the start of a supervisor, which launches those of an earlier one as all declared clients.
    func storeDeparted() {
        let processes = launches.departed.map { identifier, departed in
            (
                identifier: identifier.description,
                process: RuntimeState.Process(pid: departed.process.pid, startTime: departed.startTime)
            )
        }
        do throws(SystemError) {
            try runtimeState.setDeparted(processes)
        } catch {
            log(
                .state, .warning, of: nil,
                "cannot note which processes run without their connections: \(error)")
        }
    }
}
