import NightbellCore
import Testing

@Suite("Launches of several users")
struct LaunchFairnessTests {
    private func launched(_ actions: [Action]) -> [ClientID] {
        actions.compactMap { if case .launch(let client) = $0 { client } else { nil } }
    }

    /// Dormant clients, and the sockets for which they are launched.
    private func sleepers(
        _ bench: inout Bench, of user: UserID, count: Int
    ) throws -> [(client: ClientID, socket: SocketToken)] {
        var result: [(client: ClientID, socket: SocketToken)] = []
        for number in 0..<count {
            let client = try bench.register("user\(user).\(number)", user: user, isLaunchable: true)
            let socket = try bench.handOver(from: client, survives: true)
            bench.suspend(client)
            bench.turn(.memoryPressure([ClientSize(client, bytes: 1)]))
            bench.turn(.ended(client, .failed))
            result.append((client, socket))
        }
        bench.pass(.seconds(60))
        return result
    }

    private func declare(
        _ bench: inout Bench, _ name: String, of user: UserID
    ) throws -> [ClientID] {
        let identifier = try #require(ClientIdentifier(name))
        var registration = Registration(identifier: identifier, user: user, modes: .voip)
        registration.isLaunchable = true
        return launched(bench.turn(.launch(registration, nil)))
    }

    @Test("A user's hanging launches do not delay those of other users")
    func share() throws {
        var bench = Bench()
        let crowd = try sleepers(&bench, of: 1_000, count: 40)
        let other = try sleepers(&bench, of: 1_001, count: 1)
        var begun = 0
        for sleeper in crowd { begun += launched(bench.turn(.fired(sleeper.socket, .readable))).count }
        #expect(begun == 8)
        #expect(launched(bench.turn(.fired(other[0].socket, .readable))) == [other[0].client])
        // They are killed once their budget is over; then the next ones in the queue are launched.
        #expect(launched(bench.pass(.seconds(20))) == crowd[8..<16].map(\.client))
    }

    @Test("Users take turns, however many of one's wait")
    func turns() throws {
        var bench = Bench {
            $0.launches.concurrent = 1
            $0.launches.concurrentPerUser = 1
        }
        let crowd = try sleepers(&bench, of: 1_000, count: 6)
        let others = try sleepers(&bench, of: 1_001, count: 2)
        for sleeper in crowd + others { bench.turn(.fired(sleeper.socket, .readable)) }
        var order = [crowd[0].client]
        while order.count < 8 { order += launched(bench.turn(.ended(try #require(order.last), .failed))) }
        // The second of the crowd was queued before all others.
        let expected = [crowd[0], crowd[1], others[0], crowd[2], others[1]] + crowd[3...]
        #expect(order == expected.map(\.client))
    }

    @Test("Administrators have room of their own, and all of it")
    func administrators() throws {
        var bench = Bench { $0.administrator = 7 }
        for user in 1_000..<1_005 as Range<UserID> {
            for sleeper in try sleepers(&bench, of: user, count: 8) {
                bench.turn(.fired(sleeper.socket, .readable))
            }
        }
        for user in [0, 7] as [UserID] {
            for sleeper in try sleepers(&bench, of: user, count: 16) {
                #expect(launched(bench.turn(.fired(sleeper.socket, .readable))) == [sleeper.client])
            }
        }
    }

    @Test("A client launched with the supervisor does not wait for crashing clients of users")
    func declared() throws {
        var bench = Bench()
        for user in 1_000..<1_004 as Range<UserID> {
            for sleeper in try sleepers(&bench, of: user, count: 3) {
                bench.turn(.fired(sleeper.socket, .readable))
                bench.turn(.ended(sleeper.client, .failed))
            }
        }
        bench.pass(.seconds(1))
        #expect(try declare(&bench, "declared.1", of: 1_000).count == 1)
        #expect(try declare(&bench, "declared.2", of: 1_000).count == 1)
    }
}
