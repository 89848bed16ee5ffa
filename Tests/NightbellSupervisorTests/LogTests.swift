import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import Logging
import NightbellCore
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// A client that causes log messages again and again does not fill the log.
@Suite struct LogTests {
    @Test func aLimitPerMinuteAndTheRestCounted() {
        var limiter = LogLimiter()
        var now = Instant(nanoseconds: 5_000_000_000)
        var admitted: [Int?] = []
        for _ in 0..<25 { admitted.append(limiter.admit(.violations, at: now)) }
        #expect(admitted == Array(repeating: 0, count: 10) + Array(repeating: nil, count: 15))
        #expect(limiter.admit(.sockets, at: now) == 0, "the others have room of their own")
        now = now + .seconds(60) - .nanoseconds(1)
        #expect(limiter.admit(.violations, at: now) == nil)
        #expect(limiter.heldBack.map(\.count) == [16])
        now = now + .nanoseconds(1)
        #expect(limiter.admit(.violations, at: now) == 16)
        #expect(limiter.admit(.violations, at: now) == 0)
        #expect(limiter.heldBack.isEmpty)
    }

    @Test func oneUserDoesNotSilenceAnother() {
        var limiter = LogLimiter()
        let now = Instant(nanoseconds: 5_000_000_000)
        let flood = (0..<25).map { _ in limiter.admit(.crashes, of: 1_000, at: now) }
        #expect(flood.count { $0 != nil } == LogLimiter.perMinute)
        #expect(limiter.admit(.crashes, of: 1_001, at: now) == 0)
        // All users together do not fill the log either, however many they are.
        for user in UInt32(2_000)..<8_000 { _ = limiter.admit(.crashes, of: user, at: now) }
        #expect(limiter.heldBack.map(\.count) == [25 + 1 + 6_000 - LogLimiter.perMinuteOfAll])
        let later = now + .seconds(60)
        var told = 0
        for user in UInt32(20_000)..<30_000 { told += limiter.admit(.crashes, of: user, at: later) ?? 0 }
        let all = told + limiter.heldBack.reduce(0) { $0 + $1.count }
        #expect(all == 25 + 1 + 16_000 - 2 * LogLimiter.perMinuteOfAll, "all that was held back is told")
    }

    @Test func fewUsersDoNotSilenceTheOthers() {
        var limiter = LogLimiter()
        let now = Instant(nanoseconds: 5_000_000_000)
        var admitted = 0
        for _ in 0..<2 * LogLimiter.perMinute {
            for user in UInt32(1_000)..<1_020 where limiter.admit(.crashes, of: user, at: now) != nil {
                admitted += 1
            }
        }
        #expect(admitted == LogLimiter.perMinuteOfAll / 2)
        for user in UInt32(2_000)..<2_050 { #expect(limiter.admit(.crashes, of: user, at: now) == 0) }
        #expect(limiter.admit(.crashes, of: 2_050, at: now) == nil)
    }

    @Test func clientsThatDoNotAnswer() throws {
        let log = Log()
        var logger = Logger(label: "test") { _ in log.handler }
        logger.logLevel = .notice
        let supervisor = try TestSupervisor(logger: logger) {
            $0.settings.budgets.prepareToSuspend = .milliseconds(20)
        }
        let clients = try (0..<25).map { try WireClient(supervisor, "org.example.phone\($0)") }
        for client in clients { try client.enterBackground() }
        let administrator = try WireClient(supervisor)
        #expect(
            try eventually {
                try administrator.status().clientsByState["suspended"] == UInt64(clients.count)
            })
        // Two messages about each: when it is late, and when it is suspended all the same.
        let told = log.lines.count { $0.contains(": forced: ") || $0.contains(": overrun: ") }
        #expect(told == LogLimiter.perMinute)
        try supervisor.stop()
        #expect(log.lines.contains("40 messages about clients that take too long were held back"))
    }

    @Test func clientTextIsEscaped() {
        let log = Log()
        let logger = Logger(label: "test") { _ in log.handler }
        var limiter = LogLimiter()
        limiter.log(.launches, "in /tmp/\u{9B}2J\n\u{7F}", .error, logger, at: Instant(nanoseconds: 0))
        #expect(log.lines == [#"in /tmp/\u009b2J\u000a\u007f"#])
    }

    /// The same in the daemon's log.
    @Test func theDaemonsLogIsEscaped() throws {
        let place = try TemporaryDirectory()
        let file = place.file("log")
        let directory = NSTemporaryDirectory() + "nightbell-\u{9B}2J\u{85}\u{202E}\u{7F}-\(UUID().uuidString)"
        let daemon = try DaemonProcess(
            suspension: "none", directory: directory, before: "exec 2>'\(file)'", "--log-level info")
        // It listens before it logs that.
        var text = ""
        let isReady = try eventually {
            text = try String(contentsOfFile: file, encoding: .utf8)
            return text.contains("ready")
        }
        #expect(isReady)
        #expect(text.contains(#"nightbell-\u009b2J\u0085\u202e\u007f-"#), "\(text)")
        #expect(!text.unicodeScalars.contains { $0 != "\n" && Escaping.isControl($0) })
        withExtendedLifetime((place, daemon)) {}
    }

