import Glibc
package import Simulation

extension SplitMix64 {
    /// The time until the next of independent events with this mean rate, in seconds.
    package mutating func exponential(perSecond rate: Double) -> Double {
        -log(1 - Double.random(in: 0..<1, using: &self)) / rate
    }
}
