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
        let watches = try loop.edgeWatches(streams)
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
        withExtendedLifetime(watches) {}
    }

    /// However large the crowd, there is a turn.
    @Test func aCrowdWithoutEndDoesNotKeepTheTurnAway() throws {
        let streams = [try Stream(), try Stream()]
        let watches = try loop.edgeWatches(streams)
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
        #expect(batch == 1_024)
        withExtendedLifetime(watches) {}
    }

    @Test func anEdgeIsReportedOnceAndWhenThereIsMore() throws {
        let stream = try Stream()
        stream.send()
        let watches = try loop.edgeWatches([stream])
        #expect(try loop.nextBatch() == [Ready(token: 0, readable: true)])
        #expect(try loop.turnsWhileQuiet(3) == [])
        stream.send()
        #expect(try loop.nextBatch() == [Ready(token: 0, readable: true)])
        stream.close()
        #expect(try loop.nextBatch() == [Ready(token: 0, readable: true, closed: true)])
        withExtendedLifetime(watches) {}
    }
}

extension LoopExecutor {
    /// Armed, with the places of the streams as tokens.
    fileprivate func edgeWatches(_ streams: [Stream]) throws -> [HeldWatch] {
        try streams.enumerated().map { index, stream in
            var watch = SetWatch(stream.rawValue, .edge, token: UInt64(index), loop: self)
            try watch.arm()
            return HeldWatch(watch)
        }
    }
}

/// A watch, which cannot be copied, in something that can.
private final class HeldWatch {
    let watch: SetWatch
    init(_ watch: consuming SetWatch) { self.watch = watch }
}
