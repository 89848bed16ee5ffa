import Manifests
import Testing

@Suite("Durations as text")
struct DurationTextTests {
    @Test(
        "Usual spellings are understood",
        arguments: [
            ("600s", Duration.seconds(600)), ("250ms", .milliseconds(250)), ("3m", .seconds(180)),
            ("2min", .seconds(120)),
            ("1h", .seconds(3_600)), ("2d", .seconds(172_800)), ("600", .seconds(600)), ("0", .zero),
            ("1.5s", .milliseconds(1_500)), ("0.25", .milliseconds(250)), ("10us", .microseconds(10)),
            ("7ns", .nanoseconds(7)), (".5s", .milliseconds(500)),
        ])
    func understood(text: String, expected: Duration) {
        #expect(DurationText.parse(text) == expected)
    }

    @Test(
        "Text that is no duration is refused",
        arguments: [
            "", "s", "ms", "-1s", "+1s", "1 s", "1e3", "0x10", "inf", "nan", "soon", "1.2.3s", "1,5s", "5x",
            "min", "5mins",
            "1s2m",
            "999999999d", "٣s",
        ])
    func refused(text: String) {
        #expect(DurationText.parse(text) == nil)
    }

    @Test("Printed text is read back as the same duration, over many magnitudes")
    func roundTrip() throws {
        var random = SystemRandomNumberGenerator()
        for _ in 0..<2_000 {
            let unit = [1, 1_000, 1_000_000, 1_000_000_000].randomElement(using: &random) ?? 1
            let duration = Duration.nanoseconds(Int64.random(in: 0..<1_000_000, using: &random) * Int64(unit))
            let text = DurationText.format(duration)
            #expect(DurationText.parse(text) == duration, "\(text)")
        }
    }
}
