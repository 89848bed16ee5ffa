import CLinux
import Glibc
import LinuxSystem
import ProcessWaits
import Suspension
import SystemdUnits

/// A program that runs already and is to be spoken for: a process and others that sleep and wake with it.
final class Adoption {
    let pid: pid_t
    let process: ProcessHandle
    /// All processes that belong to it now, this one included.
    let members: () -> [pid_t]
    /// systemd freezes and thaws it; nil: the supervisor does, in a cgroup of its own.
    let unit: SystemdUnit?

    /// A process with its descendants.
    init(process pid: pid_t) throws(AdoptionRefusal) {
        process = try Self.open(pid)
        self.pid = pid
        members = { [pid] + ProcFS.descendants(of: pid) }
        unit = nil
        try check()
    }

    /// All processes in a cgroup, spoken for as the oldest one.
    ///
    /// - Parameter directory: of the cgroup, or its path in the hierarchy.
    init(cgroup directory: String) throws(AdoptionRefusal) {
        let cgroup = try Self.find(directory)
        guard let oldest = try Self.oldest(of: Self.processes(in: cgroup)) else {
            throw .noProcesses(directory)
        }
        process = try Self.open(oldest)
        pid = oldest
        // Those that were moved are in a cgroup below it.
        members = { [oldest] + ((try? Self.processes(in: cgroup)) ?? []).filter { $0 != oldest } }
        unit = nil
        try check()
    }

    /// All processes of a unit of systemd, spoken for as its main process, or as the oldest one.
    init(_ unit: SystemdUnit) throws(AdoptionRefusal) {
        let directory = unit.directory
        let all = { (try? ProgramGroup.processes(in: directory)) ?? [] }
        guard let pid = unit.mainProcess() ?? Self.oldest(of: all()) else { throw .noProcesses(unit.name) }
        process = try Self.open(pid)
        self.pid = pid
        members = all
        self.unit = unit
        for member in all() { try check(member, CgroupMount.find()?.directory(of: member)) }
        try checkRights()
    }

    private static func open(_ pid: pid_t) throws(AdoptionRefusal) -> ProcessHandle {
        do throws(SystemError) {
            let process = try ProcessHandle(opening: pid)
            guard !process.hasExited else { throw SystemError(code: ESRCH, call: "pidfd_open") }
            return process
        } catch {
            throw error.code == ESRCH || error.code == EINVAL ? .noProcess(pid) : .cannotBeOpened(pid, error)
        }
    }

    // MARK: Checks

    /// Whether this process may look into the program, and nothing else manages it.
    private func check() throws(AdoptionRefusal) {
        let mount = CgroupMount.find()
        let cgroup = mount?.directory(of: pid)
        for member in members() {
            let directory = mount?.directory(of: member)
            try check(member, directory)
            switch ProcessGroup.of(member) {
            case .unit(let name) where name.hasSuffix(".service") || name == "init.scope":
                throw .unit(member, name)
            case .container(let name): throw .container(member, name)
            case .unit, .cgroup, .root, .some(.none), nil: break
            }
            guard let directory else { continue }
            // All of them would go back to the first one's cgroup.
            if let cgroup, directory != cgroup { throw .otherCgroup(member, directory) }
        }
        if let look = try? ProcessLook.take(pid, .waits), !look.hasMemory { throw .kernelThread(pid) }
        try checkRights()
    }

    private func check(_ member: pid_t, _ directory: String?) throws(AdoptionRefusal) {
        guard !Self.isAncestor(member) else { throw .ownAncestor(member) }
        if let user = ProcFS.uid(member), geteuid() != 0, !ProcFS.ownsAll(member, geteuid()) {
            throw .otherUser(member, user)
        }
        guard Self.isInOurNamespace(member) else { throw .otherNamespace(member) }
        if let directory, Self.isOfClient(directory) { throw .client(member) }
    }

