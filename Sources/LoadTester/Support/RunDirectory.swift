import Glibc
import LinuxSystem

/// The working directory of a run, with its programs and child processes, all of which end with this object.
final class RunDirectory {
    /// All users may read it: sleepers run under several uids.
    var path: String { own.path }
    private let own: Leftovers.Directory
    let programs: String
    let loadTester: String
    let progress: Progress
    /// The number of further processes that hold peer sockets; 0: this process holds them.
    let peerProcesses: Int
    private var children: [ChildProcess] = []
    /// Closed when all children have ended, or with this process: see `cfloors_die_with_pipe`.
    private var lifeline: Pipe?
    /// The path of the pipe's reading end, for processes of the run that are not children of this one.
    let lifelinePath: String
    private var floorCgroup: String?

    /// - Parameter programs: the directory of `nightbelld` and `nightbell-load`; nil: this program's own.
    init(programs: String?, peerProcesses: Int = 0, progress: Progress) throws(LoadError) {
        if let programs {
            self.programs = Self.fullPath(programs)
        } else {
            self.programs = try Self.ownDirectory()
        }
        self.peerProcesses = peerProcesses
        self.progress = progress
        loadTester = "\(self.programs)/nightbell-load"
        let asked = getenv("TMPDIR").map { String(cString: $0) } ?? ""
        let parent = asked.isEmpty ? "/tmp" : asked
        Leftovers.removeDirectories(in: parent)
        // In every kind of run: no other may follow for long.
        if let cgroup = CgroupTree()?.directory(of: getpid()) { Leftovers.removeCgroups(in: cgroup) }
        own = try Leftovers.makeDirectory(in: parent)
        let lifeline = try Pipe()
        lifelinePath = "/proc/\(getpid())/fd/\(lifeline.reading.rawValue)"
        self.lifeline = consume lifeline
    }

    deinit {
        end()
        // Not before: the supervisor would relaunch clients.
        lifeline = nil
        Leftovers.removeSupervisorCgroups(of: path)
        if let floorCgroup { Leftovers.removeCgroup(floorCgroup) }
        Leftovers.removeDirectory(path)
    }

    /// Ends all children.
    func end() {
        ChildProcess.end(children)
        children = []
    }

    /// The cgroup of the floor's sleepers, removed with the run.
    func cgroup(in tree: CgroupTree) throws(LoadError) -> String {
        guard let own = tree.directory(of: getpid()) else { throw .missing("our own cgroup") }
        let directory = "\(own)/\(Leftovers.cgroupName)"
        guard mkdir(directory, 0o755) == 0 || errno == EEXIST else {
            throw LoadError(failed: "mkdir \(directory)")
        }
        floorCgroup = directory
        return directory
    }

    func end(_ child: ChildProcess) {
        child.end()
        children.removeAll { $0 === child }
    }

    /// Starts the load tester in another role.
    func start(_ role: ProcessRole, _ arguments: [String], descriptors: [CInt]) throws(LoadError)
        -> ChildProcess
    {
        let child = try ChildProcess(
            role.rawValue, [loadTester, role.rawValue, "\(getpid())"] + arguments, descriptors: descriptors,
            log: "\(path)/\(role.rawValue).log")
        children.append(child)
        return child
    }

    /// Starts another program, which ends with this process. Its output goes to the log of this name, by
    /// default the program's.
    func start(
        _ program: String, _ arguments: [String], log: String? = nil
    ) throws(LoadError) -> ChildProcess {
        let (executable, name) = ("\(programs)/\(program)", log ?? program)
        guard access(executable, X_OK) == 0 else {
            throw .missing("there is no \(executable); --binaries says where it is")
        }
        let child = try ChildProcess(
            name, [executable] + arguments, log: logPath(of: name), guardian: loadTester)
        children.append(child)
        return child
    }

    func requireAllRunning() throws(LoadError) {
        for child in children {
            guard child.isRunning else { throw end(of: child) }
        }
    }

    /// The error for a child that has ended by itself, with the last lines of its log.
    func end(of child: ChildProcess) -> LoadError {
        var text = "\(LoadError.childEnded(child.name, status: child.exitStatus ?? 0))"
        let last = lastLines(of: child.name)
        if !last.isEmpty { text += ": \(last)" }
        // A full disk may have swallowed its last lines, too.
        if isDirectoryFull { text += ": no space is left in \(path); TMPDIR may name another place" }
        return .supervisor(text)
    }

    private var isDirectoryFull: Bool {
        var figures = statvfs()
        return statvfs(path, &figures) == 0 && figures.f_bavail == 0 && figures.f_blocks > 0
    }

    /// The last lines of a role's log.
    func lastLines(of role: ProcessRole) -> String { lastLines(of: role.rawValue) }

    private func logPath(of name: String) -> String { "\(path)/\(name).log" }

    /// The output of a program so far.
    func log(of name: String) -> String { (try? SmallFile.readText(logPath(of: name))) ?? "" }

    private func lastLines(of name: String) -> String {
        let log = log(of: name)
        return log.split(separator: "\n").suffix(3).joined(separator: "; ")
    }

    private static func ownDirectory() throws(LoadError) -> String {
        guard let resolved = realpath("/proc/self/exe", nil) else { throw LoadError(failed: "realpath") }
        defer { free(resolved) }
        let path = String(cString: resolved)
        return String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)])
    }

    /// The run's processes do not all work in this one's directory.
    private static func fullPath(_ path: String) -> String {
        guard !path.hasPrefix("/"), let current = getcwd(nil, 0) else { return path }
        defer { free(current) }
        return "\(String(cString: current))/\(path)"
    }
}