    @Test func floodOfBreaches() throws {
        let log = Log()
        var logger = Logger(label: "test") { _ in log.handler }
        logger.logLevel = .info
        let supervisor = try TestSupervisor(logger: logger)
        for _ in 0..<100 {
            let stranger = try WireClient(supervisor)
            try stranger.sendRaw([0xff])
            #expect(try stranger.end()?.code == .malformedPacket)
        }
        #expect(log.lines.count { $0.contains("is disconnected") } == LogLimiter.perMinute)
        try supervisor.stop()
        #expect(log.lines.contains("90 messages about violations of the protocol were held back"))
    }

    @Test func disconnectsSayWhy() throws {
        let log = Log()
        var logger = Logger(label: "test") { _ in log.handler }
        logger.logLevel = .info
        let supervisor = try TestSupervisor(logger: logger)
        let mistakes: [(WireClientMessage.OneOf_Body, String)] = [
            (
                .hello(.with { ($0.version, $0.identifier) = (1, "with space") }),
                "an identifier has 1 to 128 characters out of A-Z a-z 0-9 . _ -"
            ),
            (.enterBackground(WireEnterBackground()), "Hello comes first"),
        ]
        for (mistake, reason) in mistakes {
            let stranger = try WireClient(supervisor)
            try stranger.send(mistake, request: 1)
            #expect(try stranger.end()?.message == reason)
            #expect(log.lines.contains { $0.hasSuffix(" is disconnected: \(reason)") }, "\(log.lines)")
        }
        try supervisor.stop()
    }

    @Test(arguments: [("exit 3", "exit status 3"), ("SIGKILL", "signal 9")])
    func crashesSayHow(_ way: String, _ ending: String) throws {
        let name = "org.example.phone"
        let log = Log()
        var logger = Logger(label: "test") { _ in log.handler }
        logger.logLevel = .notice
        let supervisor = try TestSupervisor(suspension: .none, logger: logger) {
            $0.settings.launches.retry = .milliseconds(20)
        }
        let watcher = try WireClient(supervisor)
        #expect(try watcher.ask(.watch(.with { $0.identifier = name })) == .done(WireDone()))
        let client = try TestClient(name, of: supervisor)
        let process = try client.start()
        if way == "SIGKILL" { kill(process.pid, SIGKILL) } else { try process.say(way) }
        #expect(try watcher.event { $0.kind == "crashed" }.detail == "ended badly: \(ending)")
        let line = "\(name): crashed: ended badly: \(ending)"
        #expect(eventually { log.lines.contains(line) }, "\(log.lines)")
        let second = try client.returns()
        try supervisor.stop()
        withExtendedLifetime((process, second)) {}
    }

    /// Though it is checked for one client at a time.
    @Test func eachSleeperWithALockIsNamed() throws {
        let log = Log()
        var logger = Logger(label: "test") { _ in log.handler }
        logger.logLevel = .warning
        let supervisor = try TestSupervisor(suspension: .signal, logger: logger)
        let place = try TemporaryDirectory()
        let names = ["org.example.one", "org.example.two", "org.example.three"]
        let clients = try names.map { try ScriptedClientProcess(supervisor, $0) }
        for (name, client) in zip(names, clients) { try client.command("lock \(place.file(name))") }
        for client in clients { try client.enterBackground() }
        for name in names {
            #expect(eventually { log.lines.contains("\(name) sleeps with 1 file lock held") }, "\(log.lines)")
            let warnings = try supervisor.show(name)?.warnings ?? []
            #expect(warnings.contains("holds 1 file lock, also while it sleeps"), "\(warnings)")
        }
        try supervisor.stop()
        withExtendedLifetime(clients) {}
    }

    @Test func aDiskThatTakesNothing() throws {
        let state = try TemporaryDirectory()
        // In the place of the file that is written before it replaces the table.
        mkdir(state.file("identifiers.new"), 0o700)
        let log = Log()
        var logger = Logger(label: "test") { _ in log.handler }
        logger.logLevel = .info
        let supervisor = try TestSupervisor(logger: logger) { $0.stateDirectory = state.path }
        func isTold() -> Int { log.lines.count { $0.contains("cannot write down") } }
        for number in 1...60 {
            _ = try WireClient(supervisor, "client.\(number)")
            #expect(eventually { isTold() >= 1 })
        }
        try supervisor.stop()
        // Once for all attempts, and the consequence at the end.
        #expect(isTold() == 1)
        #expect(log.lines.contains { $0.contains("after the next start identifiers may go to the first") })
    }
}

/// The captured log.
final class Log: Sendable {
    private let lock = NSLock()
    private nonisolated(unsafe) var said: [String] = []

    var lines: [String] { lock.withLock { said } }

    var handler: Handler { Handler(log: self) }

    struct Handler: LogHandler {
        let log: Log
        var logLevel = Logger.Level.trace
        var metadata: Logger.Metadata = [:]

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            log.lock.withLock { log.said.append(event.message.description) }
        }
    }
}
