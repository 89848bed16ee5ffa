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
            return "a program is spoken for over a connection of its own, not over that of a launch"
        }
        guard program.suspendedBy != .systemd || Self.cgroup(of: pid) != Self.cgroup(of: getpid()) else {
            return "pid \(pid) is in the supervisor's own unit"
        }
        // A set-user-ID program has the real uid of its user, and is none of its user's to stop.
        guard user == 0 || ProcFS.ownsAll(pid, user) else { return "pid \(pid) is not of uid \(user)" }
        guard program.suspendedBy == .systemd || descendants(of: pid) != nil else {
            return """
                pid \(pid) has more than \(Self.mostDescendants) descendants, or more than \(Self.mostThreads) threads with \
                them: adopt its systemd unit
                """
        }
        return nil
    }

    /// The process of the client that says Hello.
    func process(of connection: Connection, _ hello: WireHello) throws(SystemError) -> ProcessHandle {
        guard hello.hasProgram else { return try process(of: connection) }
        return try ProcessHandle(
            opening: clientPID(hello, connection), startedAt: hello.program.startTime)
    }

    /// Puts an unmodified program into its cgroup before it is welcomed, with the descendants that it has
    /// already. Those that it starts later begin there. Descendants in another cgroup, or of another user,
    /// stay: they are managed elsewhere.
    func attachProgram(_ client: ClientID, _ record: ServedClient) {
        guard record.programStart != nil, record.isStoppedHere else { return }
        do {
            let pid = record.process.pid
            // Before it is moved.
            let (cgroup, user) = (Self.cgroup(of: pid), supervision.user(of: client))
            let descendants = (descendants(of: pid) ?? []).filter { descendant in
                Self.cgroup(of: descendant) == cgroup
                    && (user == 0 || user.map { ProcFS.ownsAll(descendant, $0) } ?? false)
            }
            try suspender.attach(slot: client.slot, process: record.process)
            for descendant in descendants {
                try suspender.include(slot: client.slot, descendant: descendant)
            }
        } catch {
            guard error.code != .notPermitted else { return reportPermissionDenied(client, record, error) }
            log(
                .suspension, .warning, of: supervision.user(of: client),
                "cannot prepare to suspend \(record.identifier): \(error)")
        }
    }

    private func descendants(of pid: pid_t) -> [pid_t]? {
        ProcFS.descendants(
            of: pid, generations: Self.mostGenerations, limit: Self.mostDescendants,
            threadLimit: Self.mostThreads)
    }

    private static let mostGenerations = 16
    /// Others wait while each of them is looked at, and moved.
    private static let mostDescendants = 256
    private static let mostThreads = 1_024

    // MARK: Reports

    /// In bytes.
    private static let longestText = 256

    /// Takes what the process that speaks for a program tells of it, for people to read.
    ///
    /// - Returns: whether the message is that.
    func noteReport(
        _ body: WireClientMessage.OneOf_Body, of client: ServedClient, _ connection: Connection
    ) -> Bool {
        let isOfProgram = client.programStart != nil
        switch body {
        case .awakeReason(let message):
            if isOfProgram { client.awakeReason = Self.shortened(message.reason) }
        case .pagedOut(let message):
            guard isOfProgram else { return true }
            // Without fields of other versions, which may be long.
            var pagedOut = WirePagedOut()
            pagedOut.bytes = message.bytes
            pagedOut.totalBytes = message.totalBytes
            pagedOut.limit = Self.shortened(message.limit)
            client.pagedOut = pagedOut
            notifyWatchers(of: pagedOut, client, connection)
        default: return false
        }
        return true
    }

    /// In bytes: a character may have any number of them.
    private static func shortened(_ text: String) -> String {
        var bytes = text.utf8.prefix(longestText)
        // The last scalar may have been cut.
        while !bytes.isEmpty {
            if let whole = String(bytes) { return whole }
            bytes.removeLast()
        }
        return ""
    }

    private func notifyWatchers(
        of pagedOut: WirePagedOut, _ client: ServedClient, _ connection: Connection
    ) {
        guard !connections.watchers.isEmpty else { return }
        var event = WireWatchEvent()
        event.atUnixNs = WallClock.now()
        event.identifier = client.identifier
        event.kind = "paged-out"
        event.detail = ["\(pagedOut.bytes) bytes", pagedOut.limit].filter { !$0.isEmpty }.joined(
            separator: ": ")
        event.state = supervision.state(of: client.id).wire
        for watcher in connections.watchers {
            guard case .watcher(let wanted) = watcher.role, wanted.isEmpty || wanted == client.identifier,
                mayAct(.see, on: connection.credentials.uid, watcher)
            else { continue }
            send(event, to: watcher)
        }
    }

    private static func cgroup(of pid: pid_t) -> String? { try? SmallFile.readText("/proc/\(pid)/cgroup") }
}
