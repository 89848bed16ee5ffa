import NightbellCore
import Testing

/// Pings of sleeping clients: when they are handled, and with which result.
@Suite struct OffloadTests {
    static let interval = PingTerms(
        earliest: .seconds(24), latest: .seconds(30), answerWithin: .seconds(10))

    /// A sleeper with a socket that has a profile.
    struct Sleeper {
        var bench: Bench
        let client: ClientID
        let token: SocketToken

        init(_ adjust: (inout Settings) -> Void = { _ in }) throws {
            bench = Bench(adjust)
            client = try bench.register()
            var offer = SocketOffer(tag: .voip)
            offer.profile = 3
            guard case .success(let token) = bench.handOver(offer, from: client) else {
                throw Bench.Unexpected.notAdopted
            }
            self.token = token
        }

        mutating func sleep(_ terms: PingTerms? = OffloadTests.interval, isAwaitingAnswer: Bool = false) {
            bench.suspend(client)
            bench.turn(.offloadBegan(token, terms, isAwaitingAnswer: isAwaitingAnswer))
        }

        var view: OffloadView? { bench.core.offload(of: token, at: bench.now) }

        mutating func inspect(_ change: (inout InspectionResult) -> Void) -> [Action] {
            var inspection = InspectionResult()
            change(&inspection)
            return bench.turn(.inspected(token, inspection))
        }
    }

    // MARK: Conditions

    @Test func onlyForSleepersThatConfirmedTheirSockets() throws {
        var sleeper = try Sleeper()
        #expect(sleeper.view?.isActive == false)
        sleeper.bench.say(.enterBackground, from: sleeper.client)
        sleeper.bench.say(.backgroundEntered, from: sleeper.client)
        let actions = sleeper.bench.say(
            .readyToSuspend(epoch: sleeper.bench.lastEpoch, notIdle: []), from: sleeper.client)
        let begin = try #require(actions.firstIndex(of: .beginOffload(sleeper.token)))
        let arm = try #require(actions.firstIndex(of: .arm(sleeper.token)))
        #expect(begin < arm && sleeper.view?.isActive == true)
    }

    @Test func aClientSuspendedByForceIsLeftAlone() throws {
        var sleeper = try Sleeper()
        sleeper.bench.say(.enterBackground, from: sleeper.client)
        sleeper.bench.say(.backgroundEntered, from: sleeper.client)
        let actions = sleeper.bench.pass(.seconds(5))
        #expect(actions.contains(.freeze(sleeper.client, epoch: 1)))
        #expect(!actions.contains(.beginOffload(sleeper.token)) && sleeper.view?.isActive == false)
    }

    @Test func endsBeforeTheOwnerRuns() throws {
        var sleeper = try Sleeper()
        sleeper.sleep()
        let actions = sleeper.bench.command(.wake, sleeper.client)
        let end = try #require(actions.firstIndex(of: .endOffload(sleeper.token)))
        let thaw = try #require(actions.firstIndex(of: .thaw(sleeper.client)))
        #expect(end < thaw && sleeper.view?.isActive == false)
        #expect(sleeper.bench.pass(.seconds(60)).allSatisfy { $0 != .ping(sleeper.token, again: false) })
    }

