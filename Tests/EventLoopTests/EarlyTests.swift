import Descriptors
import EdgeTestSupport
import EventLoop
import Testing

/// What cannot wait for the turn.
@Suite struct EarlyTests {
    private let loop: LoopExecutor

    init() throws { loop = try LoopExecutor() }

    /// What happens while the first are dealt with comes before the turn, too.
    @Test(arguments: [true, false]) func aCrowdIsGatheredBeforeTheTurn(isCrowd: Bool) throws {
        let streams = try (0..<3).map { _ in try Stream() }
        try loop.watchUrgently(streams)
        streams[0].send()
        var early: [UInt64] = []
        var turns: [[UInt64]] = []
        try loop.run { ready in
            early.append(ready.token)
            if early.count < 3 { streams[early.count].send() }
            return isCrowd
        } turn: { batch in
            turns.append(batch.map(\.token))
            if early.count == 3 { loop.stop() }
        }
        #expect(early == [0, 1, 2])
        #expect(turns == (isCrowd ? [[0, 1, 2]] : [[0], [1], [2]]))
    }

    /// Those who were told in an earlier turn answer while the next ones come.
    @Test func whatElseHappensDoesNotEndACrowd() throws {
        let streams = [try Stream(), try Stream()]
        try loop.watchUrgently(streams)
        let timer = try TimerDescriptor()
        try loop.urgent.arm(timer.rawValue, .edge, isMember: false, token: 2)
        let answer = try Stream()
        var watch = SetWatch(answer.rawValue, .oneShot, token: 3, loop: loop)
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
            } turn: { batch in
                batches.append(batch.map(\.token))
                if isThere { loop.stop() }
            }
            try timer.clear()
            return batches == [[0, 1, 2, 3]]
        }
        #expect(isOneTurn)
    }

    @Test func onlyWhatIsUrgentComesEarly() throws {
        let (urgent, other) = (try Stream(), try Stream())
        try loop.watchUrgently([urgent])
        var watch = SetWatch(other.rawValue, .oneShot, token: 1, loop: loop)
        try watch.arm()
        other.send()
        urgent.send()
        var early: [UInt64] = []
        var turn: [UInt64] = []
        try loop.run { ready in
            early.append(ready.token)
            return true
        } turn: { batch in
            turn += batch.map(\.token)
            if turn.count == 2 { loop.stop() }
        }
        #expect(early == [0] && turn.sorted() == [0, 1])
    }

    /// However large the crowd, there is a turn: when so many are known, or so much time is over.
    @Test func aCrowdWithoutEndDoesNotKeepTheTurnAway() throws {
        let streams = [try Stream(), try Stream()]
        try loop.watchUrgently(streams)
        streams[0].send()
        var next = 0
        var batch = 0
        try loop.run { _ in
            streams[next].drain()
            next = 1 - next
            streams[next].send()
            return true
        } turn: {
            batch = $0.count
            loop.stop()
        }
        #expect((1...1_024).contains(batch))
    }

    @Test func anEdgeIsReportedOnceAndWhenThereIsMore() throws {
        let stream = try Stream()
        stream.send()
        try loop.watchUrgently([stream])
        #expect(try loop.nextBatch() == [Ready(token: 0, readable: true)])
        #expect(try loop.turnsWhileQuiet(3) == [])
        stream.send()
        #expect(try loop.nextBatch() == [Ready(token: 0, readable: true)])
        stream.close()
        #expect(try loop.nextBatch() == [Ready(token: 0, readable: true, closed: true)])
    }
}

extension LoopExecutor {
    /// With the places of the streams as tokens, until these are closed.
    fileprivate func watchUrgently(_ streams: [Stream]) throws {
        for (index, stream) in streams.enumerated() {
            try urgent.arm(stream.rawValue, .edge, isMember: false, token: UInt64(index))
        }
    }
}
