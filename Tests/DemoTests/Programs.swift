import EdgeTestSupport
import FoundationEssentials
import Glibc
import LinuxSystem

/// The directory of the built programs: that of the test bundle, which is an argument of the test runner.
func programDirectory() throws -> String {
    for argument in CommandLine.arguments where argument.contains(".xctest") {
        let parts = argument.split(separator: "/", omittingEmptySubsequences: false)
        guard let bundle = parts.firstIndex(where: { $0.hasSuffix(".xctest") }) else { continue }
        let directory = parts[..<bundle].joined(separator: "/")
        if access("\(directory)/nightbell-demo", X_OK) == 0 { return directory }
    }
    throw Failure(text: "the test bundle is not among \(CommandLine.arguments)")
}

struct Failure: Error { var text: String }

/// A running demo, with its output.
final class DemoRun {
    let id: pid_t
    private let output: CInt
    private(set) var text = ""
    private(set) var exitStatus: CInt?

    init(_ arguments: [String], temporaryDirectory: String) throws {
        let program = try programDirectory() + "/nightbell-demo"
        var ends: [CInt] = [-1, -1]
        guard pipe(&ends) == 0 else { throw Failure(text: "pipe") }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        _ = fcntl(ends[0], F_SETFL, O_NONBLOCK)
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO)
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO)
        let repository = #filePath.split(separator: "/").dropLast(3).joined(separator: "/")
        let scenario = "/\(repository)/scripts/sipp/caller.xml"
        let path = getenv("PATH").map { String(cString: $0) } ?? "/usr/bin:/bin"
        defer { close(ends[1]) }
        id = try spawn(
            program, arguments + ["--scenario", scenario],
            environment: ["PATH": path, "TMPDIR": temporaryDirectory], &actions)
        output = ends[0]
    }

    deinit {
        if exitStatus == nil {
            kill(id, SIGKILL)
            var status: CInt = 0
            waitpid(id, &status, 0)
        }
        close(output)
    }

    /// Reads output until it contains `words`, or, with nil, until it ends. False: not in time.
    func read(until words: String?, within seconds: Int) -> Bool {
        let end = ContinuousClock.now + .seconds(seconds)
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            if let words, text.contains(words) { return true }
            let left = end - .now
            guard left > .zero else { return false }
            var entry = pollfd(fd: output, events: Int16(POLLIN), revents: 0)
            guard poll(&entry, 1, CInt(left / .milliseconds(1)) + 1) > 0 else { continue }
            let count = Glibc.read(output, &buffer, buffer.count)
            if count > 0 {
                text += String(decoding: buffer[..<count], as: UTF8.self)
            } else if count == 0 {
                var status: CInt = 0
                waitpid(id, &status, 0)
                exitStatus = status & 0x7F == 0 ? (status >> 8) & 0xFF : 128 + (status & 0x7F)
                return words == nil
            }
        }
    }

    func send(_ signal: CInt) { kill(id, signal) }
}

/// The last line of a demo.
struct DemoResult: Decodable {
    struct Latency: Decodable {
        var p50: Double
        var p99: Double
        var max: Double
    }

    var clients: Int
    var calls: Int
    var answered: Int
    var endedProperly: Int
    var lostWakes: Int
    var lateKeepalives: Int
    var keepaliveRuns: Int
    var wakesByReason: [String: Int]
    var wakesWithoutReason: Int
    var wakeLatencyUs: Latency
    var asleepPercent: Double
    var asleepAtEnd: Int
    var suspend: String

    init(of output: String) throws {
        let last = output.split(separator: "\n").last ?? ""
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        self = try decoder.decode(Self.self, from: Data(last.utf8))
    }
}

/// A process that is no child of the test.
final class RunningProcess {
    private let handle: ProcessHandle

    init(_ handle: consuming ProcessHandle) { self.handle = handle }

    func ends(within seconds: CInt) -> Bool {
        !Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: seconds * 1_000).isEmpty
    }
}

/// A directory for one test, removed at its end.
final class TemporaryDirectory {
    let path: String

    init() throws {
        var template = Array("/tmp/nightbell-demo-tests-XXXXXX".utf8CString)
        guard let path = mkdtemp(&template) else { throw Failure(text: "mkdtemp") }
        self.path = String(cString: path)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    /// Handles of the processes with this directory in their command line.
    func handles() throws -> [RunningProcess] {
        try processesThatNameIt().map { line in
            guard let pid = line.split(separator: ":").first.flatMap({ pid_t($0) }) else {
                throw Failure(text: line)
            }
            return RunningProcess(try ProcessHandle(opening: pid))
        }
    }

    /// The processes with this directory in their command line.
    func processesThatNameIt() -> [String] {
        let entries = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        return entries.compactMap { entry in
            guard Int32(entry) != nil,
                let bytes = FileManager.default.contents(atPath: "/proc/\(entry)/cmdline")
            else {
                return nil
            }
            let words = String(decoding: bytes.map { $0 == 0 ? 0x20 : $0 }, as: UTF8.self)
            return words.contains(path) ? "\(entry): \(words)" : nil
        }
    }

    func names() throws -> [String] { try FileManager.default.contentsOfDirectory(atPath: path).sorted() }

    var isEmpty: Bool { (try? FileManager.default.contentsOfDirectory(atPath: path))?.isEmpty ?? false }
}
