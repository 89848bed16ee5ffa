import NightbellProfiles
import Simulation

/// Typical traffic of a protocol: noise, messages, and damaged forms of both.
struct Shape: Sendable {
    typealias Maker = @Sendable (inout SplitMix64) -> [UInt8]

    let name: String
    let settings: ProfileSettings
    var delegated: DelegatedValues = .nothing
    /// Each must be absorbed where a message may begin.
    let noise: [Maker]
    /// No part of these may be absorbed.
    let significant: [Maker]
    /// The messages that answer a ping, given the delegated state at the time.
    var answers: @Sendable ([UInt8], DelegatedValues) -> [[UInt8]] = { _, _ in [] }

    func profile(over transport: Transport = .stream) throws -> Profile {
        try Profile(settings, over: transport)
    }
}

extension SplitMix64 {
    /// Letters and digits.
    mutating func word(_ lengths: ClosedRange<Int> = 1...12) -> String {
        let letters = Array("abcdefghijklmnopqrstuvwxyz0123456789")
        return String(
            (0..<(lengths.lowerBound + below(lengths.count))).map { _ in letters[below(letters.count)] })
    }

    mutating func bytes(_ count: Int) -> [UInt8] {
        (0..<count).map { _ in UInt8(truncatingIfNeeded: next()) }
    }

    mutating func one<Element>(of elements: [Element]) -> Element {
        elements[below(elements.count)]
    }

    mutating func make(_ makers: [Shape.Maker]) -> [UInt8] {
        let maker = one(of: makers)
        return maker(&self)
    }

    /// The bytes with some damage, which may leave them unchanged.
    mutating func damaged(_ bytes: [UInt8]) -> [UInt8] {
        guard !bytes.isEmpty else { return [0] }
        var bytes = bytes
        let index = below(bytes.count)
        switch below(8) {
        case 0: bytes[index] ^= 1 << UInt8(below(8))
        case 1: bytes[index] = one(of: [0, 10, 13, 32, 34, 39, 58, 59, 60, 62, 127, 255])
        case 2: bytes.remove(at: index)
        case 3: bytes.insert(one(of: [0, 10, 13, 32, 44, 59, 60, 255]), at: index)
        case 4: bytes.removeLast(bytes.count - index - 1)
        case 5: bytes.removeFirst(index)
        case 6: bytes.insert(contentsOf: bytes[index..<min(bytes.count, index + 1 + below(20))], at: index)
        case _: bytes += self.bytes(1 + below(6))
        }
        return bytes.isEmpty ? [0] : bytes
    }
}

/// A maker of texts with CRLF line ends.
func maker(_ make: @escaping @Sendable (inout SplitMix64) -> String) -> Shape.Maker {
    { random in lines(make(&random)) }
}
