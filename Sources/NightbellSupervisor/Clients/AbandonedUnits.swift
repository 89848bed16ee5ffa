import Glibc
import LinuxSystem
import Logging
import NightbellCore
import Suspension

/// A unit of systemd after the process that had it frozen and thawed is gone, with its guard perhaps.
struct AbandonedUnit {
    let identifier: String
    /// The process that it was spoken for as.
    let pid: pid_t
    /// Of the process that spoke for it.
    let user: uid_t
    /// The directory of its cgroup.
    let directory: String
    /// Until when anything else may thaw it.
    let until: Instant

    var isFrozen: Bool {
        (try? SmallFile.readText(directory + "/cgroup.freeze"))?.hasPrefix("1") ?? false
    }

    /// Whether that user could do the same: others may have been frozen by an administrator.
    var mayBeThawed: Bool {
        guard user != 0 else { return true }
        var status = stat()
        guard unsafe stat(directory + "/cgroup.freeze", &status) == 0 else { return false }
        return status.st_uid == user
    }

    func thaw() throws(SystemError) { try SmallFile.write("0", to: directory + "/cgroup.freeze") }

    /// The cgroup of the innermost unit with a process.
    static func directory(of pid: pid_t) -> String? {
        guard let directory = CgroupMount.find()?.directory(of: pid) else { return nil }
        var parts = directory.split(separator: "/")
        while let last = parts.last {
            if last.hasSuffix(".service") || last.hasSuffix(".scope") {
                return "/" + parts.joined(separator: "/")
            }
            parts.removeLast()
        }
        return nil
    }
}

/// Units that would stay frozen for ever. systemd, or the kernel, may kill the process that would thaw one
/// together with the process that guards it.
extension Supervisor {
    private static let patience: Duration = .seconds(2)

    /// A connection has ended.
    func noteAbandonedUnit(of record: ServedClient, _ connection: Connection) {
        guard record.suspendsItself, !record.process.hasExited, !supervision.isStopping,
            let directory = AbandonedUnit.directory(of: record.process.pid)
        else { return }
        connections.abandoned.append(
            AbandonedUnit(
                identifier: record.identifier, pid: record.process.pid, user: connection.credentials.uid,
                directory: directory, until: now + Self.patience))
    }

    /// Without systemd, which takes it for frozen then: that is less bad than that it is.
    func thawAbandonedUnits() {
        // More of them are left to the next turn, which begins at once.
        for _ in 0..<16 {
            guard let unit = connections.abandoned.first, unit.until <= now else { return }
            connections.abandoned.removeFirst()
            // Another process may speak for it by now.
            guard connections.clients(in: unit.pid).isEmpty, unit.isFrozen, unit.mayBeThawed else {
                continue
            }
            log(
                .suspension, .notice, of: unit.user,
                "\(unit.identifier) is thawed without systemd: nothing speaks for it any more")
            do throws(SystemError) {
                try unit.thaw()
            } catch {
                log(.suspension, .error, of: unit.user, "cannot thaw \(unit.identifier): \(error)")
            }
        }
    }
}
