import EdgeTestSupport
import Foundation
import Launching
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// One client that several processes play in turn: test clients, each of which connects to the test when it
/// starts, whether the test or the supervisor has started it.
final class TestClient {
    let identifier: String
    let socketPath: String
    private let directory: TemporaryDirectory
    private let listener: Int32
    private let environment: [String: String]
    /// The program for the supervisor to launch.
    var program = ScriptedClientProcess.program("scripted-client")
    var arguments: [String] = []
    /// The identifier in the record of its launch; empty: none.
    var launchIdentifier = ""
    /// The first process, which the test itself has started.
    private(set) var first: Child?
    private var launched: Launched?

    init(
        _ identifier: String, socketPath: String, environment: [String: String] = [:]
    ) throws {
        self.identifier = identifier
        self.socketPath = socketPath
        directory = try TemporaryDirectory()
        chmod(directory.path, 0o755)
        let path = directory.file("control")
        let listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        self.listener = listener
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
        let length = socklen_t(MemoryLayout<sockaddr_un>.size)
        let bound = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(listener, $0, length) }
        }
        guard bound == 0, listen(listener, 16) == 0 else { throw Pair.failure("listen") }
        chmod(path, 0o777)
        // A backtrace of a crash takes longer than the tests wait.
        let own = ["CLIENT_CONTROL": path, "SWIFT_BACKTRACE": "enable=no"]
        self.environment = environment.merging(own) { $1 }
    }

    convenience init(
        _ identifier: String, of supervisor: TestSupervisor, environment: [String: String] = [:]
    ) throws {
        try self.init(identifier, socketPath: supervisor.socketPath, environment: environment)
        launched = supervisor.launched
    }

    deinit { close(listener) }

    /// How this program is started, as the supervisor is told.
    var specification: WireLaunchSpecification {
        .with {
            $0.arguments = [program] + arguments
            $0.directory = "/"
            $0.environment = environment
            $0.identifier = launchIdentifier
        }
    }

    /// Starts the first process as `nightbell run` would, or as another user, or as a program that has more
    /// privileges than its user, or may gain none.
    func start(
        _ words: String = "voip", as user: uid_t? = nil, startedBy starter: uid_t? = nil,
        isRecorded: Bool = true, isConfined: Bool = false
    ) throws -> TestClientProcess {
        var environment = environment
        if isRecorded {
            environment["NIGHTBELL_LAUNCH"] = Data(try specification.serializedBytes() as [UInt8])
                .base64EncodedString()
        }
        let program = ScriptedClientProcess.program("scripted-client")
        if let user {
            let drop = ["--reuid", "\(user)", "--regid", "\(user)", "--clear-groups", "--", program]
            first = try Child("/usr/bin/setpriv", drop, environment: environment)
        } else if isConfined {
            let drop = ["--no-new-privs", "--", program]
            first = try Child("/usr/bin/setpriv", drop, environment: environment)
        } else if let starter {
            let drop = ["--ruid", "\(starter)", "--", program]
            first = try Child("/usr/bin/setpriv", drop, environment: environment)
        } else {
            first = try Child(program, [], environment: environment)
        }
        let performance = try appears()
        try performance.command("hello \(identifier) \(words) socket=\(socketPath)")
        return performance
    }

    /// Has `nightbell run` start the first process, which sends nothing yet: in a session of its own, on this
    /// terminal, or without any.
    func run(
        _ arguments: [String], saying path: String = "/dev/null", terminal: String? = nil,
        wrapper: [String] = []
    ) throws -> TestClientProcess {
        let recorded = environment.keys.sorted().flatMap { ["--env", $0] }
        let words =
            ["run", "--socket", socketPath] + recorded + arguments + ["--"] + wrapper
            + [ScriptedClientProcess.program("scripted-client")]
        let command = ([ScriptedClientProcess.program("nightbell")] + words).map { "'\($0)'" }.joined(
            separator: " ")
        let line =
            terminal.map { "exec /usr/bin/setsid --ctty \(command) <\($0) >\($0) 2>&1" }
            ?? "exec /usr/bin/setsid \(command) 2>'\(path)'"
        first = try Child("/bin/sh", ["-c", line], environment: environment)
        return try appears()
    }

    /// Waits for the next process.
    func appears() throws -> TestClientProcess {
        guard !Poll.wait(listener, for: .readable, timeoutMilliseconds: 20_000).isEmpty else {
            throw TestFailure("no process appears as \(identifier)")
        }
        let connection = accept(listener, nil, nil)
        guard connection >= 0 else { throw Pair.failure("accept") }
        return try TestClientProcess(OwnedDescriptor(adopting: connection))
    }

    /// Waits for a process that the supervisor has launched, and has it say Hello.
    func returns(_ words: String = "voip") throws -> TestClientProcess {
        let performance = try appears()
        launched?.note(performance.pid)
        try performance.command("hello \(identifier) \(words)")
        return performance
    }

    /// No process appears for a while.
    func staysAway(milliseconds: Int32 = 400) -> Bool {
        Poll.wait(listener, for: .readable, timeoutMilliseconds: milliseconds).isEmpty
    }
}

