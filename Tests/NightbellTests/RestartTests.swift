import Nightbell
import NightbellWire
import SwiftProtobuf
import Testing

/// Another worker takes over the connection: the client's reaction.
@Suite struct RestartTests {
    private static let restarted = WireSupervisorMessage.OneOf_Body.supervisorRestarted(
        .with { $0.restart = 3 })
    private static let socket = NewSocket(
        descriptor: 1, tag: .device, name: "a", file: FileIdentity(device: 1, inode: 1))

    private func handedOver(_ token: UInt64) -> WireSupervisorMessage.OneOf_Body {
        .handedOver(.with { $0.adoptions = [.with { $0.token = token }] })
    }

    private func wake(_ id: UInt64, isRepeated: Bool = true) -> WireSupervisorMessage.OneOf_Body {
        .wake(
            .with {
                $0.wakeID = id
                $0.reasons = [.request]
                $0.repeated = isRepeated
            })
    }

    @Test func repeatsUnansweredRequestsInOrderAndThenReportsIt() throws {
        var rehearsal = SessionFixture.connected()
        let first = try rehearsal.ask(.handOver([Self.socket]), at: 1)
        let second = try rehearsal.ask(.beginTask(name: "t"), at: 1)
        let answered = try rehearsal.ask(.enterForeground, at: 1)
        rehearsal.receive(.done(.init()), request: answered, at: 2)
        let said = rehearsal.sent.count
        rehearsal.receive(Self.restarted, at: 3)
        let again = rehearsal.sent[said...]
        #expect(again.map(\.request) == [first, second, 0])
        #expect(again.dropLast().map(\.isRepeated) == [true, true])
        let noted = WireClientMessage.OneOf_Body.restartNoted(.with { $0.restart = 3 })
        #expect(again.last?.body == noted)
        #expect(again.last?.isRepeated == false)
        rehearsal.receive(handedOver(0x77), request: first, at: 4)
        let outcome = rehearsal.state.requests.removeOutcome(of: first)
        guard case .sockets(let sockets)? = try outcome?.get() else {
            Issue.record("no sockets")
            return
        }
        #expect(try sockets[0].get().name == "a")
        #expect(rehearsal.notices.isEmpty && rehearsal.disconnects == 0)
    }

    /// The answer of the worker that died had been sent, too.
    @Test func aSecondAnswerHasNoEffect() throws {
        var rehearsal = SessionFixture.connected()
        let request = try rehearsal.ask(.handOver([Self.socket]), at: 1)
        rehearsal.receive(Self.restarted, at: 2)
        rehearsal.receive(handedOver(0x77), request: request, at: 3)
        _ = rehearsal.state.requests.removeOutcome(of: request)
        let said = rehearsal.sent.count
        rehearsal.receive(handedOver(0x77), request: request, at: 4)
        #expect(rehearsal.sent.count == said)
        // The second adoption is released.
        rehearsal.receive(handedOver(0x88), request: request, at: 5)
        #expect(rehearsal.sent.last?.body == .release(.with { $0.token = 0x88 }))
        let task = try rehearsal.ask(.beginTask(name: "t"), at: 6)
        rehearsal.receive(.backgroundTask(.with { $0.taskID = 5 }), request: task, at: 7)
        rehearsal.receive(.backgroundTask(.with { $0.taskID = 6 }), request: task, at: 8)
        #expect(rehearsal.sent.last?.body == .endBackgroundTask(.with { $0.taskID = 6 }))
        #expect(rehearsal.disconnects == 0)
    }

    @Test func withoutARestartASecondAnswerIsAProtocolViolation() throws {
        var rehearsal = SessionFixture.connected()
        let request = try rehearsal.ask(.enterForeground, at: 1)
        rehearsal.receive(.done(.init()), request: request, at: 2)
        _ = rehearsal.state.requests.removeOutcome(of: request)
        rehearsal.receive(.done(.init()), request: request, at: 3)
        #expect(rehearsal.disconnects == 1)
    }

    @Test func aRepeatedWakeIsPassedOnOnce() {
        var rehearsal = SessionFixture.connected()
        rehearsal.receive(wake(1, isRepeated: false), at: 1)
        rehearsal.receive(Self.restarted, at: 2)
        rehearsal.receive(wake(1), at: 3)
        rehearsal.receive(wake(2), at: 4)
        rehearsal.receive(wake(2), at: 5)
        #expect(rehearsal.notices == ["wake 1", "wake 2"])
        // Another connection counts from zero.
        rehearsal.perform(rehearsal.state.lost(NightbellError(.connectionLost, ""), at: 10 * second))
        _ = rehearsal.state.tick(at: 11 * second)
        rehearsal.perform(rehearsal.state.connectionMade(at: 11 * second))
        rehearsal.answer(.welcome(.init()), at: 11 * second)
        rehearsal.receive(wake(1), at: 12 * second)
        #expect(rehearsal.notices.last == "wake 1")
    }

    @Test func repeatedMessagesAreHandledOnce() throws {
        var rehearsal = SessionFixture.connected()
        try rehearsal.done(.enterBackground, at: 1)
        rehearsal.receive(.didEnterBackground(.init()), at: 1)
        rehearsal.receive(Self.restarted, at: 2)
        rehearsal.receive(.didEnterBackground(.init()), at: 2)
        #expect(rehearsal.notices == ["background"])
        let isDone = rehearsal.state.enteredBackground()
        #expect(isDone)
        // Sent by then, but possibly not received.
        rehearsal.receive(.didEnterBackground(.init()), at: 3)
        #expect(rehearsal.notices == ["background"])
        #expect(rehearsal.sent.last?.body == .backgroundEntered(.init()))
        rehearsal.receive(.willTerminate(.init()), at: 4)
        rehearsal.receive(.willTerminate(.init()), at: 5)
        #expect(rehearsal.notices == ["background", "terminate"])
    }

    @Test func aStepOfTheRegistrationIsRepeatedAsWell() {
        var rehearsal = SessionFixture()
        rehearsal.perform(rehearsal.state.connectionMade(at: 0))
        let hello = rehearsal.sent.last?.request
        rehearsal.receive(Self.restarted, at: 1)
        #expect(rehearsal.sent.map(\.request) == [hello, hello, 0])
        rehearsal.receive(.welcome(.init()), request: hello ?? 0, at: 2)
        #expect(rehearsal.state.isConnected)
        rehearsal.receive(.welcome(.init()), request: hello ?? 0, at: 3)
        #expect(rehearsal.disconnects == 0)
    }

    @Test func aRegistrationThatIsLostIsTriedAgain() {
        var rehearsal = SessionFixture()
        rehearsal.perform(rehearsal.state.connectionMade(at: 0))
        for attempt in 1...4 {
            rehearsal.perform(rehearsal.state.lost(NightbellError(.connectionLost, ""), at: Int64(attempt)))
            #expect((rehearsal.state.closure == nil) == (attempt < 4))
            rehearsal.perform(rehearsal.state.connectionMade(at: Int64(attempt)))
        }
        #expect(rehearsal.notices.isEmpty)
    }
}
