import EdgeTestSupport
import Glibc
import LinuxSystem

/// A program of this package, built beside the tests.
func product(_ name: String) throws -> String {
    let tests = try readLink("/proc/self/exe")
    return tests[..<(tests.lastIndex(of: "/") ?? tests.startIndex)] + "/" + name
}

/// The text that a command writes, and its exit status.
func output(_ command: String...) throws -> (text: String, code: CInt) {
    let child = try Child(command[0], Array(command.dropFirst()))
    var text = ""
    while let piece = try child.hear(within: 60_000), !piece.isEmpty { text += piece }
    child.reap()
    return (text, child.status >> 8)
}

/// A real `nightbelld`, with transfers. As root it serves clients of another user, because root has none.
final class Supervised {
    let directory: TemporaryDirectory
    private(set) var daemon: Child
    private let settings: [String]
    private let environment: [String: String]
    /// The words that start it as one of a network namespace.
    private let entering: [String]

    /// The user of the clients.
    static let user: uid_t = geteuid() == 0 ? 65_534 : geteuid()

    var socket: String { directory.path + "/run/nightbell.sock" }
    /// Of the clients' transfers.
    var store: String { "\(directory.path)/state/transfers/\(Self.user)" }
    /// The clients' own.
    var own: String { directory.path + "/own" }

    /// - Parameters:
    ///   - namespace: the network that it is in; nil: the test's own.
    ///   - manifest: the text of one, given the directory; nil: there is none.
    init(
        _ settings: [String] = [], environment: [String: String] = [:], in namespace: NetworkNamespace? = nil,
        manifest: ((String) throws -> String)? = nil
    ) throws {
        self.environment = environment
        entering = namespace?.entering ?? []
        directory = try TemporaryDirectory()
        self.settings =
            settings + ["manifestDirectory=" + (manifest == nil ? "" : directory.path + "/manifests")]
        for name in ["", "/run", "/state", "/own", "/manifests"] {
            mkdir(directory.path + name, 0o755)
            chmod(directory.path + name, 0o755)
        }
        if let manifest {
            let path = directory.path + "/manifests/client.yaml"
            _ = try OwnedDescriptor(opening: path, O_WRONLY | O_CREAT, mode: 0o644)
            try SmallFile.write(try manifest(directory.path), to: path)
        }
        if geteuid() == 0 { chown(directory.path + "/own", Self.user, Self.user) }
        daemon = try Self.start(directory.path, self.settings, environment, entering)
        try waitUntilReady()
    }

    private static func start(
        _ directory: String, _ settings: [String], _ environment: [String: String], _ entering: [String]
    ) throws -> Child {
        // The monitor is for those that ask for it.
        let all =
            ["monitor=off"] + settings + [
                "wakes.linger=50ms", "wakes.limit=1000", "suspension.retry=20ms", "launches.retry=50ms",
                "keeper.crashLimit=1000", "keeper.crashPeriod=10ms", "memoryPressure.file=",
                "stateDirectory=\(directory)/state", "launches.relaunches=200",
                // However busy the machine is, a moment counts as good.
                "fetch.processorPressure=101", "fetch.memoryPressure=101",
            ]
        let words = entering + [try product("nightbelld")]
        return try Child(
            words[0],
            words.dropFirst() + [
                "--system", "--socket", directory + "/run/nightbell.sock", "--runtime-directory",
                directory + "/run", "--suspend", geteuid() == 0 ? "auto" : "signal", "--log-level", "error",
            ] + all.flatMap { ["--set", $0] },
            environment: environment.merging(["PATH": "/usr/bin:/bin"]) { $1 })
    }

    private func waitUntilReady() throws {
        let path = socket
        guard eventually(within: 60_000, { (try? SeqPacketSocket.connect(path: path)) != nil }) else {
            throw TimedOut()
        }
    }

    /// Kills the keeper with its worker, and starts another.
    func restart() throws {
        let worker = try worker()
        daemon.end()
        kill(worker, SIGKILL)
        daemon = try Self.start(directory.path, settings, environment, entering)
        try waitUntilReady()
    }

