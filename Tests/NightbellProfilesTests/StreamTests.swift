import Foundation
import NightbellProfiles
import Simulation
import Testing

/// Random traffic in the shape of each protocol, cut at random: absorbed bytes and those read by the owner
/// add up to the sent ones, and the cuts make no difference.
///
/// `NIGHTBELL_PROFILE_BYTES` is the number of bytes for each profile instead of a few.
@Suite("Streams, however they are cut")
struct StreamTests {
    static let total =
        ProcessInfo.processInfo.environment["NIGHTBELL_PROFILE_BYTES"].flatMap(Int.init) ?? 20_000
    static let bytesPerSeed = 4_000

    static var names: [String] { get throws { try Shape.all.map(\.name) } }

    @Test("Bytes are neither lost nor duplicated, and cuts change nothing", arguments: try names)
    func differential(name: String) throws {
        let shape = try #require(try Shape.all.first { $0.name == name })
        var (seed, sent) = (UInt64(0), 0)
        while sent < Self.total {
            do {
                sent += try rehearse(shape, seed: seed)
            } catch {
                Issue.record("\(name), seed \(seed): \(error)")
                return
            }
            seed += 1
        }
    }

    /// A part of the stream between two moments of silence.
    private struct Part {
        var bytes: [UInt8] = []
        var boundaries: [Int] = []
        var startsWithPing = false
    }

    /// The expected result of a message.
    private enum Fate { case absorbed, left, either }

    private func rehearse(_ shape: Shape, seed: UInt64) throws -> Int {
        var random = SplitMix64(seed: seed)
        // Written while it is replayed in whole parts: answers depend on pings, which depend on all earlier
        // parts.
        var whole = ProfileFixture(try shape.profile(), delegating: shape.delegated)
        var parts: [Part] = []
        while whole.head < Self.bytesPerSeed {
            var part = Part()
            var fates: [Fate] = []
            func add(_ message: [UInt8], _ fate: Fate) {
                part.bytes += message
                part.boundaries.append(part.bytes.count)
                fates.append(fate)
            }
            if random.once(in: 2) {
                part.startsWithPing = true
                let ping = whole.ping()
                if let ping, !random.once(in: 5) {
                    for answer in shape.answers(ping, whole.delegatedNow) { add(answer, .absorbed) }
                }
            }
            for _ in 0..<(1 + random.below(6)) {
                switch random.below(10) {
                case 0..<5 where !shape.noise.isEmpty: add(random.make(shape.noise), .absorbed)
                case 0..<8: add(random.make(shape.significant), .left)
                case _: add(random.damaged(random.make(shape.noise + shape.significant)), .either)
                }
            }
            let start = whole.head
            try whole.play(part.bytes, boundaries: part.boundaries) { $0 }
            try check(part, fates, from: start, whole.outcome)
            parts.append(part)
        }
        let expected = try whole.finish()
        for _ in 0..<2 {
            let outcome = try replay(shape, parts, &random)
            try expect(outcome == expected, "cut:\n\(outcome)\nwhole:\n\(expected)")
        }
        return whole.head
    }

    private func replay(_ shape: Shape, _ parts: [Part], _ random: inout SplitMix64) throws
        -> ProfileFixture.Outcome
    {
        var cut = ProfileFixture(try shape.profile(), delegating: shape.delegated)
        for part in parts {
            if part.startsWithPing { _ = cut.ping() }
            let most = random.one(of: [1, 3, 40, 400])
            try cut.play(part.bytes, boundaries: part.boundaries) { _ in 1 + random.below(most) }
        }
        return try cut.finish()
    }

    /// Every message had its expected result, up to an unknown one.
    private func check(_ part: Part, _ fates: [Fate], from start: Int, _ outcome: ProfileFixture.Outcome)
        throws
    {
        var lower = start
        for (end, fate) in zip(part.boundaries, fates) {
            let range = lower..<(start + end)
            lower = range.upperBound
            // The latest ranges are those of this part.
            let absorbed = outcome.absorbed.reversed().prefix { $0.upperBound > start }
            switch fate {
            case .absorbed:
                let isAbsorbed = absorbed.contains {
                    $0.lowerBound <= range.lowerBound && range.upperBound <= $0.upperBound
                }
                try expect(isAbsorbed, "woken for noise at \(range): \(content(part, range, start))")
            case .left:
                let isLeft = absorbed.allSatisfy { !$0.overlaps(range) }
                try expect(isLeft, "absorbed a message at \(range): \(content(part, range, start))")
            case .either:
                return
            }
        }
    }

    private func content(_ part: Part, _ range: Range<Int>, _ start: Int) -> String {
        text(Array(part.bytes[(range.lowerBound - start)..<(range.upperBound - start)])).debugDescription
    }

    private func expect(_ condition: Bool, _ text: @autoclosure () -> String) throws {
        if !condition { throw ProfileFixture.Broken(description: text()) }
    }

    @Test(
        "Datagrams: noise is absorbed, messages are left, damaged ones cause no error",
        arguments: ["sip", "stun", "bytes"])
    func datagrams(name: String) throws {
        let shape = try #require(try Shape.all.first { $0.name == name })
        var random = SplitMix64(seed: 1)
        var desk = Desk(try shape.profile(over: .datagram))
        for _ in 0..<(Self.total / 100) {
            let noise = random.make(shape.noise)
            // Requests of a stream have a Via that does not fit.
            if name != "sip" {
                #expect(desk.inspect(noise).0 == .noise(length: noise.count, desk.inspect(noise).0.kind))
            }
            #expect(
                desk.inspect(random.make(shape.significant.dropLast(name == "sip" ? 3 : 0) + [])).0
                    .isSignificant)
            _ = desk.inspect(random.damaged(noise))
            _ = desk.inspect(random.damaged(lines(text(noise).replacing("/TCP", with: "/UDP"))))
        }
    }
}

extension Verdict {
    fileprivate var kind: Noise {
        if case .noise(_, let noise) = self { noise } else { .filler }
    }
}
