import LoadTester
import Presentation
import Simulation
import Testing

@Suite("Figures of load runs")
struct StatisticsTests {
    @Test("The median is the middle, and none of nothing")
    func medians() {
        #expect(median([]).isNaN)
        #expect(median([3, .nan, 4]).isNaN)
        #expect(median([3]) == 3)
        #expect(median([9, 1, 5]) == 5)
        #expect(median([4, 1, 3, 2]) == 2.5)
    }

    @Test("A round that disturbs both sides does not change the ratio")
    func ratios() {
        let floor = [10.0, 100, 20]
        #expect(medianRatio(floor.map { $0 * 2 }, over: floor) == 2)
        // The median of ours over the median of the floor's would differ here.
        #expect(medianRatio([10, 300, 20], over: [10, 100, 40]) == 1)
        // Without a floor no limit can be met.
        #expect(medianRatio([5], over: [0]).isNaN)
        #expect(!Verdict("a", medianRatio([5, 5], over: [0, 5]), atMost: 9).isMet)
    }

    @Test("Percentiles are in microseconds and precise to three digits")
    func percentiles() {
        var latencies = Latencies()
        for microsecond in 1...10_000 { latencies.record(nanoseconds: Int64(microsecond) * 1_000) }
        #expect(latencies.count == 10_000)
        #expect(abs(latencies.percentile(50) - 5_000) < 10)
        #expect(abs(latencies.percentile(99.9) - 9_990) < 20)
        #expect(abs(latencies.maximum - 10_000) < 20)
        #expect(Latencies().percentile(50).isNaN)
        #expect(Latencies().maximum.isNaN)
    }

    @Test("Percentiles of several rounds are medians; the far tail is that of all together")
    func rounds() {
        let rounds = [100, 200, 900].map { microseconds in
            var round = Latencies()
            for _ in 0..<100 { round.record(nanoseconds: Int64(microseconds) * 1_000) }
            return round
        }
        let figures = LatencyFigures(rounds: rounds)
        #expect(abs(figures.p50 - 200) < 1)
        #expect(abs(figures.p99 - 200) < 1)
        #expect(abs(figures.p999 - 900) < 2)
        #expect(abs(figures.max - 900) < 2)
        // A round of which everything was lost has no figures, and if there is no other there are none.
        #expect(abs(LatencyFigures(rounds: rounds + [Latencies(), Latencies()]).p50 - 200) < 1)
        for rounds in [[], [Latencies()]] {
            #expect(
                LatencyFigures(rounds: rounds).json.text
                    == #"{"p50":null,"p90":null,"p99":null,"p999":null,"max":null}"#)
        }
    }

    @Test("The percentile curve rises and stays below one")
    func curve() {
        var latencies = Latencies()
        for value in 1...1_000 { latencies.record(nanoseconds: Int64(value * value)) }
        let curve = latencies.curve
        #expect(curve.count > 10)
        #expect(curve.allSatisfy { $0.share < 1 && $0.share >= 0 })
        #expect(curve.last?.microseconds == latencies.maximum)
        #expect(zip(curve, curve.dropFirst()).allSatisfy { $0.microseconds <= $1.microseconds })
        #expect(Latencies().curve.isEmpty)
    }

    @Test("The slope is that of the line that fits best")
    func slopes() {
        #expect(slope([]) == 0)
        #expect(slope([(1, 5)]) == 0)
        #expect(slope([(1, 5), (1, 9)]) == 0)
        #expect(abs(slope([(0, 1), (1, 3), (2, 5)]) - 2) < 1e-12)
        #expect(abs(slope([(0, 0), (1, 1), (2, 0), (3, 1)]) - 0.2) < 1e-12)
    }

    @Test("Growth is from the first third to the last, not from one value to another")
    func thirds() {
        #expect(firstAndLastThird([]) == nil)
        #expect(firstAndLastThird([1]) == nil)
        #expect(firstAndLastThird([1, 3]).map { [$0.first, $0.last] } == [1, 3])
        #expect(firstAndLastThird([9, 1, 1, 5, 5, 5, 2, 2, 40]).map { [$0.first, $0.last] } == [1, 2])
    }

    @Test("The same seed gives the same moments, and their mean is right")
    func arrivals() {
        var (one, other) = (SplitMix64(seed: 7), SplitMix64(seed: 7))
        let times = (0..<10_000).map { _ in one.exponential(perSecond: 20) }
        #expect(times == (0..<10_000).map { _ in other.exponential(perSecond: 20) })
        #expect(abs(times.reduce(0, +) / 10_000 - 0.05) < 0.002)
        #expect(times.allSatisfy { $0 >= 0 && $0.isFinite })
    }

    @Test("A verdict knows on which side of the target it is")
    func verdicts() {
        #expect(Verdict("a", 1.25, atMost: 1.25).isMet)
        #expect(!Verdict("a", 1.26, atMost: 1.25).isMet)
        #expect(Verdict("a", 0.5, atLeast: 0.5).isMet)
        #expect(!Verdict("a", 0.4, atLeast: 0.5).isMet)
        #expect(Verdict("a", 2, atMost: 1).text == "a 2, target ≤ 1")
        // No value looks as if it met a target that it misses.
        let narrow = Verdict("a", 1.07034, atMost: 1.07)
        #expect(narrow.text == "a 1.0703, target ≤ 1.07")
        #expect(narrow.json.text.contains("\"value\":1.0703"))
        #expect(Verdict("a", 59.999_999, atLeast: 60).text == "a 59.999999, target ≥ 60")
        // A value that was not measured meets no target.
        for verdict in [Verdict("a", nil, atMost: 1), Verdict("a", .infinity, atLeast: 1)] {
            #expect(!verdict.isMet && verdict.outcome == "not measured")
            #expect(verdict.json.text.contains("\"value\":null"))
        }
    }

    @Test("Numbers have no more digits than mean something")
    func numbers() {
        #expect(figure(3) == "3")
        #expect(figure(3.14159) == "3.1")
        #expect(figure(3.14159, digits: 3) == "3.142")
        #expect(figure(.infinity) == "–")
        #expect(JSON.rounded(2.00049).text == "2.0")
    }
}