    @Test func endsWhereTheSuspensionFails() throws {
        var sleeper = try Sleeper()
        sleeper.bench.say(.enterBackground, from: sleeper.client)
        sleeper.bench.say(.backgroundEntered, from: sleeper.client)
        sleeper.bench.say(.readyToSuspend(epoch: 1, notIdle: []), from: sleeper.client)
        #expect(
            sleeper.bench.turn(.freezeFailed(sleeper.client, epoch: 1)).contains(.endOffload(sleeper.token)))
    }

    /// The edge must not thaw it before it has looked.
    @Test func isNotCertainToThaw() throws {
        var sleeper = try Sleeper()
        sleeper.sleep()
        #expect(sleeper.bench.core.clientAllowingEarlyThaw(by: sleeper.token) == nil)
    }

    // MARK: What arrives

    @Test func noiseWakesNoClientAndIsCounted() throws {
        var sleeper = try Sleeper()
        sleeper.sleep()
        let actions = sleeper.inspect {
            $0.answered = 2
            $0.otherNoise = 1
        }
        #expect(actions.isEmpty)
        let counters = try #require(sleeper.view?.counters)
        #expect(counters.answered == 2 && counters.absorbed == 1 && counters.wakesAvoided == 1)
        #expect(sleeper.bench.core.condition(of: sleeper.token) == .armed)
        #expect(sleeper.bench.core.offloadTotals[3] == counters)
    }

    @Test func significantWakes() throws {
        var sleeper = try Sleeper()
        sleeper.sleep()
        let wake = try #require(sleeper.inspect { $0.rest = .significant(.readable) }.wakes.first)
        #expect(wake.reasons == .socket)
        #expect(sleeper.bench.actions.firedSockets.map(\.conditions) == [.readable])
    }

    @Test func lostPathIsAReasonOfItsOwn() throws {
        var sleeper = try Sleeper()
        sleeper.sleep()
        let actions = sleeper.inspect { $0.rest = .significant([.error, .hangUp, .pathLost]) }
        #expect(actions.wakes.first?.reasons == .pathLost)
        #expect(sleeper.bench.core.condition(of: sleeper.token) == .ended)
        #expect(sleeper.bench.counters(sleeper.client)[.wakesPathLost] == 1)
    }

    @Test func noiseIsRateLimited() throws {
        var sleeper = try Sleeper {
            $0.offload.noiseBurst = 4
            $0.offload.noiseInterval = .seconds(2)
        }
        sleeper.sleep(nil)
        func allowance(_ sleeper: Sleeper) -> Int {
            sleeper.bench.core.inspectionTerms(sleeper.token, at: sleeper.bench.now)?.allowance ?? 0
        }
        #expect(allowance(sleeper) == 4)
        _ = sleeper.inspect { $0.answered = 3 }
        #expect(allowance(sleeper) == 1)
        sleeper.bench.now = sleeper.bench.now + .seconds(3)
        #expect(allowance(sleeper) == 2)
        // The second that was over is not lost.
        sleeper.bench.now = sleeper.bench.now + .seconds(1)
        #expect(allowance(sleeper) == 3)
        sleeper.bench.now = sleeper.bench.now + .seconds(1_000)
        #expect(allowance(sleeper) == 4)
        let actions = sleeper.inspect {
            $0.answered = 4
            $0.rest = .noise
        }
        #expect(
            actions.wakes.count == 1 && sleeper.bench.actions.firedSockets[0].conditions.contains(.flooded))
    }

    @Test func beginningIsWaitedForSoLong() throws {
        var sleeper = try Sleeper { $0.offload.partialTimeout = .seconds(5) }
        sleeper.sleep(nil)
        #expect(sleeper.inspect { $0.rest = .partial }.isEmpty)
        sleeper.bench.now = sleeper.bench.now + .seconds(4)
        // More bytes of it do not extend the time.
        #expect(sleeper.inspect { $0.rest = .partial }.isEmpty)
        #expect(sleeper.bench.pass(.milliseconds(999)).wakes.isEmpty)
        #expect(sleeper.bench.pass(.milliseconds(1)).wakes.first?.reasons == .socket)
    }

    @Test func completedBeginningIsForgotten() throws {
        var sleeper = try Sleeper()
        sleeper.sleep(nil)
        _ = sleeper.inspect { $0.rest = .partial }
        _ = sleeper.inspect { $0.otherNoise = 1 }
        #expect(sleeper.bench.pass(.seconds(100)).wakes.isEmpty && sleeper.bench.core.nextDeadline == nil)
    }

    /// The kernel reports it only once.
    @Test func beginningThatItsOwnerLeavesIsLookedAtAgain() throws {
        var sleeper = try Sleeper()
        sleeper.sleep(nil)
        #expect(sleeper.inspect { $0.rest = .partial }.isEmpty)
        sleeper.bench.command(.wake, sleeper.client)
        #expect(sleeper.bench.core.condition(of: sleeper.token) == .armed)
        sleeper.bench.say(.wakeDone(wakeID: sleeper.bench.lastWakeID), from: sleeper.client)
        sleeper.bench.command(.suspend, sleeper.client)
        let epoch = sleeper.bench.lastEpoch
        let actions = sleeper.bench.say(.readyToSuspend(epoch: epoch, notIdle: []), from: sleeper.client)
        #expect(actions.contains(.arm(sleeper.token)))
    }

    /// Inspected while the owner slept, and reported after it had been woken.
    @Test func beginningThatIsToldLateIsLookedAtAgain() throws {
        var sleeper = try Sleeper()
        sleeper.sleep(nil)
        sleeper.bench.command(.wake, sleeper.client)
        #expect(sleeper.inspect { $0.rest = .partial }.isEmpty)
        sleeper.bench.say(.wakeDone(wakeID: sleeper.bench.lastWakeID), from: sleeper.client)
        sleeper.bench.command(.suspend, sleeper.client)
        let epoch = sleeper.bench.lastEpoch
        let actions = sleeper.bench.say(.readyToSuspend(epoch: epoch, notIdle: []), from: sleeper.client)
        #expect(actions.contains(.arm(sleeper.token)))
        // Only once.
        sleeper.bench.turn(.frozen(sleeper.client, epoch: epoch))
        sleeper.bench.command(.wake, sleeper.client)
        sleeper.bench.suspend(sleeper.client)
        #expect(!sleeper.bench.actions.actions.contains(.arm(sleeper.token)))
    }

    @Test func dataLeftForARunningOwnerBelongsToIt() throws {
        var sleeper = try Sleeper()
        sleeper.sleep()
        sleeper.bench.command(.wake, sleeper.client)
        let actions = sleeper.inspect { $0.rest = .significant(.readable) }
        #expect(actions.wakes.isEmpty && sleeper.bench.core.condition(of: sleeper.token) == .unwatched)
    }

    // MARK: Pings

    @Test func pingsAreSentInTheirWindows() throws {
        var sleeper = try Sleeper()
        let handedOver = sleeper.bench.now
        sleeper.sleep()
        var last = handedOver
        for _ in 0..<5 {
            let deadline = try #require(sleeper.bench.core.nextDeadline)
            sleeper.bench.now = deadline
            #expect(sleeper.bench.turn(.timer).contains(.ping(sleeper.token, again: false)))
            let pause = deadline.since(last)
            #expect(pause >= .seconds(24) && pause <= .seconds(30))
            last = deadline
            sleeper.bench.now = deadline + .seconds(1)
            _ = sleeper.inspect { $0.confirmed = 1 }
        }
        let counters = try #require(sleeper.view?.counters)
        #expect(counters.sent == 5 && counters.confirmed == 5 && counters.absorbed == 5)
        #expect(counters.wakesAvoided == 10 && sleeper.bench.counters(sleeper.client)[.wakes] == 0)
    }

    @Test func repetitionsDouble() throws {
        var terms = Self.interval
        (terms.repeatAfter, terms.repetitions) = (.milliseconds(500), 3)
        var sleeper = try Sleeper()
        sleeper.sleep(terms)
        let first = try #require(sleeper.bench.core.nextDeadline)
        sleeper.bench.now = first
        sleeper.bench.turn(.timer)
        var pauses: [Duration] = []
        for _ in 0..<3 {
            sleeper.bench.now = try #require(sleeper.bench.core.nextDeadline)
            #expect(sleeper.bench.turn(.timer).contains(.ping(sleeper.token, again: true)))
            pauses.append(sleeper.bench.now.since(first))
        }
        #expect(pauses == [.milliseconds(500), .milliseconds(1_500), .milliseconds(3_500)])
        #expect(sleeper.view?.counters.sent == 1)
        #expect(try #require(sleeper.bench.core.nextDeadline).since(first) == .seconds(10))
    }

    /// Also after a pause of the whole machine: two repetitions at once prove no more than one, and delay
    /// others.
    @Test func repetitionsThatWereLeftOutAreNotMadeUpFor() throws {
        var terms = Self.interval
        (terms.repeatAfter, terms.repetitions) = (.milliseconds(500), 3)
        var sleeper = try Sleeper()
        sleeper.sleep(terms)
        sleeper.bench.now = try #require(sleeper.bench.core.nextDeadline)
        sleeper.bench.turn(.timer)
        sleeper.bench.now = sleeper.bench.now + .seconds(4)
        let isPing = { (action: Action) in action == .ping(sleeper.token, again: true) }
        #expect(sleeper.bench.turn(.timer).count(where: isPing) == 1)
        #expect(try #require(sleeper.bench.core.nextDeadline) > sleeper.bench.now)
    }

    @Test func missingAnswerWakes() throws {
        var sleeper = try Sleeper()
        sleeper.sleep()
        sleeper.bench.now = try #require(sleeper.bench.core.nextDeadline)
        sleeper.bench.turn(.timer)
        sleeper.bench.now = try #require(sleeper.bench.core.nextDeadline)
        // The edge has to inspect the socket first.
        #expect(sleeper.bench.turn(.timer) == [.lookForAnswer(sleeper.token)])
        let wake = try #require(sleeper.bench.turn(.answerLookedFor(sleeper.token)).wakes.first)
        #expect(wake.reasons == .unanswered)
        #expect(sleeper.bench.actions.firedSockets.map(\.conditions) == [.unanswered])
    }

    @Test func answerThatWasThereIsNotMissed() throws {
        var sleeper = try Sleeper()
        sleeper.sleep()
        sleeper.bench.now = try #require(sleeper.bench.core.nextDeadline)
        sleeper.bench.turn(.timer)
        sleeper.bench.now = sleeper.bench.now + .seconds(20)
        #expect(sleeper.bench.turn(.timer) == [.lookForAnswer(sleeper.token)])
        _ = sleeper.inspect { $0.confirmed = 1 }
        #expect(sleeper.bench.turn(.answerLookedFor(sleeper.token)).isEmpty)
        #expect(sleeper.bench.pass(.seconds(11)).contains(.ping(sleeper.token, again: false)))
    }

    @Test func pingThatCannotBeSentWakes() throws {
        var sleeper = try Sleeper()
        sleeper.sleep()
        sleeper.bench.now = try #require(sleeper.bench.core.nextDeadline)
        sleeper.bench.turn(.timer)
        let wake = try #require(sleeper.bench.turn(.pingFailed(sleeper.token)).wakes.first)
        #expect(wake.reasons == .socket && sleeper.view?.counters.sent == 0)
        #expect(sleeper.bench.actions.firedSockets.map(\.conditions) == [.unanswerable])
    }

    /// A ping that came due while its owner was awake is sent soon after that.
    @Test func timeGoesOnWhileTheOwnerIsAwake() throws {
        var sleeper = try Sleeper()
        sleeper.sleep()
        sleeper.bench.command(.wake, sleeper.client)
        sleeper.bench.now = sleeper.bench.now + .seconds(100)
        sleeper.sleep()
        #expect(sleeper.bench.pass(.seconds(1)).contains(.ping(sleeper.token, again: false)))
    }

    @Test func pingsRunAlongWithAWake() throws {
        var sleeper = try Sleeper()
        let other = try sleeper.bench.register()
        _ = try sleeper.bench.handOver(from: other)
        sleeper.sleep()
        sleeper.bench.suspend(other)
        sleeper.bench.now = sleeper.bench.now + .seconds(25)
        let actions = sleeper.bench.command(.wake, other)
        let ping = try #require(actions.firstIndex(of: .ping(sleeper.token, again: false)))
        // Behind the wake, which is in a hurry.
        let told = try #require(
            actions.firstIndex { if case .notify(other, .wake) = $0 { true } else { false } })
        #expect(told < ping)
    }

    @Test func manyPingsAreSpreadOverTurns() throws {
        var bench = Bench { $0.quotas.clientsPerUser = 1_000 }
        var tokens: [SocketToken] = []
        for _ in 0..<100 {
            let client = try bench.register()
            var offer = SocketOffer(tag: .voip)
            offer.profile = 3
            guard case .success(let token) = bench.handOver(offer, from: client) else { continue }
            bench.suspend(client)
            bench.turn(.offloadBegan(token, Self.interval, isAwaitingAnswer: false))
            tokens.append(token)
        }
        bench.now = bench.now + .seconds(30)
        let isPing = { (action: Action) in if case .ping = action { true } else { false } }
        #expect(bench.turn(.timer).count(where: isPing) == 32)
        #expect(try #require(bench.core.nextDeadline) <= bench.now)
        var rest = 0
        for _ in 0..<3 { rest += bench.turn(.timer).count(where: isPing) }
        #expect(rest == 68)
    }

    // MARK: The end

    @Test func totalsAreKeptByProfile() throws {
        var sleeper = try Sleeper()
        sleeper.sleep()
        _ = sleeper.inspect { $0.answered = 1 }
        #expect(sleeper.bench.core.offloadTotals[0] == OffloadCounters())
        sleeper.bench.say(.release(sleeper.token), from: sleeper.client)
        let words = sleeper.bench.core.offloadsOfGone
        #expect(OffloadTotals(words: words) == sleeper.bench.core.offloadTotals)
        #expect(OffloadTotals(words: words)[3].answered == 1 && OffloadTotals(words: words).sum.answered == 1)
        // The next supervisor goes on from there.
        var snapshot = RecoverySnapshot()
        snapshot.offloadsOfGone = words
        let next = try Supervision(
            settings: sleeper.bench.core.settings, restoring: snapshot, at: sleeper.bench.now,
            into: &sleeper.bench.actions)
        #expect(next.offloadTotals[3].answered == 1)
    }

    @Test func nothingIsLeftOfASocketThatIsReleased() throws {
        var sleeper = try Sleeper()
        sleeper.sleep()
        _ = sleeper.inspect { $0.answered = 1 }
        sleeper.bench.say(.release(sleeper.token), from: sleeper.client)
        #expect(sleeper.view == nil && sleeper.bench.core.offloadTotals[3].answered == 1)
        #expect(sleeper.bench.core.offloadedSockets(of: sleeper.client).isEmpty)
        _ = sleeper.inspect { $0.answered = 1 }
        #expect(sleeper.bench.core.offloadTotals[3].answered == 1)
    }

    @Test(arguments: [Refusal.invalidProfile, .opaqueSocket, .profileNotForThis])
    func profileThatDoesNotFitIsRefused(refusal: Refusal) throws {
        var bench = Bench()
        let client = try bench.register()
        var offer = SocketOffer(tag: .voip)
        offer.profileRefusal = refusal
        #expect(bench.handOver(offer, from: client) == .failure(refusal))
    }
}
