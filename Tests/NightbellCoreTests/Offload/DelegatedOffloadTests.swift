import NightbellCore
import Testing

/// Session state delegated with a ping under way, and pings that the edge omits.
@Suite struct DelegatedOffloadTests {
    private typealias Sleeper = OffloadTests.Sleeper

    /// The owner was waiting for an answer when it delegated the session; the answer gets its full time.
    @Test func answerThatIsAwaitedFromTheBeginningMayBeMissing() throws {
        var sleeper = try Sleeper()
        sleeper.sleep(isAwaitingAnswer: true)
        #expect(sleeper.view?.isAwaitingAnswer == true && sleeper.view?.nextPing == nil)
        #expect(sleeper.bench.pass(.seconds(9)).isEmpty)
        #expect(sleeper.bench.pass(.seconds(1)) == [.lookForAnswer(sleeper.token)])
        let wake = try #require(sleeper.bench.turn(.answerLookedFor(sleeper.token)).wakes.first)
        #expect(wake.reasons == .unanswered && sleeper.view?.counters.sent == 0)
    }

    @Test func answerThatIsAwaitedFromTheBeginningIsFollowedByPings() throws {
        var sleeper = try Sleeper()
        sleeper.sleep(isAwaitingAnswer: true)
        sleeper.bench.now = sleeper.bench.now + .seconds(5)
        #expect(sleeper.inspect { $0.confirmed = 1 }.isEmpty)
        #expect(sleeper.bench.pass(.seconds(25)) == [.ping(sleeper.token, again: false)])
    }

    @Test func pingThatThereWasNotIsNotCountedNorAwaited() throws {
        var sleeper = try Sleeper()
        sleeper.sleep()
        sleeper.bench.now = try #require(sleeper.bench.core.nextDeadline)
        #expect(sleeper.bench.turn(.timer) == [.ping(sleeper.token, again: false)])
        #expect(sleeper.bench.turn(.pingOmitted(sleeper.token)).isEmpty)
        #expect(sleeper.view?.counters == OffloadCounters() && sleeper.view?.isAwaitingAnswer == false)
        // The next one has its own time.
        #expect(sleeper.bench.pass(.seconds(23)).isEmpty)
        #expect(sleeper.bench.pass(.seconds(7)) == [.ping(sleeper.token, again: false)])
    }

    /// Nothing was sent, and nothing is taken back.
    @Test func lostDelegatedStateWakesAndCountsNothing() throws {
        var sleeper = try Sleeper()
        sleeper.sleep()
        _ = sleeper.bench.pass(.seconds(30))
        _ = sleeper.inspect { $0.confirmed = 1 }
        let before = try #require(sleeper.view?.counters)
        #expect(before.sent == 1)
        let wake = try #require(sleeper.bench.turn(.delegatedStateLost(sleeper.token)).wakes.first)
        #expect(wake.reasons == .socket && sleeper.view?.counters == before)
        #expect(sleeper.bench.actions.firedSockets.map(\.conditions) == [.unanswerable])
    }
}
