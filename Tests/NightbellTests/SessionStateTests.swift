import Nightbell
import NightbellWire
import SwiftProtobuf
import Testing

private let gone = NightbellError(.connectionLost, "")

@Suite struct SessionStateTests {
    @Test func triesAgainAfterPausesThatDouble() {
        var rehearsal = SessionFixture.connected()
        var now = 100 * second
        rehearsal.perform(rehearsal.state.lost(gone, at: now))
        var pauses: [Int64] = []
        for _ in 0..<8 {
            let deadline = rehearsal.state.nextDeadline ?? 0
            pauses.append((deadline - now) / 1_000_000)
            guard case .nothing(let early) = rehearsal.state.tick(at: deadline - 1), early.isEmpty else {
                Issue.record("too early")
                return
            }
            guard case .connect = rehearsal.state.tick(at: deadline) else {
                Issue.record("not in time")
                return
            }
            now = deadline
            rehearsal.state.connectionFailed(NightbellError(.cannotConnect, ""), at: now)
        }
        #expect(pauses == [50, 100, 200, 400, 800, 1_600, 2_000, 2_000])
        #expect(rehearsal.notices == ["lost connectionLost"])
    }

    @Test func tellsThatAnotherProcessHasTakenItsPlace() {
        var rehearsal = SessionFixture.connected()
        rehearsal.perform(rehearsal.state.lost(gone, at: second))
        for attempt in 2...3 {
            _ = rehearsal.state.tick(at: Int64(attempt) * 2 * second)
            rehearsal.perform(rehearsal.state.connectionMade(at: Int64(attempt) * 2 * second))
            let refusal = NightbellError(.identifierInUse, "")
            rehearsal.perform(rehearsal.state.lost(refusal, at: Int64(attempt) * 2 * second))
        }
        #expect(rehearsal.notices == ["lost connectionLost", "lost identifierInUse", "lost identifierInUse"])
    }

    @Test func doesNotRunAgainstASupervisorThatDropsItAtOnce() {
        var rehearsal = SessionFixture.connected()
        rehearsal.perform(rehearsal.state.lost(gone, at: 1))
        #expect(rehearsal.state.nextDeadline == 100_000_001)
    }

    @Test func countsAFailedRegistrationAsAFailedAttempt() {
        var rehearsal = SessionFixture.connected()
        rehearsal.perform(rehearsal.state.lost(gone, at: 10 * second))
        _ = rehearsal.state.tick(at: 11 * second)
        rehearsal.perform(rehearsal.state.connectionMade(at: 11 * second))
        #expect(rehearsal.state.nextDeadline == 16 * second)
        guard case .nothing(let actions) = rehearsal.state.tick(at: 16 * second) else { return }
        rehearsal.perform(actions)
        #expect(rehearsal.state.nextDeadline == 16_100_000_000)
        #expect(rehearsal.notices == ["lost connectionLost"])
        #expect(rehearsal.disconnects == 2)
    }

    @Test(arguments: [NightbellError.Code.unsupportedVersion, .invalidIdentifier, .identifierOfOtherUser])
    func stopsAfterAFinalError(_ code: NightbellError.Code) {
        var rehearsal = SessionFixture.connected()
        rehearsal.perform(rehearsal.state.lost(NightbellError(code, ""), at: 1))
        #expect(rehearsal.state.closure?.code == code)
        #expect(rehearsal.state.nextDeadline == nil)
    }

    @Test func runsTheKeepAliveHandlerItselfWithoutASupervisor() throws {
        var rehearsal = SessionFixture.connected()
        try rehearsal.done(.setKeepAlive(milliseconds: 600_000) {}, at: 0)
        try rehearsal.done(.enterBackground, at: 0)
        rehearsal.perform(rehearsal.state.lost(gone, at: 599 * second))
        // Attempts go on …
        rehearsal.state.connectionFailed(gone, at: 599 * second)
        var now = 599 * second
        while rehearsal.notices.count < 2 {
            now = try #require(rehearsal.state.nextDeadline)
            switch rehearsal.state.tick(at: now) {
            case .connect: rehearsal.state.connectionFailed(gone, at: now)
            case .nothing(let actions): rehearsal.perform(actions)
            }
        }
        // … and the handler runs in time, a little before the end.
        let aim = 600 * second - 250_000_000
        #expect(now >= aim && now < 600 * second)
        #expect(rehearsal.notices == ["lost connectionLost", "keep-alive"])
        #expect(rehearsal.state.holdings.keepAlive?.lastRun == now)
    }

