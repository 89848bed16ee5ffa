import Descriptors
import EventLoop
import Glibc
import Logging
import NightbellCore
import Suspension

/// Clients that are believed to be suspended, and those that cannot be.
extension Supervisor {
    /// Looks whether a client that is believed to be suspended is: anybody may have sent it `SIGCONT`, or taken it out
    /// of its cgroup. The kernel does not tell of that, and asking again and again would keep an idle supervisor
    /// awake; so it is asked when somebody wants to know, and when the client says something.
    func lookAtSleeper(_ client: ClientID) {
        guard ask({ $0.state(of: client) }) == .suspended, let record = connection(of: client)?.client,
            record.obstacle == nil
        else { return }
        // It runs because we have let it; it has been told of its wake, or is in this turn.
        guard unsafe !earlyWaker.hasThawed(client.slot) else { return }
        do {
            if try suspender.progress(slot: client.slot) == .frozen { return }
        } catch {
            switch error.code {
            case .processMoved:
                // Detached, it is put into a cgroup of ours again at the next attempt.
                detach(client)
            case .processGone, .freezerMissing, .notPermitted, .outOfDescriptors, .notAttached, .systemError:
                // Its pidfd tells of its end; the others say nothing about it.
                return
            }
        }
        feed(.foundRunning(client))
    }

    // MARK: Those that cannot be suspended

    /// Looks at once whether a process of another user can be stopped by a supervisor that is not root: it is told in
    /// its Welcome. All others can be, as far as anybody can tell beforehand.
    func lookForObstacle(_ client: ClientID, _ connection: Connection) {
        guard let record = connection.client, suspender.method != .none, geteuid() != 0,
            connection.credentials.uid != geteuid()
        else { return }
        do {
            try suspender.attach(slot: client.slot, process: record.process)
        } catch {
            guard error.code == .notPermitted else { return }
            notePermissionDenied(client, record, error)
        }
    }

    /// From now on it is treated like everybody is where nobody is suspended: its sockets are watched while it is
    /// believed to sleep, and it runs on.
    func notePermissionDenied(_ client: ClientID, _ record: ClientRecord, _ error: SuspensionError) {
        detach(client)
        let whose =
            "it runs as uid \(connection(of: client)?.credentials.uid ?? 0), the supervisor as uid \(geteuid())"
        record.obstacle = "cannot be suspended and runs on while it is shown as suspended: \(error); \(whose)"
        log(
            .suspension, .warning, of: supervision.user(of: client),
            "\(record.identifier) \(record.obstacle ?? "")")
    }

    /// How a client is suspended, as it is told and shown.
    func suspensionMethod(of client: ClientID, _ record: ClientRecord) -> SuspensionMethod {
        record.obstacle == nil ? suspender.method(slot: client.slot) : .none
    }
}
