import CLinux
import Glibc
import LinuxSystem

/// The capabilities of this machine for the calling user, found by trying.
package struct MachineFacts: Sendable, Hashable {
    package enum Status: String, Sendable, Hashable {
        case ok
        /// Nightbell works, but less well.
        case warning
        /// A facility that Nightbell needs or is meant to use is missing.
        case missing
    }

    package struct Fact: Sendable, Hashable {
        /// Stable, for programs: `freezer`.
        package let key: String
        package let status: Status
        /// The finding.
        package let explanation: String
        /// The suggested remedy; nil if none is needed.
        package let remedy: String?

        init(_ key: String, _ status: Status, _ explanation: String, remedy: String? = nil) {
            self.key = key
            self.status = status
            self.explanation = explanation
            self.remedy = remedy
        }
    }

    /// In the order of their importance.
    package let facts: [Fact]

    package var isComplete: Bool { facts.allSatisfy { $0.status != .missing } }

    package subscript(key: String) -> Fact? { facts.first { $0.key == key } }

    /// Tries everything. Takes some milliseconds; temporarily makes a cgroup, a directory and a child
    /// process. `cgroupParent` as in `InstanceNames`.
    package static func gather(cgroupParent: String? = nil) -> MachineFacts {
        var facts = [kernel(), user(), hierarchy()]
        facts += FreezerTrial.facts(cgroupParent: cgroupParent)
        facts += [pidfd(), peerPidfd(), descriptors(), pressure()]
        return MachineFacts(facts: facts)
    }

    private static func kernel() -> Fact {
        let release = (try? SmallFile.readText("/proc/sys/kernel/osrelease")) ?? "unknown"
        return Fact("kernel", .ok, "Linux \(release.filter { $0 != "\n" })")
    }

    private static func user() -> Fact {
        let uid = geteuid()
        if uid == 0 { return Fact("user", .ok, "root: may suspend every user's processes") }
        return Fact(
            "user", .warning, "uid \(uid): may suspend only processes of this user",
            remedy: "Run nightbelld as root to serve all users of this machine; for one nothing is needed.")
    }

    private static func hierarchy() -> Fact {
        guard let mount = CgroupMount.find() else {
            return Fact(
                "cgroup2", .missing, "no cgroup v2 hierarchy is mounted",
                remedy: "Mount one: mount -t cgroup2 none /sys/fs/cgroup/unified (or boot with "
                    + "systemd.unified_cgroup_hierarchy=1).")
        }
        return Fact("cgroup2", .ok, "mounted at \(mount.path)")
    }

    private static func pidfd() -> Fact {
        do {
            _ = try ProcessHandle(opening: getpid())
            return Fact("pidfd", .ok, "processes are identified by descriptor, safe from pid reuse")
        } catch {
            return Fact("pidfd", .missing, "\(error)", remedy: "Use Linux 5.3 or later.")
        }
    }

    private static func peerPidfd() -> Fact {
        do {
            let pair = try SeqPacketSocket.pair()
            var pidfd: CInt = -1
            var length = socklen_t(MemoryLayout<CInt>.size)
            let rawValue = pair.first.rawValue
            _ = try systemCall("getsockopt(SO_PEERPIDFD)") {
                unsafe getsockopt(rawValue, SOL_SOCKET, CLINUX_SO_PEERPIDFD, &pidfd, &length)
            }
            OwnedDescriptor(adopting: pidfd).close()
            return Fact("peer-pidfd", .ok, "the kernel identifies the process at the other end of a socket")
        } catch {
            return Fact(
                "peer-pidfd", .warning, "\(error): a client's process is looked up by number instead",
                remedy: "Use Linux 6.5 or later.")
        }
    }

    private static func descriptors() -> Fact {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else {
            return Fact("descriptors", .warning, "\(SystemError("getrlimit"))")
        }
        // The connection, the process, the freezer and one socket; 64 are reserved for the supervisor itself.
        // nightbelld raises its soft limit to the hard one.
        let clients = max(0, (Int(clamping: limit.rlim_max) - 64) / 4)
        let explanation = "\(limit.rlim_max) descriptors: about \(clients) clients with one socket each"
        if clients >= 1000 { return Fact("descriptors", .ok, explanation) }
        return Fact(
            "descriptors", .warning, explanation,
            remedy: "Raise the hard limit: LimitNOFILE= in the unit, or /etc/security/limits.conf.")
    }

    private static func pressure() -> Fact {
        let missing = ["memory", "cpu"].filter { unsafe access("/proc/pressure/\($0)", R_OK) != 0 }
        if missing.isEmpty {
            return Fact("pressure", .ok, "the kernel reports pressure on memory and processors (PSI)")
        }
        return Fact(
            "pressure", .warning,
            "the kernel does not report pressure (PSI) on: \(missing.joined(separator: ", "))",
            remedy: "Boot with psi=1.")
    }
}