    /// A supervisor that receives messages but does not answer.
    @Test func runsTheKeepAliveHandlerItselfDuringRestoration() throws {
        var rehearsal = SessionFixture.connected()
        try rehearsal.done(.setKeepAlive(milliseconds: 600_000) {}, at: 0)
        try rehearsal.done(.enterBackground, at: 0)
        rehearsal.perform(rehearsal.state.lost(gone, at: 597 * second))
        _ = rehearsal.state.tick(at: 598 * second)
        rehearsal.perform(rehearsal.state.connectionMade(at: 598 * second))
        let aim = 600 * second - 250_000_000
        #expect(rehearsal.state.nextDeadline == aim)
        guard case .nothing(let actions) = rehearsal.state.tick(at: aim) else { return }
        rehearsal.perform(actions)
        #expect(rehearsal.notices == ["lost connectionLost", "keep-alive"])
        #expect(rehearsal.state.nextDeadline == 603 * second)
    }

    @Test(arguments: [(200, false), (400, true)])
    func runsTheKeepAliveHandlerAfterReconnectingIfHalfTheTimeIsOver(_ at: Int64, _ runs: Bool) throws {
        var rehearsal = SessionFixture.connected()
        try rehearsal.done(.setKeepAlive(milliseconds: 600_000) {}, at: 0)
        try rehearsal.done(.enterBackground, at: 0)
        let entered = rehearsal.state.enteredBackground()
        #expect(entered)
        let now = at * second
        rehearsal.perform(rehearsal.state.lost(gone, at: now))
        _ = rehearsal.state.tick(at: now + second)
        rehearsal.perform(rehearsal.state.connectionMade(at: now + second))
        rehearsal.answer(.welcome(.init()), at: now + second)
        rehearsal.answer(.done(.init()), at: now + second)
        rehearsal.answer(.done(.init()), at: now + second)
        #expect(
            rehearsal.notices == ["lost connectionLost", "reconnected"] + (runs ? ["keep-alive"] : []))
        #expect(rehearsal.state.isConnected)
    }

    @Test func restoresStepByStep() throws {
        var rehearsal = SessionFixture.connected()
        let file = FileIdentity(device: 1, inode: 2)
        let new = (0..<260).map {
            NewSocket(descriptor: 3, tag: .device, name: "\($0)", file: file, isRouted: true)
        }
        _ = try rehearsal.ask(.handOver(new), at: 0)
        rehearsal.answer(
            .handedOver(.with { $0.adoptions = (0..<260).map { n in .with { $0.token = n + 1 } } }), at: 0)
        rehearsal.perform(rehearsal.state.lost(gone, at: 0))
        _ = rehearsal.state.tick(at: second)
        let before = rehearsal.sent.count
        rehearsal.perform(rehearsal.state.connectionMade(at: second))
        #expect(rehearsal.sent.count == before + 1)
        rehearsal.answer(.welcome(.init()), at: second)
        #expect(rehearsal.sent.last?.handOver.sockets.count == 250)
        #expect(rehearsal.sent.last?.handOver.sockets.allSatisfy(\.routed) == true)
        // Requests of others wait meanwhile.
        guard case .wait = try rehearsal.state.submit(.media, at: second) else {
            Issue.record("a request was sent in between")
            return
        }
        // Refused as a whole: all of these are lost.
        rehearsal.answer(.error(.sample(.truncatedDescriptors)), at: second)
        #expect(rehearsal.sent.last?.handOver.sockets.count == 10)
        rehearsal.answer(
            .handedOver(.with { $0.adoptions = (0..<10).map { n in .with { $0.token = n + 500 } } }),
            at: second)
        #expect(rehearsal.state.isConnected)
        #expect(rehearsal.notices.count == 252)
        #expect(rehearsal.state.holdings.sockets.count == 10)
        #expect(rehearsal.state.holdings.socket(of: 509)?.name == "259")
    }

    @Test func namesATaskThatTheNextSupervisorDoesNotGrant() throws {
        var rehearsal = SessionFixture.connected()
        _ = try rehearsal.ask(.beginTask(name: "upload") { _, _ in }, at: 0)
        rehearsal.answer(.backgroundTask(.with { $0.taskID = 7 }), at: 0)
        rehearsal.perform(rehearsal.state.lost(gone, at: 0))
        _ = rehearsal.state.tick(at: second)
        rehearsal.perform(rehearsal.state.connectionMade(at: second))
        rehearsal.answer(.welcome(.init()), at: second)
        rehearsal.answer(.backgroundTask(.init()), at: second)
        #expect(rehearsal.notices == ["lost connectionLost", "task lost upload", "expiring", "reconnected"])
        #expect(rehearsal.state.holdings.tasks.isEmpty)
    }

    @Test func losesTheConnectionInTheMiddleOfRestoring() throws {
        var rehearsal = SessionFixture.connected()
        try rehearsal.done(.setKeepAlive(milliseconds: 600_000) {}, at: 0)
        rehearsal.perform(rehearsal.state.lost(gone, at: 0))
        _ = rehearsal.state.tick(at: second)
        rehearsal.perform(rehearsal.state.connectionMade(at: second))
        rehearsal.answer(.welcome(.init()), at: second)
        rehearsal.perform(rehearsal.state.lost(gone, at: second))
        #expect(rehearsal.notices == ["lost connectionLost"])
        _ = rehearsal.state.tick(at: 5 * second)
        rehearsal.perform(rehearsal.state.connectionMade(at: 5 * second))
        rehearsal.answer(.welcome(.init()), at: 5 * second)
        rehearsal.answer(.done(.init()), at: 5 * second)
        #expect(rehearsal.notices == ["lost connectionLost", "reconnected"])
    }

    @Test func completesAReleaseWhenTheConnectionEnds() throws {
        var rehearsal = SessionFixture.connected()
        try rehearsal.done(.setKeepAlive(milliseconds: 600_000) {}, at: 0)
        let clear = try rehearsal.ask(.clearKeepAlive, at: 0)
        let time = try rehearsal.ask(.timeRemaining, at: 0)
        rehearsal.perform(rehearsal.state.lost(gone, at: 0))
        #expect(rehearsal.state.requests.removeOutcome(of: clear) == .success(.done))
        #expect(rehearsal.state.requests.removeOutcome(of: time) == .failure(gone))
        #expect(rehearsal.state.holdings.keepAlive == nil)
        #expect(rehearsal.state.requests.count == 0)
    }

    @Test func doesNotEnterTheBackgroundOnceItIsBackInTheForeground() throws {
        var rehearsal = SessionFixture.connected()
        try rehearsal.done(.enterBackground, at: 0)
        rehearsal.receive(.didEnterBackground(.init()), at: 0)
        #expect(rehearsal.notices == ["background"])
        try rehearsal.done(.enterForeground, at: 0)
        let entered = rehearsal.state.enteredBackground()
        #expect(!entered)
        // And again, twice: the supervisor waits for an answer each time.
        for _ in 0..<2 {
            try rehearsal.done(.enterBackground, at: 0)
            let entered = rehearsal.state.enteredBackground()
            #expect(entered)
        }
    }

    @Test func closes() throws {
        var rehearsal = SessionFixture.connected()
        let time = try rehearsal.ask(.timeRemaining, at: 0)
        rehearsal.perform(rehearsal.state.close())
        rehearsal.perform(rehearsal.state.close())
        #expect(rehearsal.disconnects == 1)
        #expect(rehearsal.state.requests.removeOutcome(of: time)?.code == .closed)
        #expect(throws: NightbellError.self) { try rehearsal.state.submit(.media, at: 0) }
        // A message in flight has no effect any more.
        rehearsal.receive(.wake(.sample(1, [.request])), at: 0)
        #expect(rehearsal.notices.isEmpty)
        rehearsal.perform(rehearsal.state.connectionMade(at: 0))
        #expect(rehearsal.disconnects == 2)
    }

    @Test func thePatienceDoesNotCountTimeSpentAsleep() {
        var patience = Patience(8_000, from: 0)
        #expect(patience.next(at: 0) == 1_000)
        // Suspended for an hour.
        #expect(patience.next(at: 3_600_000) == 1_000)
        var rounds = 0
        var now: Int64 = 3_600_000
        while patience.next(at: now) != nil {
            now += 1_000
            rounds += 1
        }
        #expect(rounds == 6)
    }
}

extension Result where Failure == NightbellError {
    fileprivate var code: NightbellError.Code? {
        if case .failure(let error) = self { error.code } else { nil }
    }
}
