import NightbellCore
import Testing

@Suite struct InstantTests {
    private let samples: [Int64] = [.min, .min + 1, -1_000_000_000, -1, 0, 1, 999, 1 << 40, .max - 1, .max]

    @Test func sumsAndDifferencesSaturate() {
        for instant in samples {
            for nanoseconds in samples {
                let duration = Duration.nanoseconds(nanoseconds)
                let sum = Int128(instant) + Int128(nanoseconds)
                let difference = Int128(instant) - Int128(nanoseconds)
                #expect((Instant(nanoseconds: instant) + duration).nanoseconds == clamp(sum))
                #expect((Instant(nanoseconds: instant) - duration).nanoseconds == clamp(difference))
                #expect(
                    Instant(nanoseconds: instant).since(Instant(nanoseconds: nanoseconds)).nanoseconds
                        == clamp(difference))
            }
        }
    }

    @Test func durationsBeyond64BitsAreClamped() {
        #expect(Duration.seconds(Int64.max).nanoseconds == .max)
        #expect(Duration.seconds(Int64.min).nanoseconds == .min)
        #expect(Duration.seconds(9_223_372_037).nanoseconds == .max)
        #expect(Duration.seconds(9_223_372_036).nanoseconds == 9_223_372_036_000_000_000)
        #expect(Duration.zero.nanoseconds == 0)
        #expect(Duration.milliseconds(-1_500).nanoseconds == -1_500_000_000)
        #expect(Duration(secondsComponent: 1, attosecondsComponent: 999_999_999).nanoseconds == 1_000_000_000)
    }

    @Test func neverStaysNever() {
        let never = Instant(nanoseconds: 5) + .seconds(Int64.max)
        #expect(never.nanoseconds == .max)
        #expect(never + .seconds(1) == never)
    }

    private func clamp(_ value: Int128) -> Int64 { Int64(clamping: value) }
}
