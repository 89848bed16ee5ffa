import NightbellCore
import Testing

@Suite("Another network")
struct NetworkTests {
    private var bench = Bench()

    private mutating func report(_ fingerprint: UInt64, generation: UInt64 = 0) -> [ClientID] {
        bench.turn(.fact(.network(NetworkFact(fingerprint: fingerprint, generation: generation, isUp: true))))
        return inspections
    }

    /// The clients with sockets that are to be inspected, by the last turn.
    private var inspections: [ClientID] {
        bench.actions.actions.compactMap { action in
            if case .inspectPaths(let client) = action { client } else { nil }
        }
    }

    private mutating func routed(from client: ClientID, survives: Bool = false) throws -> SocketToken {
        var offer = SocketOffer(tag: .voip)
        offer.isRouted = true
        offer.survives = survives
        return try #require(try? bench.handOver(offer, from: client)?.get())
    }

    @Test mutating func theFirstNetworkIsNoNews() throws {
        let client = try bench.register(wantsNetworkChanges: true)
        #expect(report(1) == [])
        #expect(report(1) == [] && report(2) == [client])
    }

    /// Levels are compared: a monitor that is replaced reports everything once more.
    @Test mutating func theSameNetworkIsNoNewsAfterItWasUnknown() throws {
        let client = try bench.register(wantsNetworkChanges: true)
        _ = report(1)
        bench.turn(.fact(.network(nil)))
        // A route may have changed meanwhile: nothing is told unless a socket has lost its address.
        #expect(report(1) == [client])
        #expect(bench.turn(.pathsInspected(client, [])).wakes.isEmpty)
        bench.turn(.fact(.network(nil)))
        #expect(report(2) == [client])
        #expect(bench.turn(.pathsInspected(client, [])).wakes.map(\.reasons) == [.networkChanged])
    }

    @Test mutating func itSaysWhichSocketsCannotWork() throws {
        let client = try bench.register(wantsNetworkChanges: true)
        let (gone, unreachable, other) = (
            try routed(from: client), try routed(from: client), try bench.handOver(from: client)
        )
        _ = report(1)
        bench.suspend(client)
        #expect(report(2) == [client])
        let broken = [BrokenPath(gone, .addressGone), BrokenPath(unreachable, .unreachable)]
        let wakes = bench.turn(.pathsInspected(client, broken)).wakes
        #expect(wakes.map(\.reasons) == [[.networkChanged, .pathLost]])
        let fired = bench.actions.firedSockets
        #expect(fired.map(\.token) == [gone, unreachable] && fired.allSatisfy { $0.conditions == .pathLost })
        #expect(!fired.contains { $0.token == other })
        // It is told once.
        #expect(bench.turn(.pathsInspected(client, broken)).wakes.isEmpty)
    }

    @Test mutating func aClientThatHasNotAskedIsToldOfLostAddressesOnly() throws {
        let client = try bench.register()
        let (gone, unreachable) = (try routed(from: client), try routed(from: client))
        _ = report(1)
        bench.suspend(client)
        #expect(report(2) == [client])
        #expect(bench.turn(.pathsInspected(client, [BrokenPath(unreachable, .unreachable)])).wakes.isEmpty)
        #expect(report(3) == [client])
        let wakes = bench.turn(.pathsInspected(client, [BrokenPath(gone, .addressGone)])).wakes
        #expect(wakes.map(\.reasons) == [.pathLost] && bench.actions.firedSockets.map(\.token) == [gone])
        bench.suspend(client)
        // With a third network the same socket is no news.
        #expect(report(4) == [client])
        #expect(bench.turn(.pathsInspected(client, [BrokenPath(gone, .addressGone)])).wakes.isEmpty)
    }

    @Test mutating func clientsWithoutAnAddressToLoseAreNotInspected() throws {
        let client = try bench.register()
        _ = try bench.handOver(from: client)
        #expect(!bench.core.neededFacts.contains(.network))
        _ = report(1)
        #expect(report(2) == [])
        _ = try routed(from: client)
        #expect(bench.core.neededFacts.contains(.network))
        #expect(report(3) == [client])
    }

    /// The next client that needs it connects over the network of then.
    @Test mutating func withoutNeedTheLastNetworkIsForgotten() throws {
        let client = try bench.register(wantsNetworkChanges: true)
        _ = report(1)
        bench.turn(.gone(client))
        #expect(!bench.core.neededFacts.contains(.network))
        bench.turn(.fact(.network(nil)))
        #expect(bench.core.machine.handledNetwork == nil)
        _ = try bench.register(wantsNetworkChanges: true)
        #expect(report(2) == [])
    }

