import Glibc
package import Simulation

extension SplitMix64 {
    /// The time to the next of events that come independently of each other, so many a second.
    package mutating func exponential(perSecond rate: Double) -> Double {
        -log(1 - Double.random(in: 0..<1, using: &self)) / rate
    }
}
