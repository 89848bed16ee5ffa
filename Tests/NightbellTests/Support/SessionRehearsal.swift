import Nightbell
import NightbellWire
import SwiftProtobuf
import Testing

let second: Int64 = 1_000_000_000

/// Drives the pure state without a socket or a clock.
struct SessionFixture {
    var state: SessionState
    /// The last message sent.
    var sent: [WireClientMessage] = []
    var notices: [String] = []
    var disconnects = 0

    init(reconnects: Bool = true) {
        state = SessionState(
            hello: .with { $0.identifier = "org.example.test" }, reconnects: reconnects,
            requestTimeout: 5 * second)
    }

    /// Registered, at this time.
    static func connected(at now: Int64 = 0, reconnects: Bool = true) -> SessionFixture {
        var rehearsal = SessionFixture(reconnects: reconnects)
        rehearsal.perform(rehearsal.state.connectionMade(at: now))
        rehearsal.answer(.welcome(.init()), at: now)
        return rehearsal
    }

    mutating func perform(_ actions: [SessionState.Action]) {
        for action in actions {
            switch action {
            case .send(let message, _): sent.append(message)
            case .disconnect: disconnects += 1
            case .notify(let notice): notices.append(Self.name(notice))
            case .sendAgain(let repetitions, let last): sent += repetitions.map(\.message) + [last]
            }
        }
    }

    /// Answers the last message sent.
    mutating func answer(_ body: WireSupervisorMessage.OneOf_Body, at now: Int64) {
        receive(body, request: sent.last?.request ?? 0, at: now)
    }

    mutating func receive(_ body: WireSupervisorMessage.OneOf_Body, request: UInt64 = 0, at now: Int64) {
        perform(
            state.received(
                .with {
                    $0.request = request
                    $0.body = body
                }, at: now))
    }

    /// Makes a request, and returns its number.
    mutating func ask(_ request: Request, at now: Int64) throws -> UInt64 {
        guard case .send(let number, let message) = try state.submit(request, at: now) else {
            Issue.record("\(request) was not sent")
            return 0
        }
        sent.append(message)
        return number
    }

    mutating func done(_ request: Request, at now: Int64) throws {
        let number = try ask(request, at: now)
        answer(.done(.init()), at: now)
        let outcome = state.requests.removeOutcome(of: number)
        _ = try #require(outcome).get()
    }

    static func name(_ notice: SessionState.Notice) -> String {
        switch notice {
        case .wake(let wake, _): "wake \(wake.id)"
        case .keepAlive: "keep-alive"
        case .didEnterBackground: "background"
        case .prepareToSuspend(let epoch, _): "prepare \(epoch)"
        case .suspendCancelled(let epoch): "cancelled \(epoch)"
        case .programSuspended: "program suspended"
        case .backgroundTimeExpiring: "expiring"
        case .taskLost(let task, _): "task lost \(task.name)"
        case .willTerminate: "terminate"
        case .connectionLost(let error): "lost \(error.code)"
        case .reconnected: "reconnected"
        case .socketLost(_, let error): "socket lost \(error.code)"
        case .restored(let context): "restored \(context.sockets.count)"
        case .keepAliveLost(let error): "keep-alive lost \(error.code)"
        }
    }
}