    @Test mutating func aClientWithoutProcessIsLaunchedForALostSocketOnly() throws {
        let client = try bench.register(isLaunchable: true, wantsNetworkChanges: true)
        let socket = try routed(from: client, survives: true)
        _ = report(1)
        bench.suspend(client)
        bench.turn(.memoryPressure([ClientSize(client, bytes: 1)]), .ended(client, .failed))
        bench.pass(.seconds(60))
        #expect(bench.core.state(of: client) == .dormant)
        _ = report(2)
        bench.turn(.pathsInspected(client, []))
        #expect(bench.core.state(of: client) == .dormant)
        _ = report(3)
        bench.turn(.pathsInspected(client, [BrokenPath(socket, .addressGone)]))
        #expect(bench.core.state(of: client) == .launching)
        let reasons = bench.core.view(of: client, at: bench.now)?.launches.reasons
        #expect(reasons == [.pathLost, .networkChanged])
    }

    @Test mutating func anEndThatIsToBeToldDoesNotHideALostPath() throws {
        let client = try bench.register()
        let socket = try routed(from: client)
        let broken = [BrokenPath(socket, .addressGone)]
        _ = report(1)
        bench.suspend(client)
        _ = report(2)
        let end: Conditions = [.readable, .peerClosed, .hangUp]
        let wakes = bench.turn(.fired(socket, end), .pathsInspected(client, broken)).wakes
        #expect(wakes.map(\.reasons) == [[.socket, .pathLost]])
        #expect(bench.actions.firedSockets.map(\.conditions) == [end.union(.pathLost)])
        bench.suspend(client)
        // The client knows of the end.
        #expect(report(3) == [client])
        #expect(bench.turn(.pathsInspected(client, broken)).wakes.isEmpty)
    }

    @Test mutating func theNextProcessOfAClientThatIsTerminatedIsTold() throws {
        let client = try bench.register(isLaunchable: true)
        let socket = try routed(from: client, survives: true)
        let broken = [BrokenPath(socket, .addressGone)]
        _ = report(1)
        bench.suspend(client)
        #expect(report(2) == [client])
        bench.turn(.memoryPressure([ClientSize(client, bytes: 1)]))
        #expect(bench.turn(.pathsInspected(client, broken)).wakes.isEmpty)
        #expect(bench.core.state(of: client) == .terminating)
        bench.turn(.ended(client, .failed))
        #expect(bench.core.state(of: client) == .dormant && inspections == [client])
        bench.turn(.pathsInspected(client, broken))
        #expect(bench.core.state(of: client) == .launching)
        #expect(bench.core.view(of: client, at: bench.now)?.launches.reasons == .pathLost)
    }

    @Test mutating func aRouteThatIsLostIsToldToThoseThatAsk() throws {
        let client = try bench.register(wantsNetworkChanges: true)
        let socket = try routed(from: client)
        _ = report(1, generation: 1)
        bench.suspend(client)
        #expect(report(1, generation: 2) == [client])
        #expect(bench.turn(.pathsInspected(client, [])).wakes.isEmpty)
        #expect(report(1, generation: 3) == [client])
        let wakes = bench.turn(.pathsInspected(client, [BrokenPath(socket, .unreachable)])).wakes
        #expect(wakes.map(\.reasons) == [[.networkChanged, .pathLost]])
    }

    /// The network may have become another one meanwhile, whether or not its source says so.
    @Test mutating func connectionsAreInspectedAfterASleepOfTheMachine() throws {
        let client = try bench.register()
        let socket = try routed(from: client)
        let local = try bench.register(wantsNetworkChanges: true)
        _ = try bench.handOver(from: local)
        bench.suspend(client)
        bench.suspend(local)
        bench.turn(.machineSlept(total: .seconds(3_600)))
        #expect(inspections == [client])
        let wakes = bench.turn(.pathsInspected(client, [BrokenPath(socket, .addressGone)])).wakes
        #expect(wakes.map(\.reasons) == [.pathLost])
        bench.turn(.machineSlept(total: .seconds(3_600)))
        #expect(inspections == [])
    }

    @Test mutating func theNextSupervisorTellsWhatIsOwed() throws {
        bench.core.notesChanges = true
        let client = try bench.register(wantsNetworkChanges: true)
        _ = report(1)
        #expect(report(2) == [client])
        let row = bench.core.row(of: client)
        #expect(row.flags.inspection == .network)
        bench.turn(.pathsInspected(client, []))
        #expect(bench.core.row(of: client).flags.inspection == PathInspection.none)
    }

    @Test mutating func onRequestOneClientIsTreatedAsIfThereWereAnother() throws {
        let client = try bench.register(wantsNetworkChanges: true)
        let other = try bench.register(wantsNetworkChanges: true)
        bench.command(.simulateNetworkChange, client)
        #expect(inspections == [client])
        #expect(bench.turn(.pathsInspected(other, [])).wakes.isEmpty)
        #expect(bench.turn(.pathsInspected(client, [])).wakes.map(\.reasons) == [.networkChanged])
        let silent = try bench.register()
        #expect(
            bench.command(.simulateNetworkChange, silent).contains(
                .commandAnswer(.networkChangesNotWanted, Bench.key)))
    }
}
