import NightbellCore
import Testing

@Suite("Discretionary transfers and issues")
struct DiscretionaryTransferTests {
    private static let patience = Settings.Discretionary().patience
    private static let session = "issues"

    private func end(_ number: UInt64 = 1, of client: Int = 0, mayWait: Bool = true) throws -> Event {
        let identifier = try #require(ClientIdentifier("client\(client)"))
        return .fact(
            .transfers(
                EndedTransfers(
                    of: 1_000, identifier, session: Self.session, number: number, mayWait: mayWait)))
    }

    /// Clients that observe their session, of which the first one sleeps.
    private func sleepers(_ bench: inout Bench, _ count: Int) throws -> [ClientID] {
        try (0..<count).map { index in
            let identifier = try #require(ClientIdentifier("client\(index)"))
            var registration = Registration(identifier: identifier, user: 1_000, modes: .voip)
            registration.isLaunchable = true
            bench.turn(.registration(registration, Bench.key))
            let client = try #require(bench.core.client(named: identifier))
            bench.say(.observe(name: "s", .transfers(session: Self.session)), from: client)
            bench.suspend(client)
            return client
        }
    }

    private func woken(_ actions: [Action]) -> [ClientID] {
        actions.compactMap { if case .notify(let id, .wake) = $0 { id } else { nil } }
    }

    @Test func theMomentIsGoodUnlessAFactSpeaksAgainstIt() {
        var bench = Bench()
        // Nothing waits, and nothing is asked about the machine.
        #expect(!bench.core.isGoodMomentForTransfers)
        bench.turn(.fact(.discretionaryTransfers(of: 1, true)))
        #expect(bench.core.isGoodMomentForTransfers)
        let cases: [(Fact, Fact)] = [
            (.power(isOnBattery: true), .power(isOnBattery: nil)),
            (.network(NetworkFact(fingerprint: 1, isUp: true, isMetered: true)), .network(nil)),
            (
                .network(NetworkFact(fingerprint: 1, isUp: false)),
                .network(NetworkFact(fingerprint: 1, isUp: true))
            ),
            (.shortage(true), .shortage(false)), (.sleepImminent(isDelayed: false), .resumed),
        ]
        for (bad, good) in cases {
            bench.turn(.fact(bad))
            #expect(!bench.core.isGoodMomentForTransfers, "\(bad)")
            bench.turn(.fact(good))
            #expect(bench.core.isGoodMomentForTransfers, "\(good)")
        }
        bench.turn(.fact(.discretionaryTransfers(of: 1, false)))
        #expect(!bench.core.isGoodMomentForTransfers)
    }

    @Test func factsAreNeededWhileTransfersWait() {
        var bench = Bench()
        #expect(bench.core.neededFacts.isEmpty)
        bench.turn(.fact(.discretionaryTransfers(of: 1, true)), .fact(.discretionaryTransfers(of: 2, true)))
        bench.turn(.fact(.discretionaryTransfers(of: 1, false)))
        #expect(bench.core.neededFacts == [.network, .power] && bench.core.hasDiscretionaryTransfers)
        bench.turn(.fact(.discretionaryTransfers(of: 2, false)))
        #expect(bench.core.neededFacts.isEmpty && !bench.core.hasDiscretionaryTransfers)
    }

    @Test func aSleeperIsToldAtTheEndOfItsPatience() throws {
        var bench = Bench()
        let client = try sleepers(&bench, 1)[0]
        #expect(woken(bench.turn(try end())).isEmpty)
        #expect(woken(bench.pass(Self.patience - .seconds(1))).isEmpty)
        #expect(woken(bench.pass(.seconds(1))) == [client])
        // Once.
        #expect(woken(bench.pass(Self.patience * 2)).isEmpty)
    }

    @Test func aSleeperIsToldAtOnceOfWhatCannotWait() throws {
        var bench = Bench()
        let client = try sleepers(&bench, 1)[0]
        #expect(woken(bench.turn(try end(mayWait: false))) == [client])
    }

    @Test func aSleeperIsToldWithAnother() throws {
        var bench = Bench()
        let clients = try sleepers(&bench, 2)
        bench.turn(try end())
        bench.pass(.seconds(10))
        #expect(Set(woken(bench.command(.wake, clients[1]))) == Set(clients))
    }

    @Test func aSleeperIsToldWithItsOwnWake() throws {
        var bench = Bench()
        let client = try sleepers(&bench, 1)[0]
        bench.turn(try end())
        #expect(woken(bench.command(.wake, client)) == [client])
        #expect(bench.actions.observed.map(\.occurrence) == [.finished])
    }

    @Test func aClientInTheForegroundIsToldAtOnce() throws {
        var bench = Bench()
        let client = try sleepers(&bench, 1)[0]
        bench.command(.wake, client)
        bench.say(.enterForeground, from: client)
        #expect(woken(bench.turn(try end())) == [client])
    }

    @Test func anIssueWakesAClientThatHasNotAskedForIt() throws {
        var bench = Bench()
        let client = try bench.register(modes: .newsstand, isLaunchable: true)
        let identifier = try #require(bench.core.identifier(of: client))
        bench.turn(.ended(client, .failed))
        bench.pass(.seconds(60))
        let issue = EndedTransfers(
            of: try #require(bench.core.owner(of: identifier)?.user), identifier,
            session: Supervision.newsstand, number: 1)
        #expect(bench.turn(.fact(.transfers(issue))).contains(.launch(client)))
    }
}