/// One process of an actor.
final class TestClientProcess {
    let channel: OwnedDescriptor
    private(set) var pid: pid_t = 0
    private var pending = ""
    private var lines: [String] = []

    init(_ channel: consuming OwnedDescriptor) throws {
        self.channel = channel
        pid = pid_t(try event("ready").split(separator: "=").last ?? "") ?? 0
    }

    func say(_ text: String) throws {
        let rawValue = channel.rawValue
        let bytes = Array((text + "\n").utf8)
        _ = try systemCall("send") { send(rawValue, bytes, bytes.count, Int32(MSG_NOSIGNAL)) }
    }

    /// Gives a command and waits until it was carried out; returns the text after `ok`.
    @discardableResult
    func command(_ text: String) throws -> String {
        try say(text)
        let answer = try event { $0 == "ok" || $0.hasPrefix("ok ") || $0.hasPrefix("error ") }
        guard answer.hasPrefix("ok") else { throw TestFailure("\(text): \(answer)") }
        return String(answer.dropFirst(3))
    }

    /// Connects to a listener of the test's and hands the connection over to survive; returns the test's end.
    func park(_ name: String, _ words: String = "survives") throws -> Int32 {
        let (listener, address) = try Pair.listener()
        defer { close(listener) }
        try command("connect-tcp \(UInt16(bigEndian: address.sin_port)) \(name)")
        let peer = accept(listener, nil, nil)
        guard peer >= 0 else { throw Pair.failure("accept") }
        try command("handover \(name) voip \(words)")
        return peer
    }

    /// The next line that begins with this word; earlier lines stay in the queue.
    @discardableResult
    func event(_ word: String) throws -> String {
        try event { $0 == word || $0.hasPrefix(word + " ") }
    }

    private func event(_ matches: (String) -> Bool) throws -> String {
        var next = 0
        while true {
            while next < lines.count {
                if matches(lines[next]) { return lines.remove(at: next) }
                next += 1
            }
            guard !Poll.wait(channel.rawValue, for: .readable, timeoutMilliseconds: 20_000).isEmpty else {
                throw TestFailure("no further output; last: \(lines.suffix(5))")
            }
            var bytes = [UInt8](repeating: 0, count: 4_096)
            let rawValue = channel.rawValue
            let count = try systemCall("read") { read(rawValue, &bytes, bytes.count) }
            guard count > 0 else { throw TestFailure("it is gone; last: \(lines.suffix(5))") }
            pending += String(decoding: bytes.prefix(count), as: UTF8.self)
            while let end = pending.firstIndex(of: "\n") {
                lines.append(String(pending[..<end]))
                pending.removeSubrange(...end)
            }
        }
    }
}

extension TestSupervisor {
    /// The supervisor's information on a client; nil if it knows none.
    func show(_ identifier: String) throws -> WireClientInfo? {
        let client = try WireClient(self)
        switch try client.ask(.show(.with { $0.identifier = identifier })) {
        case .clientInfo(let info): return info
        case .error(let error) where error.code == .noSuchClient: return nil
        case let other: throw TestFailure("show \(identifier): \(other)")
        }
    }

    func reaches(_ state: WireClientState, _ identifier: String) throws {
        let reached = try eventually(within: 20_000) { try self.show(identifier)?.state == state }
        guard reached else {
            throw TestFailure("\(identifier) is not \(state): \(String(describing: try show(identifier)))")
        }
    }

    func forgets(_ identifier: String) throws {
        guard try eventually(within: 20_000, { try self.show(identifier) == nil }) else {
            throw TestFailure("\(identifier) is \(String(describing: try show(identifier)?.state))")
        }
    }

    @discardableResult
    func administrate(_ body: WireClientMessage.OneOf_Body) throws -> WireSupervisorMessage.OneOf_Body {
        try WireClient(self).ask(body)
    }
}

extension TestClient {
    /// As a manifest would declare it.
    func declaration() throws -> Declaration {
        let launch = LaunchSpecification(
            arguments: specification.arguments, directory: "/", environment: specification.environment)
        var registration = Registration(
            identifier: try #require(ClientIdentifier(identifier)), user: geteuid(), modes: .voip)
        registration.isLaunchable = true
        return Declaration(registration, launch: launch, identity: nil, startsWithSupervisor: true)
    }
}
