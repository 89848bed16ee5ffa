import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellSupervisor
import NightbellWire

/// A sleeping client with one connection that has a profile, and the far end of that. No process is really
/// stopped (`none`), so that the test itself can read the near end.
final class OffloadScene {
    static let name = "org.example.phone"

    let supervisor: TestSupervisor
    let client: WireClient
    let observer: WireClient
    let pair: Pair
    let token: UInt64

    init(
        _ pair: Pair, _ profile: WireProfile, _ configure: (inout SupervisorConfiguration) -> Void = { _ in }
    ) throws {
        self.pair = pair
        supervisor = try TestSupervisor(configure)
        observer = try WireClient(supervisor)
        client = try WireClient(supervisor, Self.name)
        token = try client.handOver(pair.near, profile: profile)
    }

    func sleep() throws {
        try client.goToSleep()
        try observer.wait(for: Self.name, toBe: .suspended, supervisor)
    }

    /// Falls asleep again after a wake.
    func sleepAgain(after wake: WireWake, delegating delegated: [WireDelegatedState] = []) throws {
        try client.finish(wake)
        try client.ready(try client.prepare(), delegating: delegated)
        try observer.wait(for: Self.name, toBe: .suspended, supervisor)
    }

    func info() throws -> WireClientInfo { try observer.show(Self.name) }

    func counters() throws -> WireOffloadCounters { try info().sockets[0].offload.counters }

    /// The peer's next input, this many bytes of it.
    func heard(_ count: Int, within milliseconds: Int32 = 10_000) throws -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < count {
            guard Poll.wait(pair.far, for: .readable, timeoutMilliseconds: milliseconds).contains(.readable)
            else { throw TestFailure("heard only \(bytes) of \(count) bytes") }
            var buffer = [UInt8](repeating: 0, count: count - bytes.count)
            let read = recv(pair.far, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            guard read > 0 else { throw TestFailure("heard only \(bytes) of \(count) bytes, then the end") }
            bytes += buffer[..<read]
        }
        return bytes
    }

    /// The owner's input: the peer's kernel may send it in pieces.
    func received(_ count: Int) -> String {
        var text = ""
        _ = eventually {
            text += pair.received()
            return text.utf8.count >= count
        }
        return text
    }

    func heardText(_ count: Int) throws -> String { String(decoding: try heard(count), as: UTF8.self) }

    /// Waits until the supervisor's counters satisfy the condition.
    func reaches(_ what: String, _ condition: (WireOffloadCounters) -> Bool) throws {
        guard try eventually({ condition(try counters()) }) else {
            throw TestFailure("\(what): \(try counters())")
        }
    }

    func stop() throws { try supervisor.stop() }
}

extension WireProfile {
    static func make(
        _ kind: OneOf_Kind, interval: Duration? = nil, answerWithin: Duration? = nil
    ) -> WireProfile {
        var profile = WireProfile()
        profile.kind = kind
        profile.intervalMs = interval.map { UInt64($0 / .milliseconds(1)) } ?? 0
        profile.answerWithinMs = answerWithin.map { UInt64($0 / .milliseconds(1)) } ?? 0
        return profile
    }

    static var sip: WireProfile { make(.sip(.init())) }

    /// `ping` is answered by `pong`, `nop` is absorbed; with an interval, `PING` is sent and `PONG` awaited.
    static func lines(every interval: Duration? = nil, answerWithin: Duration? = nil) -> WireProfile {
        var pattern = Pattern()
        pattern.lineEnd = .newline
        for (text, reply) in [("ping", "pong"), ("nop", "")] {
            var exchange = Pattern.Exchange()
            exchange.pattern = Array(text.utf8).asField
            exchange.reply = Array(reply.utf8).asField
            pattern.exchanges.append(exchange)
        }
        if interval != nil {
            pattern.ping = Array("PING".utf8).asField
            pattern.answer = Array("PONG".utf8).asField
        }
        return make(.pattern(pattern), interval: interval, answerWithin: answerWithin)
    }
}

extension WireProfile {
    /// Patterns of any bytes, each with its reply.
    static func bytes(_ exchanges: [([UInt8], [UInt8])]) -> WireProfile {
        var pattern = Pattern()
        pattern.exchanges = exchanges.map { bytes, reply in
            var exchange = Pattern.Exchange()
            exchange.pattern = bytes.asField
            exchange.reply = reply.asField
            return exchange
        }
        return make(.pattern(pattern))
    }
}

extension WireClient {
    func handOver(_ descriptor: Int32, profile: WireProfile, encrypted: Bool = false) throws -> UInt64 {
        var message = WireHandOver()
        var socket = WireHandOver.Socket()
        socket.tag = .voip
        socket.profile = profile
        socket.encrypted = encrypted
        message.sockets = [socket]
        switch try ask(.handOver(message), descriptors: [descriptor]) {
        case .handedOver(let handedOver):
            switch handedOver.adoptions[0].result {
            case .token(let token)?: return token
            case .error(let error)?: throw error
            case nil: throw TestFailure("an adoption without a result")
            }
        case .error(let error): throw error
        case let other: throw TestFailure("\(other)")
        }
    }

    func ready(_ epoch: UInt64, delegating delegated: [WireDelegatedState]) throws {
        var message = WireReadyToSuspend()
        message.epoch = epoch
        message.delegated = delegated
        try send(.readyToSuspend(message))
    }
}
