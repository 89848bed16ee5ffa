import NightbellCore
import Testing

@Suite("Wakes by sockets")
struct SocketWakeTests {
    @Test func everythingOfOneTurnIsOneWake() throws {
        var bench = Bench()
        let client = try bench.register()
        let sockets = try (0..<3).map { _ in try bench.handOver(from: client) }
        bench.suspend(client)
        let actions = bench.turn(
            .fired(sockets[0], .readable), .fired(sockets[2], [.readable, .peerClosed]),
            .fired(sockets[0], .readable), .command(.wake, client, Bench.key))
        let wake = try #require(actions.wakes.first)
        #expect(actions.wakes.count == 1 && actions.count { $0 == .thaw(client) } == 1)
        #expect(wake.reasons == [.socket, .request])
        let fired = bench.actions.firedSockets[wake.sockets]
        #expect(fired.map(\.token) == [sockets[0], sockets[2]])
        #expect(fired.map(\.conditions) == [.readable, [.readable, .peerClosed]])
        #expect(bench.counters(client)[.wakes] == 1 && bench.counters(client)[.wakesSocket] == 1)
        let thaw = try #require(actions.firstIndex(of: .thaw(client)))
        let told = try #require(actions.firstIndex(of: .notify(client, .wake(wake))))
        #expect(thaw < told, "thaw first, then tell")
    }

    /// In a large burst the first wakes are delivered in mid-turn. No other work is done then, not even for
    /// keep-alive handlers that could run in the same wake.
    @Test func aSocketThatFiresAfterAPortionIsAnotherWake() throws {
        var bench = Bench { $0.keepAlive.tolerance = 1 }
        let (client, other) = (try bench.register(), try bench.register())
        let sockets = try (0..<2).map { _ in try bench.handOver(from: client) }
        bench.say(.setKeepAliveTimeout(.seconds(600)), from: other)
        for client in [client, other] { bench.suspend(client) }
        bench.pass(.seconds(60))
        bench.actions.removeAll()
        bench.core.handle(.fired(sockets[0], .readable), at: bench.now, into: &bench.actions)
        bench.core.endPortion(at: bench.now, into: &bench.actions)
        #expect(bench.actions.actions.wakes.map(\.reasons) == [.socket])
        #expect(bench.core.state(of: other) == .suspended)
        bench.core.handle(.fired(sockets[1], .readable), at: bench.now, into: &bench.actions)
        bench.core.endTurn(at: bench.now, into: &bench.actions)
        let wakes = bench.actions.actions.wakes
        #expect(wakes.dropFirst().map(\.reasons) == [.socket, .keepAlive])
        #expect(wakes.prefix(2).map(\.wakeID) == [1, 2])
        let fired = wakes.map { bench.actions.firedSockets[$0.sockets].map(\.token) }
        #expect(fired == [[sockets[0]], [sockets[1]], []])
        // The turn is over: the client reads the data itself.
        #expect(bench.turn(.fired(sockets[1], .readable)).wakes.isEmpty)
    }

    /// Only what fired is armed again at the next suspension.
    @Test func armingCostsOnlyWhatFired() throws {
        var bench = Bench()
        let client = try bench.register()
        let sockets = try (0..<3).map { _ in try bench.handOver(from: client) }
        func armed(_ actions: [Action]) -> [SocketToken] {
            actions.compactMap { if case .arm(let token) = $0 { token } else { nil } }
        }
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        var actions = bench.say(.readyToSuspend(epoch: 1, notIdle: []), from: client)
        #expect(armed(actions) == sockets)
        let freeze = try #require(actions.firstIndex(of: .freeze(client, epoch: 1)))
        let lastArm = try #require(actions.lastIndex(of: .arm(sockets[2])))
        #expect(lastArm < freeze, "first watch, then stop")
        bench.turn(.frozen(client, epoch: 1))
        bench.turn(.fired(sockets[1], .readable))
        bench.say(.wakeDone(wakeID: 1), from: client)
        bench.pass(.seconds(1))
        actions = bench.say(.readyToSuspend(epoch: 2, notIdle: []), from: client)
        #expect(armed(actions) == [sockets[1]])
    }

    @Test(
        arguments: [
            (Conditions.peerClosed, true, SocketCondition.ended), (.hangUp, true, .ended),
            (.error, true, .ended), (.error, false, .unwatched), (.readable, true, .unwatched),
            ([.readable, .hangUp], false, .ended),
        ] as [(Conditions, Bool, SocketCondition)])
    func conditionsThatEndASocket(
        _ sample: (conditions: Conditions, isStream: Bool, condition: SocketCondition)
    ) throws {
        let (conditions, isStream, condition) = sample
        var bench = Bench()
        let client = try bench.register()
        let offered = bench.handOver(SocketOffer(tag: .voip, isStream: isStream), from: client)
        let socket = try #require(try offered?.get())
        bench.suspend(client)
        bench.turn(.fired(socket, conditions))
        #expect(bench.core.condition(of: socket) == condition)
        bench.suspend(client)
        #expect(bench.core.condition(of: socket) == (condition == .ended ? .armedPastEnd : .armed))
    }

