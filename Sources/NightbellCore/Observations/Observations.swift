/// The observations of all clients, and what is known of their subjects.
package struct Observations: Sendable, Equatable {
    /// By the client's slot.
    var table = SideTable<[Observation]>()
    /// The position that was reported last; nil: it is unknown.
    var position: Position?
    /// Of the Bluetooth devices that are known to be connected or not.
    var bluetooth: [String: Presence] = [:]
    /// Of the accessories that are known to be attached or not.
    var accessories: [String: Presence] = [:]
    var demand = ObservationDemand()
    /// Which observations are wanted may have changed.
    var isDemandStale = false
    /// When to look again for something to be told, in elapsed time; nil: when something happens.
    var due: Instant?

    package var isEmpty: Bool { table.isEmpty }

    func presence(of subject: Subject) -> Presence? {
        switch subject {
        case .bluetoothDevice(let path): bluetooth[path]
        case .accessory(let name): accessories[name]
        case .location, .region, .characteristic: nil
        }
    }

    mutating func look(at instant: Instant) { due = due.map { min($0, instant) } ?? instant }

    /// Forgets the state of things that are not observed any more, which may change unnoticed.
    mutating func forgetUnobserved() {
        if demand.location == nil { position = nil }
        bluetooth = bluetooth.filter { demand.bluetoothDevices.contains($0.key) }
        accessories = accessories.filter { demand.accessories.contains($0.key) }
    }
}