    /// To take a descriptor needs the same rights as to trace the process.
    private func checkRights() throws(AdoptionRefusal) {
        let descriptor = clinux_get_descriptor(process.rawValue, 0)
        if descriptor >= 0 {
            close(descriptor)
        } else if errno == EPERM {
            let scope = (try? SmallFile.readText("/proc/sys/kernel/yama/ptrace_scope")) ?? ""
            throw .noRights(pid, scope: Int(scope.prefix { $0.isNumber }))
        } else if errno == ESRCH {
            throw .noProcess(pid)
        }
    }

    private static func isAncestor(_ pid: pid_t) -> Bool {
        ProcFS.firstOfAncestry(of: getpid(), generations: .max) { $0 == pid ? true : nil } ?? false
    }

    /// Whether it is the cgroup of a client, which a supervisor has made, or one below that.
    private static func isOfClient(_ directory: String) -> Bool {
        let parts = directory.split(separator: "/")
        return zip(parts, parts.dropFirst()).contains {
            $0.hasPrefix("nightbell-") && $1.hasPrefix("client-")
        }
    }

    /// The processes of a container have pids of their own, whichever engine runs it.
    private static func isInOurNamespace(_ pid: pid_t) -> Bool {
        do throws(SystemError) {
            return try readLink("/proc/\(pid)/ns/pid") == readLink("/proc/self/ns/pid")
        } catch {
            // It is gone, or hidden: then the check of rights says so.
            return true
        }
    }

    // MARK: Members

    private static func find(_ path: String) throws(AdoptionRefusal) -> String {
        guard let mount = CgroupMount.find() else { throw .noHierarchy }
        let isDirectory = path == mount.path || path.hasPrefix(mount.path + "/")
        let directory =
            isDirectory
            ? mount.directory(for: String(path.dropFirst(mount.path.count)))
            : mount.directory(for: path)
        guard !path.split(separator: "/").contains(".."), directory != mount.path else {
            throw .wholeHierarchy(path)
        }
        guard unsafe access(directory + "/cgroup.procs", F_OK) == 0 else { throw .noCgroup(path) }
        switch ProcessGroup("0::" + directory.dropFirst(mount.path.count)) {
        case .unit(let name), .container(let name): throw .managed(path, by: name)
        case .cgroup, .root, .none: break
        }
        if let slice = directory.split(separator: "/").last(where: { $0.hasSuffix(".slice") }) {
            throw .managed(path, by: String(slice))
        }
        return directory
    }

    /// All in a cgroup, and those that a supervisor has moved to cgroups of its own below it. Others below it
    /// may be a manager's.
    private static func processes(in cgroup: String) throws(AdoptionRefusal) -> [pid_t] {
        do throws(SystemError) {
            let found = try SmallFile.readText(cgroup + "/cgroup.procs").split(separator: "\n").compactMap {
                pid_t($0)
            }
            for name in try SmallFile.names(in: cgroup) where !name.hasPrefix("nightbell-") {
                let events = try? SmallFile.readText("\(cgroup)/\(name)/cgroup.events")
                if events?.contains("populated 1") == true { throw SystemError(code: EBUSY, call: name) }
            }
            return found
        } catch {
            throw error.code == EBUSY ? .hasCgroups(cgroup, error.call) : .unreadable(cgroup, error)
        }
    }

    /// Whether there are processes in the cgroup, or below it.
    static func isPopulated(_ path: String) -> Bool {
        guard let cgroup = try? find(path), let events = try? SmallFile.readText(cgroup + "/cgroup.events")
        else { return false }
        return events.contains("populated 1")
    }

    private static func oldest(of pids: [pid_t]) -> pid_t? {
        pids.compactMap { pid in ProcFS.startTime(pid).map { (start: $0, pid: pid) } }
            .min { ($0.start, $0.pid) < ($1.start, $1.pid) }?.pid
    }
}

