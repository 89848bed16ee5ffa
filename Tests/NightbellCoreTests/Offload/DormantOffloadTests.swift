import NightbellCore
import Testing

/// Pings of sockets that survive their owner's process.
@Suite("Pings of clients without a process") struct DormantOffloadTests {
    private static let terms = PingTerms(
        earliest: .seconds(24), latest: .seconds(30), answerWithin: .seconds(10))

    /// A client that can be launched, with two sockets that survive and have profiles.
    private struct Phone {
        var bench = Bench()
        let client: ClientID
        let tokens: [SocketToken]

        init() throws {
            bench.core.notesChanges = true
            client = try bench.register("org.example.phone", isLaunchable: true)
            var offer = SocketOffer(tag: .voip)
            offer.profile = 3
            offer.survives = true
            bench.say(.handOver([offer, offer]), from: client)
            tokens = try bench.actions.adoptions.map { try $0.get() }
        }

        mutating func sleep() {
            bench.suspend(client)
            for token in tokens {
                bench.turn(.offloadBegan(token, DormantOffloadTests.terms, isAwaitingAnswer: false))
            }
        }

        /// Asleep, and then without a process.
        mutating func rest() {
            sleep()
            bench.turn(.memoryPressure([ClientSize(client, bytes: 1)]))
            bench.turn(.ended(client, .failed))
        }

        mutating func inspect(_ token: SocketToken, _ change: (inout InspectionResult) -> Void) -> [Action] {
            var inspection = InspectionResult()
            change(&inspection)
            return bench.turn(.inspected(token, inspection))
        }

        mutating func rejoin() throws -> [Action] {
            let identifier = try #require(ClientIdentifier("org.example.phone"))
            var registration = Registration(identifier: identifier, user: 1_000, modes: [.voip, .audio])
            registration.isLaunchable = true
            return bench.turn(.rejoined(client, registration, Bench.key))
        }

        func isActive(_ index: Int) -> Bool { bench.core.isOffloading(tokens[index]) }
    }

    @Test func continueWhenASleeperIsEnded() throws {
        var phone = try Phone()
        phone.rest()
        #expect(phone.bench.core.state(of: phone.client) == .dormant)
        #expect(phone.isActive(0) && phone.isActive(1))
        #expect(phone.inspect(phone.tokens[0]) { $0.answered = 1 }.isEmpty)
        #expect(phone.bench.pass(.seconds(30)).contains(.ping(phone.tokens[0], again: false)))
        #expect(phone.bench.counters(phone.client)[.launches] == 0)
    }

    @Test func beginWhenAClientHibernates() throws {
        var phone = try Phone()
        phone.bench.say(.hibernate, from: phone.client)
        phone.bench.say(.enterBackground, from: phone.client)
        phone.bench.say(.backgroundEntered, from: phone.client)
        let actions = phone.bench.say(
            .readyToSuspend(epoch: phone.bench.lastEpoch, notIdle: []), from: phone.client)
        let begin = try #require(actions.firstIndex(of: .beginOffload(phone.tokens[0])))
        let kill = try #require(actions.firstIndex(of: .kill(phone.client, .hibernation)))
        #expect(begin < kill)
        phone.bench.turn(.ended(phone.client, .failed))
        #expect(phone.isActive(0) && phone.isActive(1))
    }

    /// The state of its conversation is unknown.
    @Test func endWhenAClientCrashesAwake() throws {
        var phone = try Phone()
        phone.sleep()
        phone.bench.command(.wake, phone.client)
        phone.bench.turn(.ended(phone.client, .failed))
        #expect(phone.bench.core.state(of: phone.client) == .dormant)
        #expect(!phone.isActive(0) && !phone.isActive(1))
    }

    /// A process that is launched has its sockets before it says anything.
    @Test func endBeforeTheNextProcessIsMade() throws {
        var phone = try Phone()
        phone.rest()
        let actions = phone.inspect(phone.tokens[0]) { $0.rest = .significant(.readable) }
        let launch = try #require(actions.firstIndex(of: .launch(phone.client)))
        for token in phone.tokens {
            #expect(try #require(actions.firstIndex(of: .endOffload(token))) < launch)
        }
        #expect(!phone.isActive(0) && !phone.isActive(1))
        let wake = try #require(try phone.rejoin().wakes.first)
        #expect(wake.reasons == .socket)
        #expect(phone.bench.actions.firedSockets[wake.sockets].map(\.token) == [phone.tokens[0]])
    }

    /// Pings of the other sockets continue until the launch.
    @Test func endOnlyForTheSocketWhileALaunchHasToWait() throws {
        var phone = try Phone()
        phone.sleep()
        phone.bench.turn(.ended(phone.client, .failed))
        // Its pause is not over.
        let actions = phone.inspect(phone.tokens[0]) { $0.rest = .significant(.readable) }
        #expect(actions.contains(.endOffload(phone.tokens[0])))
        #expect(!actions.contains(.launch(phone.client)) && !phone.isActive(0) && phone.isActive(1))
        #expect(phone.inspect(phone.tokens[1]) { $0.answered = 1 }.isEmpty)
        #expect(phone.bench.pass(.seconds(1)).contains(.launch(phone.client)))
    }

    @Test(arguments: [false, true]) func missingAnswerLaunchesAndIsTold(afterRestart: Bool) throws {
        var phone = try Phone()
        phone.rest()
        var actions = phone.bench.pass(.seconds(45))
        #expect(actions.contains(.lookForAnswer(phone.tokens[1])))
        actions = phone.bench.turn(.answerLookedFor(phone.tokens[1]))
        #expect(actions.contains(.launch(phone.client)))
        // The first process says nothing, and ends.
        if afterRestart {
            phone.bench.turn(.ended(phone.client, .failed))
            #expect(phone.bench.pass(.seconds(1)).contains(.launch(phone.client)))
        }
        let wake = try #require(try phone.rejoin().wakes.first)
        #expect(wake.reasons.contains(.unanswered))
        let fired = phone.bench.actions.firedSockets[wake.sockets]
        #expect(fired.contains { $0.token == phone.tokens[1] && $0.conditions.contains(.unanswered) })
    }

    @Test func partOfAMessageIsWaitedForSoLong() throws {
        var phone = try Phone()
        phone.rest()
        #expect(phone.inspect(phone.tokens[0]) { $0.rest = .partial }.isEmpty)
        #expect(phone.bench.pass(.seconds(5)).contains(.launch(phone.client)))
        #expect(try phone.rejoin().wakes.map(\.reasons) == [.socket])
    }
}