    /// The end is reported once; bytes left unread before it, or written after it, still wake.
    @Test func bytesPastAnEndWake() throws {
        var bench = Bench()
        let client = try bench.register()
        let socket = try bench.handOver(from: client)
        bench.suspend(client)
        bench.turn(.fired(socket, [.readable, .peerClosed]))
        #expect(bench.core.condition(of: socket) == .ended)
        for _ in 0..<3 {
            bench.suspend(client)
            #expect(bench.core.condition(of: socket) == .armedPastEnd)
            let wake = try #require(bench.turn(.fired(socket, [.readable, .peerClosed])).wakes.first)
            #expect(bench.actions.firedSockets[wake.sockets].map(\.token) == [socket])
        }
        // The next writer of a FIFO has its own end.
        bench.suspend(client)
        bench.turn(.fired(socket, .readable))
        #expect(bench.core.condition(of: socket) == .unwatched)
        bench.suspend(client)
        #expect(bench.core.condition(of: socket) == .armed)
    }

    /// An event while the owner runs is left to it; bytes that it leaves are looked for again.
    @Test func bytesPastAnEndThatTheOwnerSeesAreLeftToIt() throws {
        var bench = Bench()
        let client = try bench.register()
        let socket = try bench.handOver(from: client)
        bench.suspend(client)
        bench.turn(.fired(socket, .hangUp))
        bench.suspend(client)
        bench.command(.wake, client)
        #expect(bench.turn(.fired(socket, [.readable, .hangUp])).wakes.isEmpty)
        #expect(bench.core.condition(of: socket) == .ended)
        bench.suspend(client)
        #expect(bench.core.condition(of: socket) == .armedPastEnd)
    }

    /// A socket that fires between arming and the kernel's confirmation cancels the attempt, and the
    /// confirmation is stale.
    @Test func firingWhileBeingFrozenWakes() throws {
        var bench = Bench()
        let client = try bench.register()
        let socket = try bench.handOver(from: client)
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        bench.say(.readyToSuspend(epoch: 1, notIdle: []), from: client)
        let actions = bench.turn(.fired(socket, .readable), .frozen(client, epoch: 1))
        #expect(actions.contains(.thaw(client)) && actions.wakes.first?.asleepFor == .zero)
        #expect(bench.core.state(of: client) == .background)
        #expect(
            bench.counters(client)[.suspensions] == 0 && bench.counters(client)[.suspensionsCancelled] == 1)
    }

    @Test func aReleasedSocketIsNotToldOf() throws {
        var bench = Bench()
        let client = try bench.register()
        let socket = try bench.handOver(from: client)
        bench.suspend(client)
        let actions = bench.turn(
            .fired(socket, .readable), .message(.release(socket), from: client, Bench.key))
        #expect(actions.wakes.count == 1 && bench.actions.firedSockets.isEmpty)
        let later = bench.turn(.fired(socket, .readable))
        #expect(later.isEmpty)
    }

    /// The wake is decided in the foreground and delivered in the background.
    @Test func aWakeToldInTheBackgroundHasItsBudget() throws {
        var bench = Bench()
        let client = try bench.register()
        let actions = bench.turn(
            .command(.wake, client, Bench.key), .message(.enterBackground, from: client, Bench.key),
            .message(.backgroundEntered, from: client, Bench.key))
        #expect(actions.wakes.count == 1 && bench.core.state(of: client) == .background)
        let later = bench.pass(.seconds(10))
        #expect(later.overruns == [.wake])
    }

    /// A client cannot finish a wake that was not delivered, whatever number its message has.
    @Test func aWakeCannotBeDoneBeforeItIsTold() throws {
        var bench = Bench()
        let client = try bench.register()
        bench.suspend(client)
        bench.turn(
            .command(.wake, client, Bench.key), .message(.wakeDone(wakeID: .max), from: client, Bench.key))
        #expect(bench.core.view(of: client, at: bench.now)?.holds == .openWake)
    }

    @Test func enteringTheBackgroundIsToldOnce() throws {
        var bench = Bench()
        let client = try bench.register()
        bench.say(.enterBackground, from: client)
        let actions = bench.say(.enterBackground, from: client)
        #expect(actions == [.answer(.done, client, Bench.key)])
    }

    @Test func stoppingWakesAllClientsAndSuspendsNone() throws {
        var bench = Bench()
        let sleeper = try bench.register()
        let runner = try bench.register()
        bench.suspend(sleeper)
        bench.pass(.seconds(3))
        let actions = bench.turn(.stop)
        #expect(actions.wakes.map(\.reasons) == [.supervisorStopping, .supervisorStopping])
        #expect(actions.wakes.map(\.asleepFor) == [.seconds(3), .zero])
        #expect(actions.contains(.thaw(sleeper)) && !actions.contains(.thaw(runner)))
        bench.say(.wakeDone(wakeID: .max), from: sleeper)
        let later = bench.pass(.seconds(60))
        #expect(bench.core.nextDeadline == nil && later.isEmpty)
        let refused = bench.command(.suspend, sleeper)
        #expect(refused == [.commandAnswer(.shuttingDown, Bench.key)])
        #expect(bench.core.state(of: sleeper) == .background)
    }
}
