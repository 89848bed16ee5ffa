/// The last reported facts about the machine.
package struct MachineState: Sendable, Equatable {
    package internal(set) var network: NetworkFact?
    /// nil: unknown.
    package internal(set) var isOnBattery: Bool?
    /// The machine is about to sleep.
    package internal(set) var isSleepImminent = false
    package internal(set) var unlockedUsers = Knowledge<Set<UserID>>.unknown

    package init() {}
}

extension Supervision {
    /// Takes note of a fact.
    mutating func learn(_ fact: Fact, at now: Instant, into actions: inout ActionBuffer) {
        switch fact {
        case .network(let network):
            machine.network = network
        case .power(let isOnBattery):
            machine.isOnBattery = isOnBattery
        case .sleepImminent:
            machine.isSleepImminent = true
        case .resumed:
            machine.isSleepImminent = false
        case .unlocked(let users):
            machine.unlockedUsers = users
        }
    }
}
