import CLinux
import Glibc
import LinuxSystem

/// One cgroup: a directory with the kernel's files.
struct Cgroup: Hashable {
    let directory: String

    /// The origin of its processes is stored on the directory itself: it survives this process, and cannot
    /// get out of step with it.
    private static let originAttribute = "user.nightbell.origin"

    var parent: Cgroup {
        Cgroup(directory: String(directory[..<(directory.lastIndex(of: "/") ?? directory.endIndex)]))
    }

    /// The cgroup of the client in this slot.
    func client(_ slot: UInt32) -> Cgroup { Cgroup(directory: directory + "/client-\(slot)") }

    /// Makes the directory, or reuses one that exists.
    func create() throws(SystemError) {
        do {
            _ = try systemCall("mkdir \(directory)") { unsafe mkdir(directory, 0o755) }
        } catch {
            guard error.code == EEXIST else { throw error }
        }
    }

    /// Whether the kernel offers a freezer here. The root cgroup has none.
    var hasFreezer: Bool { unsafe access(directory + "/cgroup.freeze", F_OK) == 0 }

    func openFreezer() throws(SystemError) -> OwnedDescriptor {
        try OwnedDescriptor(opening: directory + "/cgroup.freeze", O_RDWR)
    }

    /// Like `isToBeFrozen`, for a freezer that is open.
    static func isToBeFrozen(_ freezer: borrowing OwnedDescriptor) throws(SystemError) -> Bool {
        let rawValue = freezer.rawValue
        var digit: UInt8 = 0
        _ = try systemCall("pread cgroup.freeze") { unsafe pread(rawValue, &digit, 1, 0) }
        return digit == UInt8(ascii: "1")
    }

    /// The requested state of the freezer, not the reached one.
    var isToBeFrozen: Bool {
        (try? SmallFile.readText(directory + "/cgroup.freeze"))?.hasPrefix("1") ?? false
    }

    func setFrozen(_ frozen: Bool) throws(SystemError) {
        try SmallFile.write(frozen ? "1" : "0", to: directory + "/cgroup.freeze")
    }

    struct State: Hashable {
        /// Every process in it is stopped.
        var isFrozen = false
        /// There is a living process in it.
        var isPopulated = false
    }

    func state() throws(SystemError) -> State {
        Self.state(inEvents: try SmallFile.readShort(directory + "/cgroup.events"))
    }

    /// It is read at each suspension: as `String` it would cost as much as the rest of that.
    static func state(inEvents bytes: [UInt8]) -> State {
        var state = State()
        for line in bytes.split(separator: UInt8(ascii: "\n")) {
            if line.elementsEqual("frozen 1".utf8) { state.isFrozen = true }
            if line.elementsEqual("populated 1".utf8) { state.isPopulated = true }
        }
        return state
    }

    func processes() throws(SystemError) -> [pid_t] {
        try SmallFile.readText(directory + "/cgroup.procs").split(separator: "\n").compactMap { pid_t($0) }
    }

    /// Moves a process, with all of its threads and none of its children, into this cgroup.
    func add(_ pid: pid_t) throws(SystemError) {
        try SmallFile.write("\(pid)", to: directory + "/cgroup.procs")
    }

    // MARK: Origin and removal

    /// Stores the origin of the processes in here. A file system without extended attributes is no error:
    /// they move to a cgroup of this instance at the end.
    func store(origin: Cgroup) {
        let bytes = Array(origin.directory.utf8)
        _ = unsafe setxattr(directory, Self.originAttribute, bytes, bytes.count, 0)
    }

    /// The origin stored by `store`.
    var origin: Cgroup? {
        var bytes = [UInt8](repeating: 0, count: Int(PATH_MAX))
        let length = unsafe getxattr(directory, Self.originAttribute, &bytes, bytes.count)
        guard length > 0 else { return nil }
        return Cgroup(directory: String(decoding: bytes.prefix(length), as: UTF8.self))
    }

    /// Thaws the processes in here, moves them out and removes the cgroup, with those that they have made
    /// below it. Processes that cannot be moved to `origin`, because it is gone or not writable, move to
    /// `fallback`. False: the cgroup is not empty, for example because of a process that is about to die.
    func dissolve(into origin: Cgroup?, else fallback: Cgroup) -> Bool {
        try? setFrozen(false)
        for child in (try? CgroupMount.children(of: directory)) ?? [] {
            _ = Cgroup(directory: child).dissolve(into: origin, else: fallback)
        }
        // A process that forks while it is moved leaves a child here, so the list is read again.
        for _ in 0..<4 {
            for pid in (try? processes()) ?? [] where !(origin?.accepts(pid) ?? false) {
                _ = fallback.accepts(pid)
            }
            if unsafe rmdir(directory) == 0 || errno == ENOENT { return true }
        }
        return false
    }

    private func accepts(_ pid: pid_t) -> Bool {
        do {
            try add(pid)
            return true
        } catch {
            // It has ended, so there is nothing to move.
            return error.code == ESRCH
        }
    }
}
