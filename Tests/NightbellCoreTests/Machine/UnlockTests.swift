import NightbellCore
import Testing

@Suite("Clients that wait for their user")
struct UnlockTests {
    private var bench = Bench { $0.launches.concurrentInBackground = 2 }

    /// Clients that are declared, and launched with the supervisor.
    private mutating func declare(_ count: Int, of user: UserID = 1_000) throws -> [ClientID] {
        try (0..<count).map { number in
            let identifier = try #require(ClientIdentifier("client.\(user).\(number)"))
            var registration = Registration(identifier: identifier, user: user, modes: .voip)
            registration.isLaunchable = true
            registration.waitsForUnlock = true
            for case .declared(let client) in bench.turn(.launch(registration, nil)) { return client }
            throw Bench.Unexpected.notRegistered
        }
    }

    private func launched(_ actions: [Action]) -> [ClientID] {
        actions.compactMap { if case .launch(let client) = $0 { client } else { nil } }
    }

    private func isWaiting(_ client: ClientID) -> Bool {
        bench.core.view(of: client, at: bench.now)?.launches.isWaitingForUnlock == true
    }

    @Test mutating func theyAreLaunchedWhenItsHomeIsThere() throws {
        let clients = try declare(3)
        #expect(clients.allSatisfy { bench.core.state(of: $0) == .dormant && isWaiting($0) })
        #expect(bench.core.neededFacts.contains(.users))
        #expect(launched(bench.turn(.fact(.unlocked(.known([7]))))) == [])
        // All at once, under the limits.
        #expect(launched(bench.turn(.fact(.unlocked(.known([7, 1_000]))))) == Array(clients.prefix(2)))
        #expect(!isWaiting(clients[2]))
    }

    @Test mutating func othersDoNotWait() throws {
        let identifier = try #require(ClientIdentifier("client"))
        var registration = Registration(identifier: identifier, user: 1_000, modes: .voip)
        registration.isLaunchable = true
        #expect(launched(bench.turn(.launch(registration, nil))).count == 1)
        #expect(!bench.core.neededFacts.contains(.users))
    }

    @Test mutating func whereNothingCanTellTheyDoNotWait() throws {
        let client = try #require(try declare(1).first)
        let actions = bench.turn(.fact(.unlocked(.unavailable)))
        #expect(launched(actions) == [client] && actions.contains(.trace(client, .unlockUnknown)))
    }

    @Test mutating func aStateUnknownAgainIsWaitedForAgain() throws {
        bench.turn(.fact(.unlocked(.known([1_000]))))
        bench.turn(.fact(.unlocked(.unknown)))
        let client = try #require(try declare(1).first)
        #expect(isWaiting(client))
        bench.pass(.seconds(3_600))
        #expect(isWaiting(client))
    }

    @Test mutating func aRequestWaitsToo() throws {
        let client = try #require(try declare(1).first)
        #expect(launched(bench.command(.wake, client)) == [])
        #expect(launched(bench.turn(.fact(.unlocked(.known([1_000]))))) == [client])
    }

    @Test mutating func onRequestOneIsLaunched() throws {
        let clients = try declare(2)
        #expect(launched(bench.command(.simulateUnlock, clients[0])) == [clients[0]])
        #expect(isWaiting(clients[1]))
    }
}