    func nightbell(_ arguments: String...) throws -> String {
        let child = try Child(
            product("nightbell"), arguments,
            environment: ["NIGHTBELL_SOCKET": socket, "PATH": "/usr/bin:/bin"])
        var text = ""
        while let piece = try child.hear(within: 60_000), !piece.isEmpty { text += piece }
        return text
    }

    func show(_ client: String) throws -> String { try nightbell("show", client, "--json") }

    func wait(for client: String, toBe state: String) throws {
        guard try eventually(within: 60_000, { try show(client).contains("\"state\":\"\(state)\"") }) else {
            throw Unexpected("\(client) does not become \(state): \(try show(client))")
        }
    }

    /// A counter of a client.
    func count(_ counter: String, of client: String) throws -> Int {
        let text = try show(client)
        guard let start = text.firstRange(of: "\"\(counter)\":")?.upperBound else { return 0 }
        return Int(text[start...].prefix { $0.isNumber }) ?? 0
    }

    /// The worker process.
    func worker() throws -> pid_t {
        var worker: pid_t?
        _ = eventually(within: 30_000) {
            worker = Self.children(of: daemon.pid).first
            return worker != nil
        }
        return try require(worker)
    }

    func killWorker() throws {
        let old = try worker()
        kill(old, SIGKILL)
        // The old one is a child of the keeper until that has waited for it.
        let isReplaced = eventually(within: 30_000) {
            let children = Self.children(of: daemon.pid)
            return !children.isEmpty && !children.contains(old)
        }
        guard isReplaced else { throw TimedOut() }
    }

    /// The transfer process; nil: there is none.
    var transferProcess: pid_t? {
        guard let worker = Self.children(of: daemon.pid).first else { return nil }
        return Self.children(of: worker).first { pid in
            (try? SmallFile.readText("/proc/\(pid)/comm")) == "nightbell-trans\n"
        }
    }

    private static func children(of pid: pid_t) -> [pid_t] {
        ProcFS.threadIdentifiers(pid).flatMap { thread in
            let text = (try? SmallFile.readText("/proc/\(pid)/task/\(thread)/children")) ?? ""
            return text.split(separator: " ").compactMap { pid_t($0) }
        }
    }

    /// The words that run a program as the clients' user.
    static var asUser: [String] {
        geteuid() == 0
            ? ["/usr/bin/setpriv", "--reuid=\(user)", "--regid=\(user)", "--clear-groups"] : []
    }

    deinit {
        kill(daemon.pid, SIGTERM)
        if let process = try? daemon.handle() {
            _ = Poll.wait(process.rawValue, for: .readable, timeoutMilliseconds: 10_000)
        }
        daemon.end()
    }
}

struct Unexpected: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}

/// A client of the supervisor that does what it is told. One that is launched connects to the test by itself.
final class SupervisedClient {
    private let supervisor: Supervised
    let name: String
    private var child: Child?
    /// The listener of a launched client, and its connection.
    private let control: Int32
    private var connection: OwnedDescriptor?
    private var pending = ""
    private var lines: [String] = []

    private var path: String { supervisor.own + "/\(name).control" }

    /// - Parameter isLaunchable: it is started by `nightbell run`, so that the supervisor can start it again.
    convenience init(_ supervisor: Supervised, _ name: String, isLaunchable: Bool = false) throws {
        try self.init(awaiting: name, of: supervisor)
        try start(isLaunchable: isLaunchable)
        try accept()
        try hello()
    }

