import CLinux
import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

@Suite struct ReadinessTests {
    @Test func distinguishesConditions() throws {
        let pair = try SeqPacketSocket.pair()
        #expect(Poll.now(pair.first.rawValue) == .writable)
        #expect(try pair.second.send([1]))
        #expect(Poll.now(pair.first.rawValue) == [.readable, .writable])
        shutdown(pair.second.rawValue, CInt(SHUT_WR))
        #expect(Poll.now(pair.first.rawValue) == [.readable, .peerClosed, .writable])
        shutdown(pair.first.rawValue, CInt(SHUT_WR))
        #expect(Poll.now(pair.first.rawValue).contains(.hangUp))
    }

    @Test func distinguishesManyDescriptors() throws {
        let pair = try SeqPacketSocket.pair()
        let (reader, writer) = try makePipe()
        reader.close()
        defer { writer.close() }
        #expect(try pair.second.send([1]))
        let all = Poll.now([pair.first.rawValue, -1, writer.rawValue, pair.second.rawValue, 1 << 20])
        #expect(all == [[.readable, .writable], [], [.writable, .error], .writable, .invalid])
        #expect(Poll.now([]) == [])
    }

    @Test func aPipeWithoutReaderHasAnError() throws {
        let (reader, writer) = try makePipe()
        reader.close()
        #expect(Poll.now(writer.rawValue).contains(.error))
    }

    @Test func aNumberThatIsNotOpenIsInvalid() {
        #expect(Poll.now(1 << 20) == .invalid)
    }

    @Test func waitingEndsWithTheTime() throws {
        let (reader, writer) = try makePipe()
        defer { writer.close() }
        let start = BootClock.now()
        #expect(Poll.wait(reader.rawValue, for: .readable, timeoutMilliseconds: 20) == [])
        #expect(BootClock.now() - start >= 20_000_000)
    }
}

@Suite struct ClockTests {
    @Test func aTimerFiresAtItsInstantAndNotBefore() throws {
        let timer = try TimerDescriptor()
        let instant = BootClock.now() + 20_000_000
        try timer.set(absoluteNanoseconds: instant)
        #expect(Poll.wait(timer.rawValue, for: .readable, timeoutMilliseconds: 10_000) == .readable)
        #expect(BootClock.now() >= instant)
        try timer.clear()
        #expect(Poll.now(timer.rawValue) == [])
    }

    @Test(arguments: [Int64.min, -1, 0, 1]) func anInstantThatIsOverFiresAtOnce(instant: Int64) throws {
        let timer = try TimerDescriptor()
        try timer.set(absoluteNanoseconds: instant)
        #expect(Poll.wait(timer.rawValue, for: .readable, timeoutMilliseconds: 10_000) == .readable)
    }

    @Test func nilDisarms() throws {
        let timer = try TimerDescriptor()
        try timer.set(absoluteNanoseconds: 1)
        #expect(Poll.wait(timer.rawValue, for: .readable, timeoutMilliseconds: 10_000) == .readable)
        try timer.set(absoluteNanoseconds: nil)
        #expect(Poll.now(timer.rawValue) == [])
    }

    /// Running time and the time asleep add up to the time since the boot.
    @Test func aPairOfClocksKnowsHowLongTheMachineSlept() {
        var clocks = ClockPair()
        var slept: Set<Int64> = []
        for _ in 0..<10_000 {
            let running = RunningClock.now()
            let now = clocks.read()
            #expect(now >= running && now <= RunningClock.now())
            // Readings are not simultaneous, and this process may have to wait between them.
            let difference = BootClock.now() - RunningClock.now()
            #expect(abs(clocks.nanosecondsSlept - difference) < 1_000_000_000)
            slept.insert(clocks.nanosecondsSlept)
        }
        // Its value does not follow the jitter of the readings.
        #expect(slept.count < 20)
    }

    @Test func aFlagIsRaisedUntilItIsCleared() throws {
        let flag = try EventDescriptor()
        #expect(!Poll.now(flag.rawValue).contains(.readable))
        try flag.signal()
        try flag.signal()
        #expect(Poll.now(flag.rawValue).contains(.readable))
        try flag.clear()
        #expect(!Poll.now(flag.rawValue).contains(.readable))
        try flag.clear()
    }
}
