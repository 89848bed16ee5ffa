import Descriptors
import EdgeTestSupport
import EventLoop
import NightbellSupervisor
import Testing

/// Wakes that happen before the turn, in bursts and alone.
@Suite struct TurnGathererTests {
    private let loop: LoopExecutor

    init() throws { loop = try LoopExecutor() }

    /// What happens while the first are dealt with comes before the turn, too.
    @Test(arguments: [true, false]) func aCrowdIsGatheredBeforeTheTurn(isCrowd: Bool) throws {
        let streams = try (0..<3).map { _ in try StreamPair() }
        try loop.watchUrgently(streams)
        streams[0].send()
        var early: [UInt64] = []
        var turns: [[UInt64]] = []
        try loop.run { ready in
            early.append(ready.token)
            if early.count < 3 { streams[early.count].send() }
            return isCrowd
        } turn: { batch, _ in
            turns.append(batch.map(\.token))
            if early.count == 3 { loop.stop() }
        }
        #expect(early == [0, 1, 2])
        #expect(turns == (isCrowd ? [[0, 1, 2]] : [[0], [1], [2]]))
    }

    /// Those who were told in an earlier turn answer while the next ones come.
    @Test func whatElseHappensDoesNotEndACrowd() throws {
        let streams = [try StreamPair(), try StreamPair()]
        try loop.watchUrgently(streams)
        let timer = try TimerDescriptor()
        try loop.urgent.arm(timer.rawValue, .edge, isMember: false, token: 2)
        let answer = try StreamPair()
        let watch = try loop.watch(answer.rawValue, .read, .oneShot, token: 3)
        // Where the machine is busy, the second may come too late to be the first one's crowd.
        let isOneTurn = try (0..<20).contains { _ in
            for stream in streams { stream.drain() }
            answer.drain()
            try watch.arm()
            streams[0].send()
            var isThere = false
            var batches: [[UInt64]] = []
            try loop.run { ready in
                switch ready.token {
                case 0: streams[1].send()
                case 1:
                    answer.send()
                    do {
                        try timer.set(absoluteNanoseconds: BootClock.now() + 300_000)
                    } catch {
                        Issue.record(error)
                    }
                default: isThere = true
                }
                return true
            } turn: { batch, _ in
                batches.append(batch.map(\.token))
                if isThere { loop.stop() }
            }
            try timer.clear()
            return batches == [[0, 1, 2, 3]]
        }
        #expect(isOneTurn)
    }

    @Test func onlyWhatIsUrgentComesEarly() throws {
        let (urgent, other) = (try StreamPair(), try StreamPair())
        try loop.watchUrgently([urgent])
        let watch = try loop.watch(other.rawValue, .read, .oneShot, token: 1)
        try watch.arm()
        other.send()
        urgent.send()
        var early: [UInt64] = []
        var turn: [UInt64] = []
        try loop.run { ready in
            early.append(ready.token)
            return true
        } turn: { batch, _ in
            turn += batch.map(\.token)
            if turn.count == 2 { loop.stop() }
        }
        #expect(early == [0] && turn.sorted() == [0, 1])
    }

    /// However large the crowd, there is a turn: when so many are known, or so much time is over.
    @Test func aCrowdWithoutEndDoesNotKeepTheTurnAway() throws {
        let streams = [try StreamPair(), try StreamPair()]
        try loop.watchUrgently(streams)
        streams[0].send()
        var next = 0
        var batch = 0
        try loop.run { _ in
            streams[next].drain()
            next = 1 - next
            streams[next].send()
            return true
        } turn: { known, isWhole in
            batch += known.count
            if isWhole { loop.stop() }
        }
        #expect((1...1_024 + 64).contains(batch))
    }

