import EdgeTestSupport
import EventLoop
import Glibc
import LinuxSystem
import Testing

/// The urgent set: parked sockets.
@Suite struct EpollSetTests {
    private let loop: LoopExecutor

    init() throws { loop = try LoopExecutor() }

    @Test func oneShotFiresOnceAndAgainForUnreadInput() throws {
        let stream = try StreamPair()
        stream.send()
        #expect(try loop.turnsWhileQuiet(2) == [])
        try loop.urgent.arm(stream.rawValue, .oneShot, isMember: false, token: 1)
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
        stream.send()
        #expect(try loop.turnsWhileQuiet(3) == [])
        try loop.urgent.arm(stream.rawValue, .oneShot, isMember: true, token: 1)
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
        stream.close()
        #expect(try loop.turnsWhileQuiet(2) == [])
    }

    @Test func anEdgeIsReportedOnceAndWhenThereIsMore() throws {
        let stream = try StreamPair()
        stream.send()
        try loop.urgent.arm(stream.rawValue, .edge, isMember: false, token: 0)
        #expect(try loop.nextBatch() == [Ready(token: 0, readable: true)])
        #expect(try loop.turnsWhileQuiet(3) == [])
        stream.send()
        #expect(try loop.nextBatch() == [Ready(token: 0, readable: true)])
        stream.close()
        #expect(try loop.nextBatch() == [Ready(token: 0, readable: true, closed: true, failed: true)])
    }

    @Test func urgentDataIsReportedWhereItIsAskedFor() throws {
        let stream = try StreamPair()
        let other = try StreamPair()
        try loop.urgent.arm(stream.rawValue, .edgeWithUrgentData, isMember: false, token: 1)
        try loop.urgent.arm(other.rawValue, .edge, isMember: false, token: 2)
        stream.sendUrgent()
        other.sendUrgent()
        #expect(
            Set(try loop.nextBatch()) == [
                Ready(token: 1, readable: true, hasUrgentData: true), Ready(token: 2, readable: true),
            ])
    }

    @Test func rearmingReportsUnreadInput() throws {
        let stream = try StreamPair()
        try loop.urgent.arm(stream.rawValue, .edge, isMember: false, token: 1)
        stream.send()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
        #expect(try loop.turnsWhileQuiet(2) == [])
        try loop.urgent.arm(stream.rawValue, .edge, isMember: true, token: 1)
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
    }

    @Test func theEndOfInputIsDistinctFromData() throws {
        let stream = try StreamPair()
        try loop.urgent.arm(stream.rawValue, .oneShot, isMember: false, token: 1)
        stream.send()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
        stream.endOutput()
        try loop.urgent.arm(stream.rawValue, .oneShot, isMember: true, token: 1)
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true, closed: true)])
    }

    @Test func aHangUpIsReported() throws {
        let stream = try StreamPair()
        try loop.urgent.arm(stream.rawValue, .oneShot, isMember: false, token: 1)
        stream.close()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true, closed: true, failed: true)])
    }

    /// There are more than one call of `collect` finds.
    @Test func everyMemberIsReportedOnce() throws {
        let streams = try (0..<1_500).map { _ in try StreamPair() }
        for (index, stream) in streams.enumerated() {
            try loop.urgent.arm(stream.rawValue, .oneShot, isMember: false, token: UInt64(index))
            stream.send()
        }
        var seen: [UInt64] = []
        let came = try loop.runUntil { batch in
            seen += batch.map(\.token)
            return seen.count >= streams.count
        }
        #expect(came && seen.count == 1_500 && Set(seen) == Set(0..<1_500))
        #expect(try loop.turnsWhileQuiet(2) == [])
        for stream in streams { loop.urgent.remove(stream.rawValue) }
    }

    /// A member may have a libevent watch as well.
    @Test func aMemberMayHaveALibeventWatch() throws {
        let stream = try StreamPair()
        let write = try loop.watch(stream.rawValue, .write, .oneShot, token: 2)
        try loop.urgent.arm(stream.rawValue, .oneShot, isMember: false, token: 1)
        try write.arm()
        #expect(try loop.nextBatch() == [Ready(token: 2, writable: true)])
        stream.send()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
    }

    @Test func aRemovedMemberIsNotReportedThoughADuplicateLives() throws {
        let stream = try StreamPair()
        let duplicate = try stream.near.duplicate()
        try loop.urgent.arm(duplicate.rawValue, .edge, isMember: false, token: 1)
        loop.urgent.remove(duplicate.rawValue)
        duplicate.close()
        stream.send()
        #expect(try loop.turnsWhileQuiet(2) == [])
    }

    @Test func unwatchableDescriptorsAreRefused() throws {
        let directory = try TemporaryDirectory()
        let file = try OwnedDescriptor(opening: directory.file("file"), O_RDWR | O_CREAT, mode: 0o600)
        let rawValue = file.rawValue
        let error = #expect(throws: LoopError.self) {
            try loop.urgent.arm(rawValue, .oneShot, isMember: false, token: 1)
        }
        #expect(error?.code == .cannotArm)
        #expect(error?.underlying.code == EPERM)
    }

    /// An urgent event that nothing collects yet must not keep libevent from reporting others.
    @Test func anUncollectedMemberDoesNotKeepOthersAway() throws {
        let (urgent, other) = (try StreamPair(), try StreamPair())
        try loop.urgent.arm(urgent.rawValue, .edge, isMember: false, token: 1)
        let watch = try loop.watch(other.rawValue, .read, .oneShot, token: 2)
        try watch.arm()
        urgent.send()
        other.send()
        var batches: [[UInt64]] = []
        try loop.run { () throws(LoopError) in
            #expect(try loop.dispatch(waits: false))
            loop.deliver { batches.append($0.map(\.token)) }
            #expect(!loop.mayWait)
            _ = try loop.collectUrgent(waiting: 0, atMost: 1_024)
            loop.deliver { batches.append($0.map(\.token)) }
            // libevent watches the set again.
            urgent.send()
            #expect(try loop.dispatch(waits: true))
            #expect(loop.readyCount == 1)
            loop.deliver { batches.append($0.map(\.token)) }
            loop.stop()
            return true
        }
        #expect(batches == [[2], [1], [1]])
    }
}
