import ProcessWaits
import Testing

@Suite("Instants at which programs are thawed together")
struct CommonInstantTests {
    @Test("It is the instant of its window that divides by the greatest power of two")
    func greatest() {
        for earliest in 1...70 as ClosedRange<Int64> {
            for latest in earliest...140 {
                let instant = CommonInstant.within(earliest...latest)
                #expect((earliest...latest).contains(instant))
                let others = (earliest...latest).map(\.trailingZeroBitCount)
                #expect(instant.trailingZeroBitCount == others.max(), "\(earliest)...\(latest)")
            }
        }
        #expect(CommonInstant.within(.max ... .max) == .max)
        #expect(CommonInstant.within(-5...7) == 7)
    }

    @Test("A thousand timers within an hour that may be a minute late need some hundred instants")
    func timers() {
        let minute: Int64 = 60_000_000_000
        var instants: Set<Int64> = []
        // Evenly spread, without a common divisor.
        for number in 1...1_000 as ClosedRange<Int64> {
            let time = 1_234_567_890_123 + number * 3_607_171_717
            instants.insert(CommonInstant.within(time...time + minute))
        }
        #expect(instants.count <= 106, "\(instants.count)")
    }

    @Test("Timers that may be less late are thawed at instants of their own, and at those of the others")
    func lengths() {
        var (long, short): (Set<Int64>, Set<Int64>) = ([], [])
        for number in 1...500 as ClosedRange<Int64> {
            let time = 1_234_567_890_123 + number * 3_607_171_717
            long.insert(CommonInstant.within(time...time + 60_000_000_000))
            short.insert(CommonInstant.within(time...time + 10_000_000_000))
        }
        #expect(long.count < short.count)
        // At the end some lie behind the last of the short windows.
        #expect(long.subtracting(short).count <= 2, "\(long.subtracting(short).sorted())")
    }
}
