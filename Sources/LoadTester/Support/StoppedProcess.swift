import Glibc
import LinuxSystem

/// Whether the kernel has stopped a process, read without asking the supervisor, which the request would
/// disturb.
final class StoppedProcess {
    private let pid: pid_t
    private let method: SuspensionMethod
    /// `cgroup.events` of the cgroup it is frozen in.
    private var events: OwnedDescriptor?
    private let mount: CgroupTree?

    /// - Parameter mount: nil when it is stopped by signal.
    init(_ pid: pid_t, _ method: SuspensionMethod, _ mount: CgroupTree?) {
        self.pid = pid
        self.method = method
        self.mount = mount
    }

    /// Also finds the cgroup, which must be final: ask only after the process was told to sleep.
    var isStopped: Bool {
        switch method {
        case .signal:
            return ProcFS.state(pid) == "T"
        case .cgroup:
            if events == nil, let directory = mount?.directory(of: pid) {
                events = try? OwnedDescriptor(opening: "\(directory)/cgroup.events", O_RDONLY)
            }
            guard let descriptor = events?.rawValue else { return false }
            var bytes = [UInt8](repeating: 0, count: 128)
            let length = pread(descriptor, &bytes, bytes.count, 0)
            if length <= 0 {
                // The process has been moved since.
                events = nil
                return false
            }
            let isFrozen = bytes.prefix(length).split(separator: UInt8(ascii: "\n")).contains { line in
                line.elementsEqual("frozen 1".utf8)
            }
            if !isFrozen { events = nil }
            return isFrozen
        }
    }
}

/// The cgroup v2 hierarchy.
struct CgroupTree {
    private let mountPoint: String

    /// nil: there is no such hierarchy, or only a part of it is visible.
    init?() {
        guard let text = try? SmallFile.readText("/proc/self/mountinfo") else { return nil }
        for line in text.split(separator: "\n") {
            let fields = line.split(separator: " ")
            guard let dash = fields.firstIndex(of: "-"), fields.count > dash + 1, dash > 4,
                fields[dash + 1] == "cgroup2", fields[3] == "/"
            else { continue }
            mountPoint = String(fields[4])
            return
        }
        return nil
    }

    static func required() throws(LoadError) -> CgroupTree {
        guard let tree = CgroupTree() else { throw .missing("there is no cgroup v2 hierarchy here") }
        return tree
    }

    func directory(of pid: pid_t) -> String? {
        guard let text = try? SmallFile.readText("/proc/\(pid)/cgroup") else { return nil }
        let line = text.split(separator: "\n").first { $0.hasPrefix("0::/") }
        return line.map { mountPoint + ($0 == "0::/" ? "" : $0.dropFirst(3)) }
    }
}

extension SuspensionMethod {
    /// The hierarchy, if this method needs it.
    func tree() throws(LoadError) -> CgroupTree? {
        switch self {
        case .cgroup: try .required()
        case .signal: nil
        }
    }
}
