import NightbellCore
import Testing

/// The core of an embedded supervisor, without sockets or a clock.
@Suite struct CoreTests {
    private struct Bench {
        var core: Parking
        var now = Instant(nanoseconds: 1_000_000_000)
        private var actions: [Parking.Action] = []

        init() {
            core = Parking(settings: Settings())
        }

        mutating func park(pinging: PingTerms? = nil, keepAlive: Duration? = nil) -> SocketToken {
            core.park(hasProfile: pinging != nil, pinging: pinging, keepAlive: keepAlive, at: now)
        }

        mutating func turn(
            _ body: (inout Parking, Instant, inout [Parking.Action]) -> Void = { _, _, _ in }
        ) -> [Parking.Action] {
            actions = []
            body(&core, now, &actions)
            core.endTurn(at: now, into: &actions)
            return actions
        }

        /// Advances time to the core's next deadline.
        mutating func passToDeadline() -> [Parking.Action] {
            guard let deadline = core.nextDeadline else { return [] }
            now = max(now, deadline)
            return turn()
        }
    }

    private static let terms = PingTerms(
        earliest: .seconds(24), latest: .seconds(30), answerWithin: .seconds(10))

    /// While pings are sent, the host would wait for a notification of the same turn.
    @Test func pingsFollowANotification() {
        var bench = Bench()
        let pinged = bench.park(pinging: Self.terms)
        let silent = [bench.park(), bench.park()]
        bench.now = bench.now + .seconds(25)
        for token in silent {
            #expect(bench.turn { $0.fired(token, .readable, into: &$2) } == [.notify(token, .readable)])
            // The next notification puts them off.
            if token == silent[0] { bench.now = bench.now + .milliseconds(1) }
        }
        let last = bench.now
        #expect(bench.passToDeadline() == [.ping(pinged, again: false)])
        #expect(bench.now == last + .milliseconds(2))
    }

    /// A turn without a notification is no reason to send them.
    @Test func pingsWaitForTheirTime() {
        var bench = Bench()
        let pinged = bench.park(pinging: Self.terms)
        let silent = bench.park()
        bench.now = bench.now + .seconds(20)
        #expect(bench.turn { $0.fired(silent, .readable, into: &$2) } == [.notify(silent, .readable)])
        bench.now = bench.now + .seconds(5)
        #expect(bench.turn() == [])
        #expect(bench.passToDeadline() == [.ping(pinged, again: false)])
    }

    /// Its host has sent the beginning of a message: the supervisor must not write in between.
    @Test func aHeldSocketIsLeftAlone() {
        var bench = Bench()
        let pinged = bench.park(pinging: Self.terms, keepAlive: .seconds(60))
        let silent = bench.park()
        for token in [pinged, silent] {
            #expect(bench.turn { core, _, actions in core.hold(token, into: &actions) } == [.ignore(token)])
        }
        #expect(bench.core.nextDeadline == nil)
        #expect(!bench.core.isInspecting(pinged))
        #expect(bench.turn { core, _, actions in core.fired(silent, .readable, into: &actions) } == [])
        #expect(bench.core.isHeld(pinged) && bench.core.isHeld(silent))
        #expect(bench.core.remove(pinged, .claimed) && bench.core.remove(silent, .claimed))
        #expect(!bench.core.isHeld(pinged))
    }

    /// Also if it was reported to the host before.
    @Test func aReportedSocketCanBeHeld() {
        var bench = Bench()
        let token = bench.park(keepAlive: .seconds(60))
        #expect(bench.turn { $0.fired(token, .readable, into: &$2) } == [.notify(token, .readable)])
        #expect(!bench.core.isHeld(token))
        #expect(bench.turn { core, _, actions in core.hold(token, into: &actions) } == [])
        #expect(bench.core.isHeld(token) && bench.core.nextDeadline == nil)
    }

    @Test func windowsAreServedTogetherAndNeverLate() {
        var bench = Bench()
        let start = bench.now
        let tokens = (0..<50).map { bench.park(keepAlive: .seconds(600 + $0)) }
        let told = bench.passToDeadline()
        #expect(bench.now <= start + .seconds(600))
        #expect(told == tokens.map { .notify($0, .keepAliveDue) })
        #expect(bench.core.nextDeadline == nil && bench.core.counters.keepAlivesDue == 50)
    }

