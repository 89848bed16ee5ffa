import EventLoop
import Glibc
import LinuxSystem
import Logging
import NightbellCore
import Suspension

/// Clients that are believed to be suspended, and those that cannot be.
extension Supervisor {
    /// Checks whether a client that is believed to be suspended really is: another process may have sent it
    /// `SIGCONT`, or moved it out of its cgroup. The kernel does not report that, and polling would keep an
    /// idle supervisor awake; so it is checked when its state is asked for, and when the client sends
    /// something.
    func inspectSleeper(_ client: ClientID) {
        guard ask({ $0.state(of: client) }) == .suspended, let record = connection(of: client)?.client,
            record.isStoppedHere
        else { return }
        // It runs because we thawed it; its wake has been sent, or is sent in this turn.
        guard unsafe !earlyWaker.hasThawed(client.slot) else { return }
        do {
            if try suspender.progress(slot: client.slot) == .frozen { return }
        } catch {
            switch error.code {
            case .processMoved:
                // Detach it; the next attempt puts it into one of our cgroups again.
                detach(client)
            case .processGone, .freezerMissing, .notPermitted, .outOfDescriptors, .notAttached, .systemError:
                // Its pidfd reports its end; the other errors say nothing about it.
                return
            }
        }
        feed(.foundRunning(client))
    }

    // MARK: Clients that cannot be suspended

    /// Checks at once whether a process of another user can be stopped by a supervisor that is not root: the
    /// client is told in its Welcome. For all others that cannot be known beforehand.
    func findObstacle(_ client: ClientID, _ connection: Connection) {
        guard let record = connection.client, !record.suspendsItself, suspender.method != .none,
            geteuid() != 0, connection.credentials.uid != geteuid()
        else { return }
        do {
            try suspender.attach(slot: client.slot, process: record.process)
        } catch {
            guard error.code == .notPermitted else { return }
            reportPermissionDenied(client, record, error)
        }
    }

    /// From now on it is treated as with suspension method `none`: its sockets are watched while it is
    /// believed to sleep, and it runs on.
    func reportPermissionDenied(_ client: ClientID, _ record: ServedClient, _ error: SuspensionError) {
        detach(client)
        let uids =
            "it runs as uid \(connection(of: client)?.credentials.uid ?? 0), the supervisor as uid \(geteuid())"
        record.obstacle = "cannot be suspended and runs on while it is shown as suspended: \(error); \(uids)"
        log(
            .suspension, .warning, of: supervision.user(of: client),
            "\(record.identifier) \(record.obstacle ?? "")")
    }

    /// How a client is suspended, as told and shown.
    func suspensionMethod(of client: ClientID, _ record: ServedClient) -> SuspensionMethod {
        record.obstacle == nil ? suspender.method(slot: client.slot) : .none
    }

    /// The same in a word, for people.
    func suspensionName(of client: ClientID, _ record: ServedClient) -> String {
        record.suspendsItself ? "systemd" : suspensionMethod(of: client, record).rawValue
    }
}
