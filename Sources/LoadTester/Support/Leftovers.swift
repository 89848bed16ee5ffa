import CFloors
import Glibc
import LinuxSystem

/// Files and cgroups that a run makes, and that killed runs have left behind.
enum Leftovers {
    private static let prefix = "nightbell-load-"

    // MARK: Directories

    /// A directory that all users may read, and the lock that shows other runs that this one goes on.
    struct Directory: ~Copyable {
        let path: String
        private let lock: OwnedDescriptor

        fileprivate init(path: String, lock: consuming OwnedDescriptor) {
            self.path = path
            self.lock = lock
        }
    }

    static func makeDirectory(in parent: String) throws(LoadError) -> Directory {
        // Another run's clean-up may come between the directory and its lock; hardly twice.
        for _ in 0..<10 {
            var template = Array("\(parent)/\(prefix)XXXXXX".utf8CString)
            guard mkdtemp(&template) != nil else { throw LoadError(failed: "mkdtemp in \(parent)") }
            let path = String(decoding: template.dropLast().map(UInt8.init(bitPattern:)), as: UTF8.self)
            chmod(path, 0o755)
            guard let lock = openLock(path, O_CREAT), flock(lock.rawValue, LOCK_EX | LOCK_NB) == 0,
                access(lockPath(path), F_OK) == 0
            else { continue }
            return Directory(path: path, lock: lock)
        }
        throw .missing("no directory of our own in \(parent)")
    }

    /// Removes this user's directories of runs that have ended.
    static func removeDirectories(in parent: String) {
        for name in (try? SmallFile.names(in: parent)) ?? [] where name.hasPrefix(prefix) {
            let path = "\(parent)/\(name)"
            var status = stat()
            guard lstat(path, &status) == 0, status.st_uid == geteuid(), status.st_mode & S_IFMT == S_IFDIR,
                name.utf8.count == prefix.utf8.count + 6
            else { continue }
            if let lock = openLock(path, 0) {
                guard flock(lock.rawValue, LOCK_EX | LOCK_NB) == 0 else { continue }
                removeWithCgroups(path)
            } else if !hasLock(path), time(nil) - status.st_mtim.tv_sec > oldAge {
                // A run makes the lock at once, and at its end removes it last.
                removeWithCgroups(path)
            }
        }
    }

    /// A directory without a lock that is younger than this, in seconds, may be under construction.
    static let oldAge = 60

    private static func removeWithCgroups(_ path: String) {
        removeSupervisorCgroups(of: path)
        removeDirectory(path)
    }

    /// Removes the directory of a run. The lock goes last: should anything be left, the next run finds it.
    static func removeDirectory(_ path: String) {
        // A process that is ending may still have written a file.
        for _ in 0..<5 {
            for name in (try? SmallFile.names(in: path)) ?? [] where name != "lock" {
                if unlink("\(path)/\(name)") != 0 { remove("\(path)/\(name)") }
            }
            let left = (try? SmallFile.names(in: path)) ?? []
            guard left.contains(where: { $0 != "lock" }) else {
                unlink(lockPath(path))
                rmdir(path)
                return
            }
        }
    }

    private static func lockPath(_ directory: String) -> String { "\(directory)/lock" }

    private static func hasLock(_ directory: String) -> Bool {
        access(lockPath(directory), F_OK) == 0 || errno != ENOENT
    }

    private static func openLock(_ directory: String, _ flags: CInt) -> OwnedDescriptor? {
        try? OwnedDescriptor(opening: lockPath(directory), O_RDWR | O_NOFOLLOW | flags, mode: 0o600)
    }

    /// Removes a directory with its content; a run has made it, so it is not deep.
    static func remove(_ path: String) {
        for name in (try? SmallFile.names(in: path)) ?? [] where unlink("\(path)/\(name)") != 0 {
            remove("\(path)/\(name)")
        }
        rmdir(path)
    }

    // MARK: Cgroups

    /// Unique to this run, although process IDs are reused.
    static var cgroupName: String { "\(prefix)\(getpid())-\(ProcFS.startTime(getpid()) ?? 0)" }

    /// Removes cgroups below this one of runs that have ended.
    static func removeCgroups(in parent: String) {
        for name in (try? SmallFile.names(in: parent)) ?? [] where name.hasPrefix(prefix) {
            let numbers = name.dropFirst(prefix.count).split(separator: "-")
            guard numbers.count == 2, let pid = pid_t(numbers[0]), let start = UInt64(numbers[1]),
                ProcFS.startTime(pid) != start
            else { continue }
            removeCgroup("\(parent)/\(name)")
        }
    }

    /// Removes a cgroup and its children, which works once their processes have ended.
    static func removeCgroup(_ path: String, with prefix: String = FloorCgroup.prefix) {
        for name in (try? SmallFile.names(in: path)) ?? [] where name.hasPrefix(prefix) {
            removeWhenEmpty("\(path)/\(name)")
        }
        removeWhenEmpty(path)
    }

    /// Removes cgroups that the run's supervisors could not remove; they listed them in their runtime
    /// directories.
    static func removeSupervisorCgroups(of directory: String) {
        for name in (try? SmallFile.names(in: directory)) ?? [] {
            let noted = (try? SmallFile.readText("\(directory)/\(name)/cgroups")) ?? ""
            for cgroup in noted.split(separator: "\n") where cgroup.contains("/nightbell-") {
                removeCgroup(String(cgroup), with: "client-")
            }
        }
    }

    private static func removeWhenEmpty(_ path: String) {
        for _ in 0..<500 where rmdir(path) != 0 {
            guard errno == EBUSY else { return }
            usleep(2_000)
        }
    }
}