/// Why a program that runs cannot be adopted.
enum AdoptionRefusal: Error, CustomStringConvertible {
    case noProcess(pid_t)
    case cannotBeOpened(pid_t, SystemError)
    case kernelThread(pid_t)
    case ownAncestor(pid_t)
    case otherUser(pid_t, uid_t)
    case unit(pid_t, String)
    case container(pid_t, String)
    case client(pid_t)
    case otherNamespace(pid_t)
    /// The directory of its cgroup.
    case otherCgroup(pid_t, String)
    /// The value of `kernel.yama.ptrace_scope`, if there is one.
    case noRights(pid_t, scope: Int?)
    case noHierarchy
    case wholeHierarchy(String)
    case noCgroup(String)
    case managed(String, by: String)
    case hasCgroups(String, String)
    case noProcesses(String)
    case unreadable(String, SystemError)
    case neverSuspended
    case oldSupervisor
    case noUnit(String)
    case unitRefused(String, UnitFailure, isOfRights: Bool)

    init(_ refusal: UnitRefusal) {
        self =
            switch refusal {
            case .noName(let name), .noUnit(let name): .noUnit(name)
            case .refused(let name, let failure, let isOfRights):
                .unitRefused(name, failure, isOfRights: isOfRights)
            }
    }

    var description: String {
        switch self {
        case .noProcess(let pid): "there is no process \(pid)"
        case .cannotBeOpened(let pid, let error): "process \(pid) cannot be opened: \(error)"
        case .kernelThread(let pid): "process \(pid) is a thread of the kernel"
        case .ownAncestor(let pid):
            "process \(pid) has started this command, and would put it to sleep with itself"
        case .otherUser(let pid, let user):
            "process \(pid) belongs to uid \(user): only root adopts the programs of other users"
        case .unit(let pid, let name):
            "process \(pid) belongs to \(name), which systemd manages: adopt all of it with --unit \(name)"
        case .container(let pid, let name):
            "process \(pid) belongs to the container \(name), which its engine manages: ask the engine to pause it"
        case .client(let pid): "process \(pid) belongs to a client of a supervisor already"
        case .otherNamespace(let pid):
            "process \(pid) is in a container, which its engine manages: ask the engine to pause it"
        case .otherCgroup(let pid, let directory):
            "its process \(pid) is in another cgroup, \(directory): all of a program is put to sleep in one"
        case .noRights(let pid, 1?):
            """
            process \(pid) may not be looked into: kernel.yama.ptrace_scope is 1, and it was not started by this \
            command; ask as root, or start it with nightbell run --unmodified
            """
        case .noRights(let pid, let scope):
            "process \(pid) may not be looked into, which needs CAP_SYS_PTRACE"
                + (scope.map { " (kernel.yama.ptrace_scope is \($0))" } ?? "") + ": ask as root"
        case .noHierarchy: "this system has no cgroups of version 2"
        case .wholeHierarchy(let path): "\(path) is not a cgroup with a single program"
        case .noCgroup(let path): "there is no cgroup \(path)"
        case .managed(let path, let manager):
            "\(path) belongs to \(manager), which another program manages: nothing may be moved or frozen there"
        case .hasCgroups(let path, let name):
            "\(path) has processes in its cgroup \(name), which another program may manage"
        case .noProcesses(let path): "there is no process in \(path)"
        case .unreadable(let path, let error): "\(path) cannot be read: \(error)"
        case .oldSupervisor: "this supervisor does not know of units: it is older than this command"
        case .noUnit(let name): "systemd has no unit \(name), or has not loaded it"
        case .unitRefused(let name, let failure, _): "\(name) cannot be adopted: \(failure)"
        case .neverSuspended: "this supervisor cannot suspend programs, see nightbell doctor"
        }
    }

    var exitCode: Int32 {
        switch self {
        case .otherUser, .noRights, .unitRefused(_, _, isOfRights: true): 5
        case .oldSupervisor, .noUnit, .unitRefused, .noProcess, .cannotBeOpened, .kernelThread, .ownAncestor,
            .unit,
            .container, .client,
            .otherNamespace, .otherCgroup, .noHierarchy, .wholeHierarchy, .noCgroup, .managed, .hasCgroups,
            .noProcesses, .unreadable, .neverSuspended:
            1
        }
    }
}
