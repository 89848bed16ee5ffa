import Glibc

/// The kernel's view of processes, so that the demo need not trust the supervisor.
struct KernelView {
    private let cgroupMount: String?

    init() {
        // The cgroup2 file system may be mounted anywhere; field 5 is the mount point, the type follows the
        // dash.
        cgroupMount = contents(of: "/proc/self/mountinfo").split(separator: "\n").lazy
            .map { $0.split(separator: " ") }
            .first { fields in
                fields.firstIndex(of: "-").map { $0 + 1 < fields.count && fields[$0 + 1] == "cgroup2" }
                    ?? false
            }
            .map { String($0[4]) }
    }

    /// Whether the process cannot run: it is stopped by a signal, or in a frozen cgroup.
    func isHeld(_ process: pid_t) -> Bool {
        isStopped(process) || isFrozen(process)
    }

    private func isStopped(_ process: pid_t) -> Bool {
        // The name in parentheses may hold anything; the state comes after it.
        let fields = contents(of: "/proc/\(process)/stat").split(separator: ")").last?.split(separator: " ")
        return fields?.first == "T"
    }

    private func isFrozen(_ process: pid_t) -> Bool {
        guard let cgroupMount,
            let line = contents(of: "/proc/\(process)/cgroup").split(separator: "\n")
                .first(where: { $0.hasPrefix("0::") })
        else { return false }
        let events = contents(of: "\(cgroupMount)\(line.dropFirst(3))/cgroup.events")
        return events.split(separator: "\n").contains("frozen 1")
    }
}
