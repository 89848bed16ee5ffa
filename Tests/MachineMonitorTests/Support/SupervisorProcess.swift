import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

/// A supervisor with the real monitor, and clients that are processes of their own.
final class SupervisorProcess {
    /// Clients of other users reach it.
    private let directory: TemporaryDirectory
    private let daemon: Helper
    var socket: String { directory.file("nightbell.sock") }

    /// As root the cgroup freezer is there as well.
    static let ways = geteuid() == 0 ? ["cgroup", "signal"] : ["signal"]

    /// - Parameters:
    ///   - environment: in addition to buses that do not exist; those of the supervisor's own session are its
    ///     user's.
    ///   - monitor: the program that observes, if not the usual one.
    init(
        suspension: String = SupervisorProcess.ways[0], environment: [String: String] = [:],
        monitor: String? = nil, _ settings: [String] = []
    ) throws {
        directory = try TemporaryDirectory()
        chmod(directory.path, 0o755)
        var settings = settings
        settings += [
            "wakes.linger=50ms", "wakes.limit=1000", "suspension.retry=20ms", "budgets.mediaLapse=1s",
            // The memory and the supervisor of this machine must not matter.
            "memoryPressure.file=", "stateDirectory=",
        ]
        if let monitor { settings.append("monitorProgram=" + monitor) }
        let variables = bareEnvironment().merging(environment) { $1 }
        daemon = try Helper(
            [
                product("nightbelld"), "--system", "--socket", directory.file("nightbell.sock"),
                "--runtime-directory", directory.path, "--suspend", suspension, "--log-level", "critical",
            ] + settings.flatMap { ["--set", $0] }, environment: variables)
        let serves = try eventually(within: 30_000) { try !status().isEmpty }
        try check(serves, "nightbelld does not serve")
    }

    /// An orderly stop, so that its cgroups are removed.
    deinit {
        kill(daemon.pid, SIGTERM)
        if let process = try? ProcessHandle(opening: daemon.pid) {
            _ = Poll.wait(process.rawValue, for: .readable, timeoutMilliseconds: 10_000)
        }
        daemon.end()
        let left = cgroupsLeft(by: directory.path)
        if !left.isEmpty { Issue.record("left behind: \(left)") }
    }

    /// The output of `nightbell`; empty: it failed.
    func nightbell(_ arguments: String...) throws -> String {
        try output(
            [product("nightbell")] + arguments,
            environment: bareEnvironment().merging(["NIGHTBELL_SOCKET": socket]) { $1 })
    }

    /// One of `Examples/Modes`.
    func example(_ name: String, _ command: [String], environment: [String: String] = [:]) throws -> Example {
        var variables = bareEnvironment().merging(environment) { $1 }
        variables["NIGHTBELL_SOCKET"] = socket
        variables["NIGHTBELL_IDENTIFIER"] = name
        return try Example(
            name, self, command, output: directory.file(name), environment: variables)
    }

    func show(_ client: String) throws -> String { try nightbell("show", client, "--json") }

    func wait(for client: String, toBe state: String) throws {
        let isReached = try eventually(within: 60_000) {
            try show(client).contains("\"state\":\"\(state)\"")
        }
        try check(isReached, "\(client) does not become \(state): \(try show(client))")
    }

    /// How often the client was woken.
    func wakes(of client: String) throws -> Int {
        let shown = try show(client)
        guard let key = shown.firstRange(of: "\"wakes\":") else { return 0 }
        return Int(shown[key.upperBound...].prefix(while: \.isNumber)) ?? 0
    }

    /// The supervisor's state, with the sources of the monitors.
    func status() throws -> String { try nightbell("status", "--json") }

    /// The keeper, the worker and the monitors.
    func processes() throws -> [pid_t] {
        func children(of parents: [pid_t]) throws -> [pid_t] {
            try SmallFile.names(in: "/proc").compactMap { pid_t($0) }
                .filter { ProcFS.statistics($0).map { parents.contains($0.parent) } ?? false }
        }
        let workers = try children(of: [daemon.pid])
        return try [daemon.pid] + workers + children(of: workers)
    }
}

/// A client of `Examples/Modes`, with all that it reports.
final class Example {
    let name: String
    private let supervisor: SupervisorProcess
    private let process: Helper
    private let path: String
    /// The lines that were waited for, or came before those.
    private var seen = 0

    fileprivate init(
        _ name: String, _ supervisor: SupervisorProcess, _ command: [String], output: String,
        environment: [String: String]
    ) throws {
        self.name = name
        self.supervisor = supervisor
        path = output
        let file = try OwnedDescriptor(opening: output, O_WRONLY | O_CREAT | O_APPEND, mode: 0o600)
        process = try Helper(
            [product("mode-example")] + command, environment: environment, output: file.rawValue)
    }

    var pid: pid_t { process.pid }

    /// Kills it.
    func end() { process.end() }

    /// Waits until it reports this, after what was waited for before.
    @discardableResult
    func reports(_ text: String) throws -> String {
        var found: String?
        let isReported = try eventually(within: 60_000) {
            let lines = try lines()
            guard let index = lines[min(seen, lines.count)...].firstIndex(where: { $0.contains(text) })
            else { return false }
            seen = index + 1
            found = lines[index]
            return true
        }
        try check(isReported, "\(name) does not report \(text), but \(try lines())")
        return found ?? ""
    }

    /// All whole lines.
    func lines() throws -> [String] {
        try SmallFile.readText(path).split(separator: "\n", omittingEmptySubsequences: false).dropLast()
            .map(String.init)
    }

    /// Waits until it is suspended.
    func fallsAsleep() throws { try supervisor.wait(for: name, toBe: "suspended") }

    var wakes: Int { get throws { try supervisor.wakes(of: name) } }
}

/// A program of this package, built beside the tests.
func product(_ name: String) -> String {
    let tests = (try? readLink("/proc/self/exe")) ?? ""
    return tests[..<(tests.lastIndex(of: "/") ?? tests.startIndex)] + "/" + name
}

/// The output of a program; empty: it failed.
func output(_ command: [String], environment: [String: String] = [:]) throws -> String {
    var ends: [CInt] = [-1, -1]
    _ = try systemCall("pipe") { pipe(&ends) }
    // No other child of the tests may hold the output open.
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    let input = OwnedDescriptor(adopting: ends[0])
    let output = OwnedDescriptor(adopting: ends[1])
    let helper = try Helper(command, environment: environment, output: output.rawValue)
    output.close()
    let text = String(decoding: try SmallFile.read(input), as: UTF8.self)
    helper.end()
    return text
}
