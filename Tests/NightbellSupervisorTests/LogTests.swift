import EdgeTestSupport
import Foundation
import Glibc
import Logging
import NightbellCore
import NightbellSupervisor
import NightbellWire
import Testing

/// Whoever makes the supervisor say something again and again does not fill its log.
@Suite struct LogTests {
    @Test func soManyAMinuteAndTheRestCounted() {
        var limiter = LogLimiter()
        var now = Instant(nanoseconds: 5_000_000_000)
        var admitted: [Int?] = []
        for _ in 0..<25 { admitted.append(limiter.admit(.breaches, at: now)) }
        #expect(admitted == Array(repeating: 0, count: 10) + Array(repeating: nil, count: 15))
        #expect(limiter.admit(.sockets, at: now) == 0, "the others have room of their own")
        now = now + .seconds(60) - .nanoseconds(1)
        #expect(limiter.admit(.breaches, at: now) == nil)
        #expect(limiter.heldBack.map(\.count) == [16])
        now = now + .nanoseconds(1)
        #expect(limiter.admit(.breaches, at: now) == 16)
        #expect(limiter.admit(.breaches, at: now) == 0)
        #expect(limiter.heldBack.isEmpty)
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
        #expect(log.lines.count { $0.contains("is expelled") } == LogLimiter.perMinute)
        try supervisor.stop()
        #expect(log.lines.contains("90 messages about breaches of the protocol were held back"))
    }

    @Test func aDiskThatTakesNothing() throws {
        let state = try TemporaryDirectory()
        // Where the table is written before it takes the old one's place.
        mkdir(state.file("identifiers.new"), 0o700)
        let log = Log()
        var logger = Logger(label: "test") { _ in log.handler }
        logger.logLevel = .info
        let supervisor = try TestSupervisor(logger: logger) { $0.stateDirectory = state.path }
        func isTold() -> Int { log.lines.count { $0.contains("cannot write down") } }
        for number in 1...60 {
            _ = try WireClient(supervisor, "client.\(number)")
            let expected = min(number, LogLimiter.perMinute)
            #expect(eventually { isTold() >= expected })
        }
        try supervisor.stop()
        #expect(isTold() == LogLimiter.perMinute)
        #expect(log.lines.contains { $0.hasSuffix("about what cannot be written down were held back") })
    }
}

/// What was logged.
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