    /// Those who come while a turn is told of some wait for that part of the others only.
    @Test func aLargeCrowdIsToldInPortions() throws {
        let events = try WatchedEvents(200) { try loop.urgent.arm($0, .edge, isMember: false, token: $1) }
        let (late, other) = (try StreamPair(), try StreamPair())
        try loop.urgent.arm(late.rawValue, .edge, isMember: false, token: 1_000)
        let watch = try loop.watch(other.rawValue, .read, .oneShot, token: 1_001)
        // Where the machine is busy, it may take so long that the rest is not put off any longer.
        let isInPortions = try (0..<20).contains { _ in
            for stream in [late, other] { stream.drain() }
            try watch.arm()
            other.send()
            events.signal()
            var early: [UInt64] = []
            var turns: [[UInt64]] = []
            var wholes: [Bool] = []
            var earlyByTurn: [Int] = []
            try loop.run { ready in
                early.append(ready.token)
                return true
            } turn: { batch, isWhole in
                turns.append(batch.map(\.token))
                wholes.append(isWhole)
                earlyByTurn.append(early.count)
                if turns.count == 1 { late.send() }
                if isWhole { loop.stop() }
            }
            // Nobody is passed over, and who came first is told first.
            #expect(turns.joined().sorted() == (0..<200) + [1_000, 1_001])
            #expect(turns.joined().filter { $0 != 1_001 } == early)
            #expect(turns.last?.last == 1_001)
            return turns.map(\.count) == [64, 64, 64, 10] && wholes == [false, false, false, true]
                && earlyByTurn.prefix(2) == [200, 201]
        }
        #expect(isInPortions)
    }

    /// However many come again and again, everything else gets its turn, and then the turn knows of all of them.
    @Test func aFloodDoesNotKeepTheRestAway() throws {
        let events = try WatchedEvents(200) { try loop.urgent.arm($0, .edge, isMember: false, token: $1) }
        let other = try StreamPair()
        let watch = try loop.watch(other.rawValue, .read, .oneShot, token: 1_001)
        try watch.arm()
        other.send()
        events.signal()
        var (early, told) = (0, 0)
        var last: [Ready] = []
        let end = BootClock.now() + 10_000_000_000
        try loop.run { _ in
            early += 1
            return true
        } turn: { batch, isWhole in
            told += batch.count
            last = batch
            if isWhole || BootClock.now() > end { return loop.stop() }
            events.signal()
        }
        #expect(last.last?.token == 1_001)
        #expect((65...1_025).contains(last.count))
        #expect(told == early + 1)
    }

    /// Those for whom nothing could be done early may wait for their turn, and put nobody off.
    @Test func whoIsNotDealtWithEarlyPutsNobodyOff() throws {
        let events = try WatchedEvents(200) { try loop.urgent.arm($0, .edge, isMember: false, token: $1) }
        let other = try StreamPair()
        let watch = try loop.watch(other.rawValue, .read, .oneShot, token: 1_001)
        try watch.arm()
        other.send()
        events.signal()
        var batch: [Ready] = []
        try loop.run { _ in
            false
        } turn: { known, _ in
            batch = known
            loop.stop()
        }
        #expect(batch.map(\.token).sorted() == (0..<200) + [1_001])
    }
}

extension LoopExecutor {
    /// With the places of the streams as tokens, until these are closed.
    fileprivate func watchUrgently(_ streams: [StreamPair]) throws {
        for (index, stream) in streams.enumerated() {
            try urgent.arm(stream.rawValue, .edge, isMember: false, token: UInt64(index))
        }
    }
}

/// Many descriptors that are watched, each with its place as token.
private final class WatchedEvents {
    private var all = UniqueSlots<EventDescriptor>()

    init(_ count: Int, watch: (_ descriptor: CInt, _ token: UInt64) throws -> Void) throws {
        for index in 0..<count {
            let event = try EventDescriptor()
            try watch(event.rawValue, UInt64(index))
            all.append(event)
        }
    }

    /// All are reported, also those that were before.
    func signal() {
        for index in 0..<all.count {
            switch all[index] {
            case .some(let event): #expect(throws: Never.self) { try event.signal() }
            case .none: break
            }
        }
    }
}
