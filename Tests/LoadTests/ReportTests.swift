import Glibc
import Presentation
import Testing

@testable import LoadTester

@Suite("Reports of load runs")
struct ReportTests {
    private func points(_ count: Int) -> [Chart.Point] { (0..<count).map { .init(x: Double($0), y: 1) } }

    private func drawn(_ points: [Chart.Point]) -> [Substring] {
        let chart = Chart(
            title: "t", horizontal: "x", vertical: "y", style: .lines,
            series: [.init(name: "", points: points)])
        let line = SVG(chart).figure.split(separator: "points=\"").last?.prefix { $0 != "\"" } ?? ""
        return line.split(separator: " ")
    }

    @Test("A line has a limited number of points, and still ends at its end")
    func thinning() {
        #expect(drawn(points(1_000)).count == 1_000)
        for count in [1_001, 50_000] {
            let callPlan = drawn(points(count))
            #expect((500...1_001).contains(callPlan.count))
            #expect(callPlan.last == drawn(points(2)).last && callPlan.first == drawn(points(2)).first)
        }
    }

    @Test("Values that were not measured are in no line")
    func gaps() {
        let callPlan = drawn(points(3) + [.init(x: 3, y: .nan), .init(x: 4, y: 1)])
        #expect(callPlan.count == 4 && callPlan.allSatisfy { !$0.contains("–") })
    }

    @Test("Each call is either answered, failed, lost or not placed")
    func calls() {
        var results = CallsResults(
            settings: .init(
                suspension: .signal, transport: .tcp, clients: 1, calls: 8, rate: 1, meanLength: .seconds(1),
                seed: 1))
        let due = ContinuousClock.now
        for call in 1...7 { results.notePlaced("\(call)", due: due) }
        for call in 1...4 { results.noteAnswered("\(call)", at: due + .milliseconds(3)) }
        results.noteAnswered("4", at: due + .seconds(3))
        results.noteEnded("1")
        results.noteFailed("2")
        results.noteFailed("5")
        results.noteFailed("5")
        results.noteEnded("unknown")
        #expect(!results.areAllOver)
        results.finishCalls()
        // The 3rd and the 4th were answered and are not over, the 6th and the 7th were never answered.
        #expect((results.answered, results.failed, results.lost, results.notPlaced) == (4, 1, 2, 1))
        #expect(results.notEnded == 3 && results.mostConcurrent == 7)
        #expect(results.answerDelay.count == 4)
        #expect(results.verdicts.filter { !$0.isMet }.count == 4)
    }

    // MARK: Offload

    private func side(_ heard: [Int], sent: Int, answered: Int) -> OffloadResults.Side {
        var side = OffloadResults.Side()
        side.processorNanoseconds = 1_000_000
        side.noteHeard(heard.map { $0 / 2 }, later: heard, intervals: 2)
        (side.sent, side.answered) = (sent, answered)
        return side
    }

    private func offload(_ ours: OffloadResults.Side) -> OffloadResults {
        var results = OffloadResults(
            settings: .init(suspension: .signal, sockets: 3, clients: 1, intervalSeconds: 1, intervals: 2))
        (results.ours, results.floor) = (ours, side([2, 2, 2], sent: 6, answered: 6))
        return results
    }

    @Test("Pings that are not sent are missed, however many others there are")
    func missingPings() {
        let right = offload(side([2, 2, 3], sent: 6, answered: 6))
        #expect(right.ours.missing == 0 && right.verdicts.allSatisfy(\.isMet))
        #expect(right.ratio != nil)
        for (heard, missing) in [([0, 0, 0], 6), ([3, 3, 1], 1), ([9, 0, 9], 2)] {
            let results = offload(side(heard, sent: 6, answered: 6))
            #expect(results.ours.missing == missing)
            #expect(results.ratio == nil)
            #expect(results.verdicts.filter { !$0.isMet }.count == 2)
        }
    }

    @Test("Without pings there is no ratio")
    func noPings() {
        let nothing = offload(side([0, 0, 0], sent: 0, answered: 0))
        #expect(nothing.ratio == nil && nothing.ours.microsecondsPerPing == nil)
        #expect(nothing.json.text.contains(#""ratio":{"cpu":null}"#))
        var noFloor = offload(side([2, 2, 2], sent: 6, answered: 6))
        noFloor.floor = OffloadResults.Side()
        #expect(noFloor.ratio == nil && noFloor.verdicts.first?.outcome == "not measured")
    }

    // MARK: Soak

    private func soak(_ descriptors: [Int]) throws -> SoakResults {
        var results = SoakResults(
            settings: .init(suspension: .signal, transport: .unix, clients: 2, minutes: 1, seed: 1))
        var figures = try ProcessFigures(getpid())
        for (place, count) in descriptors.enumerated() {
            figures.openDescriptors = count
            results.cycles.append(
                .init(seconds: Double(place), figures: figures, latency: place == 1 ? .nan : 50))
        }
        return results
    }

    @Test("A median between two samples is no leaked descriptor, and a whole one is")
    func descriptors() throws {
        // The first fifth does not count, and a third is of an even number.
        #expect(try soak([9, 10, 10, 10, 10, 10, 11]).descriptorDrift == 0)
        #expect(try soak([9, 10, 10, 10, 10, 11, 11]).descriptorDrift == 1)
        #expect(try soak([10, 10, 10]).latencyDrift == 1)
    }

    @Test("A cycle of a soak keeps next to nothing")
    func cycle() { #expect(MemoryLayout<SoakResults.Cycle>.size <= 96) }

    @Test("A sleeper that is called in a soak has no keep-alive that would hide a lost wake")
    func soakRoles() {
        let options = SleeperOptions(keepAlive: (3, 9), keepsHalfAlive: true)
        for clients in 1...5 {
            let called = Set(SoakRun.called(clients))
            #expect(!called.isEmpty)
            for index in 0..<clients { #expect(options.hasKeepAlive(index) != called.contains(index)) }
        }
        #expect(SleeperOptions(keepAlive: (3, 9)).hasKeepAlive(0) && !SleeperOptions().hasKeepAlive(1))
    }
}
