import NightbellCore

/// A small seeded generator (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
package struct SplitMix64: RandomNumberGenerator, Sendable {
    private var state: UInt64

    package init(seed: UInt64) {
        state = seed
    }

    package mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    /// True once in `times` on average.
    package mutating func once(in times: Int) -> Bool {
        below(times) == 0
    }

    /// A number from 0 up to, not including, `limit`.
    package mutating func below(_ limit: Int) -> Int {
        Int(next().multipliedFullWidth(by: UInt64(limit)).high)
    }

    package mutating func duration(upTo limit: Duration) -> Duration {
        .nanoseconds(Int64.random(in: 0...limit.nanoseconds, using: &self))
    }

    /// A random element; `nil` if there is none.
    mutating func pick<Element>(_ elements: [Element]) -> Element? {
        elements.isEmpty ? nil : elements[below(elements.count)]
    }
}
