import CLinux
import Descriptors
import EdgeTestSupport
import EventLoop
import Glibc
import Testing

@Suite struct WatchSetTests {
    private let loop: LoopExecutor

    init() throws { loop = try LoopExecutor() }

    @Test func oneShotFiresOnceAndForWhatIsUnreadAgain() throws {
        let stream = try Stream()
        var watch = SetWatch(stream.rawValue, .oneShot, token: 1, loop: loop)
        stream.send()
        #expect(try loop.turnsWhileQuiet(2) == [])
        try watch.arm()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
        stream.send()
        #expect(try loop.turnsWhileQuiet(3) == [])
        try watch.arm()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
        stream.close()
        #expect(try loop.turnsWhileQuiet(2) == [])
        watch.disarm()
    }

    @Test func anArmedOneArmedAgainTellsWhatIsUnread() throws {
        let stream = try Stream()
        var watch = SetWatch(stream.rawValue, .edge, token: 1, loop: loop)
        try watch.arm()
        stream.send()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
        #expect(try loop.turnsWhileQuiet(2) == [])
        try watch.arm()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
    }

    @Test func persistentFiresEveryTurnUntilThereIsNothing() throws {
        let stream = try Stream()
        var watch = SetWatch(stream.rawValue, .persistent, token: 1, loop: loop)
        try watch.arm()
        stream.send()
        #expect(try loop.turnsWhileQuiet(3).count == 3)
        stream.drain()
        #expect(try loop.turnsWhileQuiet(2) == [])
        stream.endOutput()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true, closed: true)])
        watch.disarm()
        #expect(try loop.turnsWhileQuiet(2) == [])
    }

    @Test func theEndOfInputIsToldFromData() throws {
        let stream = try Stream()
        var watch = SetWatch(stream.rawValue, .oneShot, token: 1, loop: loop)
        try watch.arm()
        stream.send()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
        stream.endOutput()
        try watch.arm()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true, closed: true)])
        watch.disarm()
    }

    @Test func aHangUpWakes() throws {
        let stream = try Stream()
        var watch = SetWatch(stream.rawValue, .oneShot, token: 1, loop: loop)
        try watch.arm()
        stream.close()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true, closed: true)])
    }

    /// More than one look finds.
    @Test func everybodyIsReportedOnce() throws {
        let streams = try (0..<1_500).map { _ in try Stream() }
        for (index, stream) in streams.enumerated() {
            try loop.set.arm(stream.rawValue, .oneShot, isMember: false, token: UInt64(index))
            stream.send()
        }
        var seen: [UInt64] = []
        let came = try loop.runUntil { batch in
            seen += batch.map(\.token)
            return seen.count >= streams.count
        }
        #expect(came && seen.count == 1_500 && Set(seen) == Set(0..<1_500))
        #expect(try loop.turnsWhileQuiet(2) == [])
        for stream in streams { loop.set.remove(stream.rawValue) }
    }

    /// A descriptor may be in the set and have a watch of libevent's.
    @Test func asideOfOtherWatches() throws {
        let stream = try Stream()
        var read = SetWatch(stream.rawValue, .persistent, token: 1, loop: loop)
        let write = try loop.watch(stream.rawValue, .write, .oneShot, token: 2)
        try read.arm()
        try write.arm()
        #expect(try loop.nextBatch() == [Ready(token: 2, writable: true)])
        stream.send()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
        read.disarm()
    }

    @Test func lettingGoOfAWatchEndsItThoughADuplicateLives() throws {
        let stream = try Stream()
        let duplicate = try stream.near.duplicate()
        do {
            var watch = SetWatch(duplicate.rawValue, .persistent, token: 1, loop: loop)
            try watch.arm()
        }
        duplicate.close()
        stream.send()
        #expect(try loop.turnsWhileQuiet(2) == [])
    }

    @Test func whatCannotBeWatchedIsRefused() throws {
        let directory = try TemporaryDirectory()
        let file = try OwnedDescriptor(opening: directory.file("file"), O_RDWR | O_CREAT, mode: 0o600)
        let rawValue = file.rawValue
        let error = #expect(throws: LoopError.self) {
            try loop.set.arm(rawValue, .oneShot, isMember: false, token: 1)
        }
        #expect(error?.code == .cannotArm)
        #expect(error?.underlying.code == EPERM)
    }

    /// Which of them libevent waits on is found by trying: the others, and what is in them, must not notice.
    @Test func otherSetsOfTheProcessAreLeftAlone() throws {
        let stream = try Stream()
        var owners = UniqueSlots<OwnedDescriptor>()
        var sets: [CInt] = []
        for _ in 0..<8 {
            let set = try systemCall("epoll_create1") { epoll_create1(CInt(EPOLL_CLOEXEC)) }
            owners.append(OwnedDescriptor(adopting: set))
            var event = epoll_event(events: EPOLLIN.rawValue, data: epoll_data(u64: 42))
            #expect(epoll_ctl(set, EPOLL_CTL_ADD, stream.rawValue, &event) == 0)
            sets.append(set)
        }
        let loops = try (0..<3).map { _ in try LoopExecutor() }
        stream.send()
        for set in sets {
            var found = [epoll_event](repeating: epoll_event(), count: 2)
            #expect(epoll_wait(set, &found, 2, 0) == 1)
            #expect(found[0].data.u64 == 42)
        }
        for loop in loops {
            let watch = try loop.watch(stream.rawValue, .read, .oneShot, token: 1)
            try watch.arm()
            #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
        }
    }
}
