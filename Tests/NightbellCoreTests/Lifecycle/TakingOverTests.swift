import NightbellCore
import Testing

/// Tests which notices a core repeats after recovery. (Simulated worlds cover the rest of recovery.)
@Suite("Repeated notices")
struct TakingOverTests {
    private var bench = Bench()
    private let client: ClientID
    private let sockets: [SocketToken]

    init() throws {
        bench.core.notesChanges = true
        client = try bench.register("org.example.phone")
        var sockets: [SocketToken] = []
        for hasProfile in [false, true] {
            var offer = SocketOffer(tag: .voip)
            offer.profile = hasProfile ? 3 : nil
            guard case .success(let token) = bench.handOver(offer, from: client) else {
                throw Bench.Unexpected.notAdopted
            }
            sockets.append(token)
        }
        self.sockets = sockets
    }

    /// The core's records. A delivered wake may not be recorded as such.
    private func snapshot(_ conditions: [Conditions], told: UInt64) throws -> RecoverySnapshot {
        var snapshot = RecoverySnapshot()
        let identifier = try #require(ClientIdentifier("org.example.phone"))
        let registration = Registration(
            identifier: identifier, user: 1_000, modes: [.voip, .audio], wakeLimitPolicy: .linger)
        var old = RecoverySnapshot.Client(id: client, registration: registration, registeredAt: bench.now)
        old.state = (bench.core.row(of: client), bench.core.statistics(of: client))
        old.toldWakeID = told
        snapshot.clients = [old]
        snapshot.sockets = zip(sockets, conditions).map { token, conditions in
            var socket = RecoverySnapshot.Socket(
                token: token, owner: client, tag: .voip, isStream: true, request: 1, index: 0, survives: false
            )
            socket.conditions = conditions
            socket.endedInWake =
                bench.core.condition(of: token)?.isPastEnd == true
                ? SocketToken.mark(of: bench.core.wakeID(of: client)) : 0
            socket.offload = bench.core.offloadSnapshot(of: token)
            return socket
        }
        return snapshot
    }

    private mutating func takeOver(_ snapshot: RecoverySnapshot) throws -> [Action] {
        bench.actions.removeAll()
        bench.core = try Supervision(
            settings: bench.core.settings, restoring: snapshot, at: bench.now, into: &bench.actions)
        bench.core.endTurn(at: bench.now, into: &bench.actions)
        return bench.actions.actions
    }

