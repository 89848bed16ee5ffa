import EdgeTestSupport
import EventLoop
import Glibc
import LinuxSystem
import Testing

@Suite struct WatchTests {
    private let loop: LoopExecutor

    init() throws { loop = try LoopExecutor() }

    @Test func aNewWatchIsNotArmed() throws {
        let stream = try StreamPair()
        stream.send()
        let watch = try loop.watch(stream.rawValue, .read, .persistent, token: 7)
        expectArmed(watch, false)
        #expect(try loop.turnsWhileQuiet(2) == [])
        try watch.arm()
        expectArmed(watch, true)
        #expect(try loop.nextBatch() == [Ready(token: 7, readable: true)])
    }

    @Test func oneShotFiresOnceAndAgainForUnreadInput() throws {
        let stream = try StreamPair()
        let watch = try loop.watch(stream.rawValue, .read, .oneShot, token: 1)
        try watch.arm()
        stream.send()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
        expectArmed(watch, false)
        #expect(try loop.turnsWhileQuiet(3) == [])
        try watch.arm()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
    }

    @Test func persistentFiresEveryTurnUntilAllIsRead() throws {
        let stream = try StreamPair()
        let watch = try loop.watch(stream.rawValue, .read, .persistent, token: 1)
        try watch.arm()
        stream.send()
        #expect(try loop.turnsWhileQuiet(3).count == 3)
        expectArmed(watch, true)
        stream.drain()
        #expect(try loop.turnsWhileQuiet(2) == [])
        stream.send()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
        watch.disarm()
        #expect(try loop.turnsWhileQuiet(2) == [])
    }

    @Test func armingTwiceIsArmingOnce() throws {
        let stream = try StreamPair()
        let watch = try loop.watch(stream.rawValue, .read, .oneShot, token: 1)
        try watch.arm()
        try watch.arm()
        stream.send()
        #expect(try loop.nextBatch().count == 1)
        watch.disarm()
        watch.disarm()
    }

    @Test func theEndIsReadable() throws {
        let stream = try StreamPair()
        let watch = try loop.watch(stream.rawValue, .read, .oneShot, token: 1)
        try watch.arm()
        stream.endOutput()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
    }

    @Test func aHangUpWakes() throws {
        let stream = try StreamPair()
        let watch = try loop.watch(stream.rawValue, .read, .oneShot, token: 1)
        try watch.arm()
        stream.close()
        let ready = try #require(try loop.nextBatch().first)
        #expect(ready.token == 1 && ready.readable)
    }

    @Test func roomToWrite() throws {
        let stream = try StreamPair()
        let watch = try loop.watch(stream.rawValue, [.read, .write], .oneShot, token: 1)
        try watch.arm()
        #expect(try loop.nextBatch() == [Ready(token: 1, writable: true)])
    }

    @Test func oneTurnGetsAllReadyEvents() throws {
        // More than libevent asks the kernel for at first.
        let streams = try (0..<20).map { _ in try StreamPair() }
        let watches = try WatchList(streams.enumerated().map { (UInt64($0), $1.rawValue) }, in: loop)
        try watches.arm()
        for stream in streams { stream.send() }
        #expect(try Set(loop.nextBatch().map(\.token)) == Set(0..<20))
    }

    /// One pass of libevent reports 64 at most, so that wakes do not wait for a long turn.
    @Test func manyEventsComeInPortions() throws {
        let streams = try (0..<300).map { _ in try StreamPair() }
        let watches = try WatchList(streams.enumerated().map { (UInt64($0), $1.rawValue) }, in: loop)
        try watches.arm()
        for stream in streams { stream.send() }
        var turns: [Int] = []
        let came = try loop.runUntil { batch in
            turns.append(batch.count)
            return turns.reduce(0, +) == 300
        }
        #expect(came && turns.max() == 64)
    }

