import Descriptors
import Glibc

/// Where a run works: a directory of its own, the programs, and the children, which are gone when this is.
final class Workbench {
    /// Everybody may look into it: sleepers run under several uids.
    var directory: String { own.path }
    private let own: Leftovers.Directory
    let programs: String
    let loadTester: String
    let progress: Progress
    /// So many processes hold the other ends of sockets; 0: this one does.
    let peerProcesses: Int
    private var children: [ChildProcess] = []
    /// Closed when all children have ended, or with us: see `cfloors_die_with_pipe`.
    private var lifeline: Pipe?
    /// Where processes of the run that are nobody's children here find its reading end.
    let lifelinePath: String
    private var floorCgroup: String?

    /// - Parameter programs: the directory of `nightbelld` and `nightbell-load`; nil: that of this program.
    init(programs: String?, peerProcesses: Int = 0, progress: Progress) throws(LoadError) {
        if let programs { self.programs = programs } else { self.programs = try Self.ownDirectory() }
        self.peerProcesses = peerProcesses
        self.progress = progress
        loadTester = "\(self.programs)/nightbell-load"
        let asked = getenv("TMPDIR").map { String(cString: $0) } ?? ""
        let parent = asked.isEmpty ? "/tmp" : asked
        Leftovers.removeDirectories(in: parent)
        // Whatever this run is: it may be the only one for long.
        if let cgroup = CgroupTree()?.directory(of: getpid()) { Leftovers.removeCgroups(in: cgroup) }
        own = try Leftovers.makeDirectory(in: parent)
        let lifeline = try Pipe()
        lifelinePath = "/proc/\(getpid())/fd/\(lifeline.reading.rawValue)"
        self.lifeline = consume lifeline
    }

    deinit {
        end()
        // Not before: the supervisor would launch others in their place.
        lifeline = nil
        Leftovers.removeSupervisorCgroups(of: directory)
        if let floorCgroup { Leftovers.removeCgroup(floorCgroup) }
        Leftovers.removeDirectory(directory)
    }

    /// Ends all children.
    func end() {
        ChildProcess.end(children)
        children = []
    }

    /// Where the floor's sleepers have their cgroups; goes when the run does.
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

    /// Starts the load tester as another part of the run.
    func start(_ part: Part, _ arguments: [String], descriptors: [CInt]) throws(LoadError) -> ChildProcess {
        let child = try ChildProcess(
            part.rawValue, [loadTester, part.rawValue, "\(getpid())"] + arguments, descriptors: descriptors,
            log: "\(directory)/\(part.rawValue).log")
        children.append(child)
        return child
    }

    /// Starts another program, which ends with us. What it says goes to the log of this name, its own by default.
    func start(
        _ program: String, _ arguments: [String], log: String? = nil
    ) throws(LoadError) -> ChildProcess {
        let (path, name) = ("\(programs)/\(program)", log ?? program)
        guard access(path, X_OK) == 0 else {
            throw .missing("there is no \(path); --programs says where it is")
        }
        let child = try ChildProcess(
            name, [path] + arguments, log: logPath(of: name), guardian: loadTester)
        children.append(child)
        return child
    }

    func requireAllRunning() throws(LoadError) {
        for child in children {
            guard child.isRunning else { throw end(of: child) }
        }
    }

    /// What is to be told of a child that has ended by itself, with the last that it said.
    func end(of child: ChildProcess) -> LoadError {
        var text = "\(LoadError.childEnded(child.name, status: child.exitStatus ?? 0))"
        let last = lastLines(of: child.name)
        if !last.isEmpty { text += ": \(last)" }
        // Then it may have found no place for its last words either.
        if isDirectoryFull { text += ": no space is left in \(directory); TMPDIR may name another place" }
        return .supervisor(text)
    }

    private var isDirectoryFull: Bool {
        var figures = statvfs()
        return statvfs(directory, &figures) == 0 && figures.f_bavail == 0 && figures.f_blocks > 0
    }

    /// What a child complained of.
    func lastLines(of part: Part) -> String { lastLines(of: part.rawValue) }

    private func logPath(of name: String) -> String { "\(directory)/\(name).log" }

    /// What a program has said so far.
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
}