    /// One that the supervisor launches.
    init(awaiting name: String, of supervisor: Supervised) throws {
        self.supervisor = supervisor
        self.name = name
        control = Glibc.socket(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = Array((supervisor.own + "/\(name).control").utf8)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
        let length = socklen_t(MemoryLayout<sockaddr_un>.size)
        let isBound = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(control, $0, length) }
        }
        guard isBound == 0, listen(control, 16) == 0 else { throw SystemError("bind") }
        chmod(supervisor.own + "/\(name).control", 0o777)
    }

    /// - Parameter ignoresTermination: only a kill ends it.
    func start(isLaunchable: Bool, ignoresTermination: Bool = false) throws {
        var words = ignoresTermination ? ["/bin/sh", "-c", "trap '' TERM; exec \"$@\"", "sh"] : []
        words += Supervised.asUser
        if isLaunchable {
            words += [
                try product("nightbell"), "run", "--identifier", name, "--env", "CLIENT_CONTROL=\(path)",
                "--",
            ]
        }
        words.append(try product("scripted-client"))
        child = try Child(
            words[0], Array(words.dropFirst()),
            environment: [
                "NIGHTBELL_SOCKET": supervisor.socket, "CLIENT_CONTROL": path, "PATH": "/usr/bin:/bin",
            ])
    }

    /// Waits for the process to connect.
    func accept() throws {
        guard !Poll.wait(control, for: .readable, timeoutMilliseconds: 60_000).isEmpty else {
            throw TimedOut()
        }
        connection = OwnedDescriptor(adopting: try systemCall("accept") { Glibc.accept(control, nil, nil) })
        pending = ""
        lines = []
    }

    /// Whether another process of it waits for `accept`.
    var isCalled: Bool { !Poll.wait(control, for: .readable, timeoutMilliseconds: 0).isEmpty }

    /// - Parameter other: the name that it gives in Hello, if it is not that of its launch.
    func hello(as other: String? = nil) throws {
        try command("hello \(other ?? name) socket=\(supervisor.socket)")
    }

    @discardableResult
    func command(_ text: String) throws -> String {
        try tell(text)
        let answer = try line { $0 == "ok" || $0.hasPrefix("ok ") || $0.hasPrefix("error ") }
        guard answer.hasPrefix("ok") else { throw Unexpected("\(text): \(answer)") }
        return String(answer.dropFirst(3))
    }

    /// Without waiting for the answer.
    func tell(_ text: String) throws {
        let socket = try require(connection?.rawValue)
        let bytes = Array((text + "\n").utf8)
        _ = try systemCall("send") { send(socket, bytes, bytes.count, CInt(MSG_NOSIGNAL)) }
    }

    /// Goes to sleep.
    func sleep() throws {
        try tell("background")
        _ = try event("did-enter-background")
        try supervisor.wait(for: name, toBe: "suspended")
    }

    @discardableResult
    func event(_ word: String, within milliseconds: Int64 = 60_000) throws -> String {
        try line(within: milliseconds) { $0 == word || $0.hasPrefix(word + " ") }
    }

    /// The lines so far that begin with this word, and were not waited for.
    func heard(_ word: String) -> [String] { lines.filter { $0.hasPrefix(word) } }

    private func line(within milliseconds: Int64 = 60_000, _ matches: (String) -> Bool) throws -> String {
        let deadline = BootClock.now() + milliseconds * 1_000_000
        while true {
            if let index = lines.firstIndex(where: matches) { return lines.remove(at: index) }
            let left = (deadline - BootClock.now()) / 1_000_000
            guard left > 0, try hear(within: CInt(clamping: left)) else {
                throw Unexpected("\(name) says nothing more; last: \(lines.suffix(6))")
            }
        }
    }

    private func hear(within milliseconds: CInt) throws -> Bool {
        let socket = try require(connection?.rawValue)
        guard !Poll.wait(socket, for: .readable, timeoutMilliseconds: milliseconds).isEmpty else {
            return false
        }
        var bytes = [UInt8](repeating: 0, count: 65_536)
        let count = try systemCall("read") { read(socket, &bytes, bytes.count) }
        guard count > 0 else { return false }
        pending += String(decoding: bytes.prefix(count), as: UTF8.self)
        while let end = pending.firstIndex(of: "\n") {
            lines.append(String(pending[..<end]))
            pending.removeSubrange(...end)
        }
        return true
    }

    /// Its process number.
    func pid() throws -> pid_t { try require(pid_t(try command("pid"))) }

    deinit { close(control) }
}