    /// Duplicates share an open file, and closing one end must not disturb the other.
    @Test func duplicatesAreWatchedApart() throws {
        let stream = try StreamPair()
        let duplicate = try stream.near.duplicate()
        let first = try loop.watch(stream.rawValue, .read, .oneShot, token: 1)
        try first.arm()
        stream.send()
        do {
            let second = try loop.watch(duplicate.rawValue, .read, .oneShot, token: 2)
            try second.arm()
            #expect(try Set(loop.nextBatch().map(\.token)) == [1, 2])
            try second.arm()
        }
        duplicate.close()
        // The number is reused for a stream without input.
        let another = try StreamPair()
        #expect(try loop.turnsWhileQuiet(2) == [])
        try first.arm()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
        _ = another.rawValue
    }

    @Test func severalWatchesOfOneDescriptor() throws {
        let stream = try StreamPair()
        let read = try loop.watch(stream.rawValue, .read, .oneShot, token: 1)
        let write = try loop.watch(stream.rawValue, .write, .oneShot, token: 2)
        try read.arm()
        try write.arm()
        #expect(try loop.nextBatch() == [Ready(token: 2, writable: true)])
        stream.send()
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
    }

    @Test func releasingAWatchEndsIt() throws {
        let stream = try StreamPair()
        do {
            let watch = try loop.watch(stream.rawValue, .read, .persistent, token: 1)
            try watch.arm()
        }
        stream.send()
        #expect(try loop.turnsWhileQuiet(2) == [])
    }

    @Test func unwatchableDescriptorsAreRefused() throws {
        let directory = try TemporaryDirectory()
        let file = try OwnedDescriptor(opening: directory.file("file"), O_RDWR | O_CREAT, mode: 0o600)
        let watch = try loop.watch(file.rawValue, .read, .persistent, token: 1)
        let error = #expect(throws: LoopError.self) { try watch.arm() }
        #expect(error?.code == .cannotArm)
        #expect(error?.underlying.code == EPERM)
        expectArmed(watch, false)
        #expect(try loop.turnsWhileQuiet(1) == [])
    }

    @Test func aTimerIsAWatchLikeAnyOther() throws {
        let timer = try TimerDescriptor()
        let watch = try loop.watch(timer.rawValue, .read, .persistent, token: 1)
        try watch.arm()
        let instant = BootClock.now() + 10_000_000
        try timer.set(absoluteNanoseconds: instant)
        #expect(try loop.nextBatch() == [Ready(token: 1, readable: true)])
        #expect(BootClock.now() >= instant)
        try timer.clear()
        #expect(try loop.turnsWhileQuiet(2) == [])
    }

    @Test func signalsAreReady() async {
        // In a process of its own: signals are the whole process's.
        await #expect(processExitsWith: .success) {
            let loop = try LoopExecutor()
            let watch = try loop.watchSignal(SIGUSR1, token: 5)
            try watch.arm()
            kill(getpid(), SIGUSR1)
            #expect(try loop.nextBatch() == [Ready(token: 5, readable: true)])
            kill(getpid(), SIGUSR1)
            #expect(try loop.nextBatch() == [Ready(token: 5, readable: true)])
        }
    }

    private func expectArmed(
        _ watch: borrowing Watch, _ expected: Bool, sourceLocation: SourceLocation = #_sourceLocation
    ) {
        let isArmed = watch.isArmed
        #expect(isArmed == expected, sourceLocation: sourceLocation)
    }
}

/// Watches in a row: an array cannot hold noncopyable values.
private final class WatchList {
    private final class Item {
        let watch: Watch
        init(_ watch: consuming Watch) { self.watch = watch }
    }

    private let items: [Item]

    init(_ descriptors: [(token: UInt64, descriptor: CInt)], in loop: LoopExecutor) throws {
        items = try descriptors.map {
            Item(try loop.watch($0.descriptor, .read, .oneShot, token: $0.token))
        }
    }

    func arm() throws {
        for item in items { try item.watch.arm() }
    }
}