    @Test func socketsInsideTheirWindowAreReportedAlongWithTraffic() {
        var bench = Bench()
        let (early, traffic, late) = (
            bench.park(keepAlive: .seconds(600)), bench.park(), bench.park(keepAlive: .seconds(6_000))
        )
        bench.now = bench.now + .seconds(560)
        let told = bench.turn { $0.fired(traffic, .readable, into: &$2) }
        #expect(told == [.notify(traffic, .readable), .notify(early, .keepAliveDue)])
        #expect(bench.core.contains(late))
    }

    @Test func aSocketIsToldOnceAndItsNameIsNotUsedAgain() {
        var bench = Bench()
        let token = bench.park()
        #expect(bench.turn { $0.fired(token, .readable, into: &$2) } == [.notify(token, .readable)])
        #expect(bench.turn { $0.fired(token, .hangUp, into: &$2) } == [])
        let removed = bench.core.remove(token, .claimed)
        #expect(removed && !bench.core.contains(token))
        let next = bench.park()
        #expect(next != token && next.slot == token.slot)
        #expect(bench.turn { $0.fired(token, .readable, into: &$2) } == [])
        let removedAgain = bench.core.remove(token, .released)
        #expect(!removedAgain)
    }

    @Test func aPingIsSentInItsWindowAndItsAnswerMissed() {
        var bench = Bench()
        let start = bench.now
        let token = bench.park(pinging: Self.terms)
        #expect(bench.passToDeadline() == [.ping(token, again: false)])
        #expect(bench.now >= start + .seconds(24) && bench.now <= start + .seconds(30))
        #expect(bench.passToDeadline() == [.lookForAnswer(token)])
        let told = bench.turn { $0.answerLookedFor(token, at: $1, into: &$2) }
        #expect(told == [.ignore(token), .notify(token, .pongMissing)])
        // After its report it is left alone.
        #expect(bench.core.nextDeadline == nil && bench.core.noiseAllowance(token, at: bench.now) == 0)
    }

    @Test func anAnswerThatWasThereCounts() {
        var bench = Bench()
        let token = bench.park(pinging: Self.terms)
        #expect(bench.passToDeadline() == [.ping(token, again: false)])
        #expect(bench.passToDeadline() == [.lookForAnswer(token)])
        var inspection = InspectionResult()
        inspection.confirmed = 1
        let actions = bench.turn {
            $0.inspected(token, inspection, at: $1, into: &$2)
            $0.answerLookedFor(token, at: $1, into: &$2)
        }
        #expect(actions == [] && bench.core.pingCounters.confirmed == 1)
        #expect(bench.core.nextDeadline != nil)
    }

    @Test func removedSocketsStayInTheCounters() {
        var bench = Bench()
        let token = bench.park(pinging: Self.terms)
        #expect(bench.passToDeadline() == [.ping(token, again: false)])
        let removed = bench.core.remove(token, .released)
        #expect(removed)
        #expect(bench.core.pingCounters.sent == 1 && bench.core.nextDeadline == nil)
        #expect(bench.core.counters.released == 1 && bench.core.count == 0)
    }

    @Test func theSameEventsGiveTheSameActions() {
        func run() -> [Parking.Action] {
            var bench = Bench()
            var all: [Parking.Action] = []
            for index in 0..<200 {
                let token = bench.park(
                    pinging: index % 3 == 0 ? Self.terms : nil,
                    keepAlive: index % 2 == 0 ? .seconds(700 - index) : nil)
                if index % 7 == 0 { _ = bench.core.remove(token, .claimed) }
                if index % 11 == 0 { all += bench.passToDeadline() }
            }
            while bench.core.nextDeadline != nil, all.count < 5_000 {
                for action in bench.passToDeadline() {
                    all.append(action)
                    guard case .lookForAnswer(let token) = action else { continue }
                    all += bench.turn { $0.answerLookedFor(token, at: $1, into: &$2) }
                }
            }
            return all
        }
        let first = run()
        #expect(first.count > 200 && first == run())
    }
}
