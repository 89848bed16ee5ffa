/// The observations of all clients, and what is known of their subjects.
package struct Observations: Sendable, Equatable {
    /// By the client's slot.
    var table = SideTable<[Observation]>()
    /// The slots of the clients that observe a device or characteristic. The order of the subjects has no
    /// effect.
    private(set) var observers: [Subject: [UInt32]] = [:]
    /// The position that was reported last; nil: it is unknown.
    var position: Position?
    /// Of the Bluetooth devices that are known to be connected or not.
    var bluetooth: [String: Presence] = [:]
    /// Of the accessories that are known to be attached or not.
    var accessories: [String: Presence] = [:]

    /// A share in the demand.
    enum Wish: Sendable, Hashable {
        case location(ObservationDemand.Location)
        case path(Subject)
    }

    /// The wishes of each client at present, by its slot …
    private var wishes = SideTable<[Wish]>()
    /// … and how many there are of each. The order has no effect.
    private var counts: [Wish: Int] = [:]
    /// There is a new wish, or the last one of its kind has gone.
    private var isDemandStale = false
    private(set) var demand = ObservationDemand()
    /// The slots of clients with wishes that may have changed.
    var unsettled: Set<UInt32> = []

    /// The slots of clients to be looked at when `due`: facts or their states have changed, or they are to be
    /// told.
    var changed: Set<UInt32> = []
    /// The slots of clients with occurrences that can wait.
    var held: Set<UInt32> = []
    /// The memory of pushes of clients that have ended their observation, by their slots.
    var formerPushes = SideTable<PushMemory>()
    /// When to look again for something to be told, in elapsed time; nil: when something happens.
    private(set) var due: Instant?
    /// When a movement is old enough to be told, in elapsed time.
    var movementDue: Instant?

    package var isEmpty: Bool { table.isEmpty }

    func presence(of subject: Subject) -> Presence? {
        switch subject {
        case .bluetoothDevice(let path): bluetooth[path]
        case .accessory(let name): accessories[name]
        case .location, .region, .characteristic, .transfers, .pushes: nil
        }
    }

    mutating func look(at instant: Instant) { due = due.map { min($0, instant) } ?? instant }

    mutating func look(atClientIn slot: UInt32, at instant: Instant) {
        changed.insert(slot)
        look(at: instant)
    }

    /// Begins to look at clients: those that are to be looked at.
    mutating func takeChanged() -> Set<UInt32> {
        due = nil
        defer { changed = [] }
        return changed
    }

    /// Replaces the observations of the client in a slot.
    mutating func replace(_ slot: UInt32, with own: [Observation]) {
        if table.contains(slot) {
            for observation in table[slot] where observation.subject.pathKind != nil {
                observers[observation.subject]?.removeAll { $0 == slot }
                if observers[observation.subject]?.isEmpty == true { observers[observation.subject] = nil }
            }
        }
        for observation in own where observation.subject.pathKind != nil {
            if observers[observation.subject]?.last != slot {
                observers[observation.subject, default: []].append(slot)
            }
        }
        if own.isEmpty { table.remove(slot) } else { table.insert(own, at: slot) }
        unsettled.insert(slot)
    }

    // MARK: The demand

    /// Replaces the wishes of the client in a slot.
    mutating func replaceWishes(_ slot: UInt32, with own: [Wish]) {
        let before = wishes.contains(slot) ? wishes[slot] : []
        guard own != before else { return }
        for wish in own {
            counts[wish, default: 0] += 1
            if counts[wish] == 1 { isDemandStale = true }
        }
        for wish in before {
            counts[wish, default: 0] -= 1
            guard counts[wish] == 0 else { continue }
            counts[wish] = nil
            isDemandStale = true
        }
        if own.isEmpty { wishes.remove(slot) } else { wishes.insert(own, at: slot) }
    }

    mutating func updateDemand() {
        guard isDemandStale else { return }
        isDemandStale = false
        var new = ObservationDemand()
        for wish in counts.keys {
            switch wish {
            case .location(let location): new.add(location)
            case .path(.bluetoothDevice(let path)): new.bluetoothDevices.append(path)
            case .path(.characteristic(let path)): new.characteristics.append(path)
            case .path(.accessory(let name)): new.accessories.append(name)
            case .path(.location), .path(.region), .path(.transfers), .path(.pushes): break
            }
        }
        new.bluetoothDevices.sort()
        new.characteristics.sort()
        new.accessories.sort()
        new.revision = demand.revision
        guard new != demand else { return }
        new.revision += 1
        demand = new
        forgetUnobserved()
    }

    /// Forgets the state of things that are not observed any more, which may change unnoticed.
    mutating func forgetUnobserved() {
        if demand.location == nil { position = nil }
        bluetooth = bluetooth.filter { counts[.path(.bluetoothDevice($0.key))] != nil }
        accessories = accessories.filter { counts[.path(.accessory($0.key))] != nil }
    }
}

extension ObservationDemand {
    fileprivate mutating func add(_ wish: Location) {
        guard let known = location else { return location = wish }
        location = Location(
            accuracy: max(known.accuracy, wish.accuracy), distance: min(known.distance, wish.distance))
    }
}
