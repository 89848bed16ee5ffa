import EdgeTestSupport
import Glibc
import LinuxSystem
import NightbellWire
import SwiftProtobuf

/// The real monitor, with this test as its supervisor. Killed when the test lets go of it.
final class MonitorProcess {
    typealias Fact = WireMonitorReport.OneOf_Fact

    let pid: pid_t
    private let socket: SeqPacketSocket
    private var buffer = PacketBuffer(capacity: MonitorPacket.maximumBytes)
    private var isReaped = false
    /// All reports that were received.
    private(set) var received: [Fact] = []

    /// - Parameters:
    ///   - environment: in addition to buses that do not exist.
    ///   - namespace: the network namespace that it runs in.
    init(
        _ arguments: [String] = [], environment: [String: String] = [:], namespace: NetworkNamespace? = nil
    ) throws {
        var command = [product("nightbell-monitor")] + arguments
        if let namespace { command = ["/usr/sbin/ip", "netns", "exec", namespace.name] + command }
        var variables = bareEnvironment()
        variables.merge(environment) { $1 }
        var started: pid_t = 0
        socket = try SeqPacketSocket.pair().separate { (near, far) throws(SystemError) in
            started = try spawn(command, environment: variables, descriptor: far.rawValue)
            return near
        }
        pid = started
    }

    deinit { kill() }

    func kill() {
        guard !isReaped else { return }
        Glibc.kill(pid, SIGKILL)
        _ = reap()
    }

    private func reap() -> CInt {
        isReaped = true
        var status: CInt = 0
        while waitpid(pid, &status, 0) == -1, errno == EINTR {}
        return status
    }

    /// The exit code, once it has ended by itself.
    func exitCode() throws -> CInt? {
        let process = try ProcessHandle(opening: pid)
        guard eventually({ process.hasExited }) else { return nil }
        return reap() >> 8 & 0xFF
    }

    /// Ends the connection as a supervisor that goes.
    func disconnect() { shutdown(socket.rawValue, CInt(SHUT_RDWR)) }

    // MARK: Messages

    func send(_ bytes: [UInt8]) throws {
        let isSent = try socket.send(bytes)
        try check(isSent, "the monitor does not read")
    }

    /// Demands unless the monitor has too many messages to read.
    func isSent(_ sources: [WireMonitorSource]) throws -> Bool {
        var demand = WireMonitorDemand()
        demand.sources = sources
        return try socket.send(try demand.serializedBytes())
    }

    func demand(
        _ sources: [WireMonitorSource], _ change: (inout WireMonitorDemand) -> Void = { _ in }
    ) throws {
        var demand = WireMonitorDemand()
        demand.sources = sources
        change(&demand)
        try send(try demand.serializedBytes())
    }

    /// The next report; nil: none came in this time, or the monitor has ended.
    func next(within milliseconds: Int64 = 10_000) throws -> Fact? {
        let deadline = BootClock.now() + milliseconds * 1_000_000
        while true {
            switch try socket.receive(into: &buffer) {
            case .packet:
                let report = try WireMonitorReport(serializedBytes: buffer.bytes)
                guard let fact = report.fact else { continue }
                received.append(fact)
                return fact
            case .end: return nil
            case .wouldBlock:
                let rest = (deadline - BootClock.now()) / 1_000_000
                guard rest > 0 else { return nil }
                _ = Poll.wait(socket.rawValue, for: .readable, timeoutMilliseconds: CInt(rest))
            }
        }
    }

    /// The first report that the body has an answer to; those before it are skipped.
    func first<Answer>(
        within milliseconds: Int64 = 20_000, _ body: (Fact) throws -> Answer?
    ) throws -> Answer {
        let deadline = BootClock.now() + milliseconds * 1_000_000
        while let fact = try next(within: max(0, (deadline - BootClock.now()) / 1_000_000)) {
            if let answer = try body(fact) { return answer }
        }
        throw NoReport(received: received)
    }

    /// Waits for a report about the availability of a source.
    func availability(
        of source: WireMonitorSource, is isAvailable: Bool, within milliseconds: Int64 = 20_000
    ) throws -> String {
        try first(within: milliseconds) { fact in
            guard case .source(let state) = fact, state.source == source, state.isAvailable == isAvailable
            else { return nil }
            return state.reason
        }
    }

    struct NoReport: Error {
        let received: [Fact]
    }
}

/// A machine with no buses.
func bareEnvironment() -> [String: String] {
    var variables = [
        "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent/system",
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent/session",
        "XDG_RUNTIME_DIR": "/nonexistent",
    ]
    // A sanitizer's findings go where those of the tests go.
    for name in ["ASAN_OPTIONS", "TSAN_OPTIONS"] {
        if let value = getenv(name) { variables[name] = String(cString: value) }
    }
    return variables
}

/// Starts a program with nothing but this environment; `descriptor` becomes its descriptor 3.
func spawn(
    _ command: [String], environment: [String: String] = [:], descriptor: CInt? = nil, output: CInt? = nil
) throws(SystemError) -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    if let descriptor { posix_spawn_file_actions_adddup2(&actions, descriptor, 3) }
    if let output {
        posix_spawn_file_actions_adddup2(&actions, output, 1)
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0)
    }
    let variables = environment.merging(["PATH": "/usr/sbin:/usr/bin:/sbin:/bin"]) { own, _ in own }
    return try EdgeTestSupport.spawn(command[0], Array(command.dropFirst()), environment: variables, &actions)
}

/// Runs a program to its end.
///
/// - Returns: whether it succeeded.
@discardableResult
func run(
    _ command: [String], environment: [String: String] = [:], isQuiet: Bool = false
) throws(SystemError) -> Bool {
    let null = try OwnedDescriptor(opening: "/dev/null", O_WRONLY)
    let pid = try spawn(command, environment: environment, output: isQuiet ? null.rawValue : nil)
    var status: CInt = 0
    while waitpid(pid, &status, 0) == -1, errno == EINTR {}
    return status == 0
}

/// A program that runs for the time of a test.
final class Helper {
    let pid: pid_t
    private var isEnded = false

    /// - Parameter output: nil: its output is discarded.
    init(_ command: [String], environment: [String: String] = [:], output: CInt? = nil) throws(SystemError) {
        let null = try OwnedDescriptor(opening: "/dev/null", O_WRONLY)
        pid = try spawn(command, environment: environment, output: output ?? null.rawValue)
    }

    deinit { end() }

    func end() {
        guard !isEnded else { return }
        isEnded = true
        kill(pid, SIGKILL)
        while waitpid(pid, nil, 0) == -1, errno == EINTR {}
    }
}

/// A part of a test did not do what the test needs.
struct SupportError: Error {
    let text: String
}

func check(_ condition: Bool, _ text: String) throws(SupportError) {
    guard condition else { throw SupportError(text: text) }
}
