import EdgeTestSupport
import EventLoop
import LinuxSystem
import NightbellSupervisor
import Testing

/// Wakes before the turn, in bursts and alone.
@Suite struct TurnGathererTests {
    private let loop: LoopExecutor

    init() throws { loop = try LoopExecutor() }

    /// Wakes that arrive while the first are handled come before the turn, too.
    @Test(arguments: [true, false]) func aBurstIsGatheredBeforeTheTurn(isCrowd: Bool) throws {
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

    /// Clients told in an earlier turn answer while the next wakes arrive.
    @Test func otherEventsDoNotEndABurst() throws {
        let streams = [try StreamPair(), try StreamPair()]
        try loop.watchUrgently(streams)
        let timer = try TimerDescriptor()
        try loop.urgent.arm(timer.rawValue, .edge, isMember: false, token: 2)
        let answer = try StreamPair()
        let watch = try loop.watch(answer.rawValue, .read, .oneShot, token: 3)
        // On a busy machine the second may come too late for the first one's burst.
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

    @Test func onlyUrgentEventsComeEarly() throws {
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

    /// However large the burst, a turn begins: at a limit of events, or of time.
    @Test func anEndlessBurstDoesNotPreventTheTurn() throws {
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

    /// Wakes that arrive while a turn is given a portion wait for that portion only.
    @Test func aLargeBurstIsDeliveredInPortions() throws {
        let events = try WatchedEvents(200) { try loop.urgent.arm($0, .edge, isMember: false, token: $1) }
        let (late, other) = (try StreamPair(), try StreamPair())
        try loop.urgent.arm(late.rawValue, .edge, isMember: false, token: 1_000)
        let watch = try loop.watch(other.rawValue, .read, .oneShot, token: 1_001)
        // On a busy machine it may take so long that the rest is not put off any longer.
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
            // None is passed over, and the first to fire is the first to be told.
            #expect(turns.joined().sorted() == (0..<200) + [1_000, 1_001])
            #expect(turns.joined().filter { $0 != 1_001 } == early)
            #expect(turns.last?.last == 1_001)
            return turns.map(\.count) == [64, 64, 64, 10] && wholes == [false, false, false, true]
                && earlyByTurn.prefix(2) == [200, 201]
        }
        #expect(isInPortions)
    }

    /// However many fire again and again, other events get their turn, and then the turn knows of all wakes.
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

    /// Sockets that are not handled early wait for their turn, and delay no other.
    @Test func eventsNotHandledEarlyDelayNoOthers() throws {
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
    /// Uses the index of each stream as its token, until the streams are closed.
    fileprivate func watchUrgently(_ streams: [StreamPair]) throws {
        for (index, stream) in streams.enumerated() {
            try urgent.arm(stream.rawValue, .edge, isMember: false, token: UInt64(index))
        }
    }
}

/// Many watched descriptors, each with its index as token.
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

extension LoopExecutor {
    /// As the supervisor runs it.
    fileprivate func run(
        early: @escaping (_ ready: Ready) -> Bool, turn: (_ batch: [Ready], _ isWhole: Bool) -> Void
    ) throws(LoopError) {
        try own { () throws(LoopError) in try runTurns(early: early, turn: turn) }
    }
}
