import Glibc
import LinuxSystem
import Logging
import NightbellCore
import NightbellWire
import Suspension

/// Clients that are programs as they are, which another process speaks for (`nightbell run --unmodified`).
extension Supervisor {
    /// The pid of the client to be.
    func clientPID(_ hello: WireHello, _ connection: Connection) -> pid_t {
        hello.hasProgram ? pid_t(clamping: hello.program.processID) : connection.credentials.pid
    }

    /// Why a program cannot be a client of this connection's user; nil: it can.
    func problem(of program: WireProgram, _ connection: Connection) -> String? {
        let pid = pid_t(clamping: program.processID)
        let user = connection.credentials.uid
        guard pid > 1, pid != getpid(), pid != getppid(), pid != connection.credentials.pid else {
            return "pid \(program.processID) cannot be a program of this connection"
        }
        guard connection.launched == nil else {
            return "whatever speaks for a program needs a connection that it has made itself"
        }
        // A set-user-ID program has the real uid of its user, and is none of its user's to stop.
        guard user == 0 || ProcFS.ownsAll(pid, user) else { return "pid \(pid) is not of uid \(user)" }
        return nil
    }

    /// The process of the client that says Hello.
    func process(of connection: Connection, _ hello: WireHello) throws(SystemError) -> ProcessHandle {
        guard hello.hasProgram else { return try process(of: connection) }
        return try ProcessHandle(
            opening: clientPID(hello, connection), startedAt: hello.program.startTime)
    }

    /// Puts an unmodified program into its cgroup before it is welcomed, with the descendants that it has already. Those that
    /// it starts later begin there.
    func attachProgram(_ client: ClientID, _ record: ServedClient) {
        guard record.programStart != nil, record.obstacle == nil else { return }
        do {
            try suspender.attach(slot: client.slot, process: record.process)
            try include(descendantsOf: record.process.pid, client, generations: Self.mostGenerations)
        } catch {
            guard error.code != .notPermitted else { return reportPermissionDenied(client, record, error) }
            log(
                .suspension, .warning, of: supervision.user(of: client),
                "cannot prepare to suspend \(record.identifier): \(error)")
        }
    }

    private static let mostGenerations = 16

    private func include(
        descendantsOf pid: pid_t, _ client: ClientID, generations: Int
    ) throws(SuspensionError) {
        guard generations > 0 else { return }
        for child in ProcFS.children(pid) {
            try suspender.include(slot: client.slot, descendant: child)
            try include(descendantsOf: child, client, generations: generations - 1)
        }
    }
}
