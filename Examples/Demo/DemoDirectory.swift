import Glibc

/// The directory of one run, with the supervisor's socket and notes and the logs in it.
///
/// A demo that was killed leaves its directory behind, for the next one to remove. Any user can make
/// directories of such names, so the directory must have the right owner and a free lock.
struct DemoDirectory {
    let path: String

    private static let prefix = "nightbell-demo-"
    /// The file that the process has locked for as long as it lives. The pid in it is informative: in another
    /// namespace it would be another process's.
    private static let mark = "demo"
    /// Held open, and so locked, until the end.
    private var lock: CInt = -1

    static var parent: String {
        let directory = getenv("TMPDIR").map { String(cString: $0) } ?? ""
        return directory.isEmpty ? "/tmp" : directory
    }

    init() throws {
        var template = Array("\(Self.parent)/\(Self.prefix)XXXXXX".utf8CString)
        guard let path = mkdtemp(&template) else { throw DemoError.system("mkdtemp", code: errno) }
        self.path = String(cString: path)
        // It gets its name only when it is locked, so that no other demo finds it without an owner.
        let unlocked = "\(self.path)/\(Self.mark).new"
        try write("\(getpid())\n", to: unlocked)
        lock = openat(AT_FDCWD, unlocked, O_RDONLY | O_CLOEXEC)
        guard lock >= 0, flock(lock, LOCK_EX | LOCK_NB) == 0,
            rename(unlocked, "\(self.path)/\(Self.mark)") == 0
        else { throw DemoError.system("flock", code: errno) }
    }

    private init(path: String) { self.path = path }

    /// From now on it belongs to its reader.
    func keep() { unlink("\(path)/\(Self.mark)") }

    func remove() {
        guard let directory = Self.open(path) else { return }
        Self.empty(directory)
        rmdir(path)
    }

    /// Whether a supervisor has used it.
    var hasNotes: Bool { access("\(path)/run", F_OK) == 0 }

    // MARK: Other demos

    /// The directories of this user's demos that have ended without removing them.
    static func abandoned() -> [DemoDirectory] {
        // The final dot follows a link, which TMPDIR may be.
        guard let directory = open("\(parent)/.") else { return [] }
        return names(in: directory).filter { $0.hasPrefix(prefix) }.sorted()
            .map { DemoDirectory(path: "\(parent)/\($0)") }.filter(\.isAbandoned)
    }

    private var isAbandoned: Bool {
        guard let directory = Self.open(path) else { return false }
        defer { close(directory) }
        var status = stat()
        guard fstat(directory, &status) == 0, status.st_uid == geteuid() else { return false }
        let file = openat(directory, Self.mark, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard file >= 0 else { return false }
        defer { close(file) }
        guard fstat(file, &status) == 0, status.st_uid == geteuid(), status.st_mode & S_IFMT == S_IFREG else {
            return false
        }
        return flock(file, LOCK_EX | LOCK_NB) == 0
    }

    // MARK: Files

    /// A directory itself, not the target of a link of that name.
    private static func open(_ name: String, in parent: CInt = AT_FDCWD) -> CInt? {
        let descriptor = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        return descriptor >= 0 ? descriptor : nil
    }

    /// Removes everything in an open directory, and closes it.
    private static func empty(_ directory: CInt) {
        // Reading the names closes what it reads from.
        let copy = dup(directory)
        for name in names(in: copy) where unlinkat(directory, name, 0) != 0 {
            if let inner = open(name, in: directory) { empty(inner) }
            unlinkat(directory, name, AT_REMOVEDIR)
        }
        close(directory)
    }

    /// Closes the descriptor.
    private static func names(in directory: CInt) -> [String] {
        guard let stream = fdopendir(directory) else {
            close(directory)
            return []
        }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            if name != ".", name != ".." { names.append(name) }
        }
        return names
    }
}