    /// A client that knows the wake skips its repetition, so later events must not be part of it.
    @Test mutating func anEndThatCameSinceIsNotToldWithAnOldWake() throws {
        bench.suspend(client)
        bench.turn(.fired(sockets[0], .readable))
        let wake = try #require(
            try takeOver(snapshot([.readable, [.readable, .peerClosed]], told: 0)).wakes.first)
        #expect(wake.isRepeated && wake.wakeID == 1)
        let fired = bench.actions.firedSockets[wake.sockets]
        #expect(fired.map(\.token) == sockets && fired.map(\.conditions) == [.readable, .readable])
        bench.say(.wakeDone(wakeID: 1), from: client)
        bench.lastEpoch = 1
        bench.pass(.seconds(1))
        let armed = bench.say(.readyToSuspend(epoch: bench.lastEpoch, notIdle: []), from: client)
        #expect(armed.contains(.arm(sockets[1])))
    }

    @Test mutating func aKeepAliveDueNowIsASeparateWake() throws {
        bench.say(.setKeepAliveTimeout(.seconds(600)), from: client)
        bench.suspend(client)
        bench.turn(.command(.wake, client, Bench.key))
        let old = try snapshot([[], []], told: 0)
        bench.now = bench.now + .seconds(700)
        let wakes = try takeOver(old).wakes
        #expect(wakes.map(\.wakeID) == [1, 2] && wakes.map(\.isRepeated) == [true, false])
        #expect(wakes.map(\.reasons) == [.request, .keepAlive])
    }

    /// Only the client knows the request that was lost.
    @Test mutating func aSleeperThatWasBeingHeardIsCalledBack() throws {
        bench.suspend(client)
        var old = try snapshot([[], []], told: 0)
        old.clients[0].execution = .stopped
        #expect(try takeOver(old).wakes.isEmpty && bench.core.state(of: client) == .suspended)
        old.clients[0].hasMessageInFlight = true
        let actions = try takeOver(old)
        #expect(actions.wakes.map(\.reasons) == [.clientMessage] && actions.contains(.thaw(client)))
        #expect(bench.core.state(of: client) == .background)
    }

    /// The kernel does not report it again, because an ended socket is not watched.
    @Test mutating func aLostPathIsToldAgain() throws {
        bench.suspend(client)
        bench.turn(.offloadBegan(sockets[1], nil, isAwaitingAnswer: false))
        var inspection = InspectionResult()
        inspection.rest = .significant([.readable, .hangUp, .error, .pathLost])
        bench.turn(.inspected(sockets[1], inspection))
        // Its owner may have read the error.
        for conditions: Conditions in [[.readable, .hangUp], []] {
            let wake = try #require(try takeOver(snapshot([[], conditions], told: 0)).wakes.first)
            #expect(wake.isRepeated && wake.reasons == .pathLost)
            let fired = bench.actions.firedSockets[wake.sockets]
            #expect(fired.map(\.token) == [sockets[1]])
            #expect(fired.first?.conditions == conditions.union(.pathLost))
        }
    }

    /// The socket itself does not show it.
    @Test mutating func aMissingAnswerIsToldAgainWithItsSocket() throws {
        bench.suspend(client)
        let terms = PingTerms(earliest: .seconds(24), latest: .seconds(30), answerWithin: .seconds(10))
        bench.turn(.offloadBegan(sockets[1], terms, isAwaitingAnswer: false))
        bench.pass(.seconds(45))
        #expect(bench.turn(.answerLookedFor(sockets[1])).wakes.first?.reasons == .unanswered)
        let wake = try #require(try takeOver(snapshot([[], []], told: 0)).wakes.first)
        #expect(wake.isRepeated && wake.reasons == .unanswered)
        let fired = bench.actions.firedSockets[wake.sockets]
        #expect(fired.map(\.token) == [sockets[1]] && fired.map(\.conditions) == [.unanswered])
        // And not with the next one, which has other reasons.
        bench.lastEpoch = 1
        bench.suspend(client)
        bench.command(.wake, client)
        #expect(try takeOver(snapshot([[], []], told: 1)).wakes.first?.sockets.isEmpty == true)
    }

    @Test mutating func aDeliveredWakeIsNotRepeated() throws {
        bench.suspend(client)
        bench.turn(.fired(sockets[0], .readable))
        #expect(try takeOver(snapshot([.readable, []], told: 1)).wakes.isEmpty)
    }

    // MARK: Without a process, or not yet welcome

    private var registration: Registration {
        get throws {
            var registration = Registration(
                identifier: try #require(ClientIdentifier("org.example.phone")), user: 1_000,
                modes: [.voip, .audio])
            registration.isLaunchable = true
            return registration
        }
    }

    /// A process that started by itself was rejoining, but the supervisor ended before welcoming it.
    @Test mutating func aClientThatWasNotWelcomedHasNoProcess() throws {
        bench.turn(.command(.wake, client, Bench.key))
        var old = try snapshot([[], []], told: 0)
        old.clients[0].registration = try registration
        old.clients[0].presence = .absent
        _ = try takeOver(old)
        #expect(bench.core.state(of: client) == .dormant)
        bench.say(.enterBackground, from: client)
        #expect(bench.answer == .refused(.illegalState(.dormant)))
        // The pending wake launches it, after a pause in which it may come back by itself.
        let pause = bench.core.settings.launches.retry
        let early = bench.pass(pause - .nanoseconds(1))
        #expect(!early.contains(.launch(client)))
        #expect(bench.pass(.nanoseconds(1)).contains(.launch(client)))
        #expect(bench.turn(.rejoined(client, try registration, Bench.key)).wakes.map(\.wakeID) == [1])
    }

    @Test mutating func anUndeliveredWakeOfAnEndedClientLeavesNoGap() throws {
        bench.core.handle(.command(.wake, client, Bench.key), at: bench.now, into: &bench.actions)
        bench.core.handle(.command(.quit, client, Bench.key), at: bench.now, into: &bench.actions)
        #expect(bench.core.state(of: client) == .terminating && bench.core.wakeID(of: client) == 1)
        #expect(try takeOver(snapshot([[], []], told: 0)).wakes.isEmpty)
        #expect(bench.core.wakeID(of: client) == 0)
    }

    @Test mutating func aWakeAboutToBeRepeatedIsNotFinished() throws {
        bench.turn(.command(.wake, client, Bench.key))
        var old = try snapshot([[], []], told: 1)
        old.clients[0].registration = try registration
        old.clients[0].presence = .welcomed
        _ = try takeOver(old)
        let wakes = bench.turn(
            .rejoined(client, try registration, Bench.key),
            .message(.wakeDone(wakeID: .max), from: client, Bench.key)
        ).wakes
        #expect(wakes.map(\.wakeID) == [1] && wakes.map(\.isRepeated) == [true])
        #expect(bench.core.view(of: client, at: bench.now)?.holds.contains(.openWake) == true)
    }

    /// The supervisor ended between storing the client's state and sending the record of its owner.
    @Test mutating func aQuitThatOnlyTheStateTellsOfIsRemembered() throws {
        let identifier = try #require(ClientIdentifier("org.example.phone"))
        bench.suspend(client)
        bench.command(.quit, client)
        let old = try snapshot([[], []], told: 0)
        #expect(old.owners.isEmpty)
        _ = try takeOver(old)
        #expect(bench.core.ownership(of: identifier)?.isQuit == true)
        bench.turn(.ended(client, .failed))
        #expect(bench.core.ownership(of: identifier)?.isQuit == true)
    }

    /// They waited for a client that did not read what it was sent, and died with the supervisor.
    @Test mutating func theLastOfSeveralUndeliveredWakesTellsOfAll() throws {
        bench.suspend(client)
        bench.turn(.offloadBegan(sockets[1], nil, isAwaitingAnswer: false))
        bench.turn(.fired(sockets[0], [.readable, .peerClosed]))
        var inspection = InspectionResult()
        inspection.rest = .significant([.readable, .pathLost])
        bench.turn(.inspected(sockets[1], inspection))
        bench.command(.wake, client)
        var old = try snapshot([[.readable, .peerClosed], [.readable]], told: 0)
        old.sockets[0].endedInWake = SocketToken.mark(of: 1)
        let wake = try #require(try takeOver(old).wakes.first)
        #expect(wake.isRepeated && wake.wakeID == bench.core.wakeID(of: client) && wake.wakeID > 1)
        #expect(wake.reasons.isSuperset(of: [.request, .socket]))
        let fired = bench.actions.firedSockets[wake.sockets]
        #expect(Set(fired.map(\.token)) == Set(sockets))
        // A wake that was told is not told again.
        old.clients[0].toldWakeID = wake.wakeID
        #expect(try takeOver(old).wakes.isEmpty)
    }
}
