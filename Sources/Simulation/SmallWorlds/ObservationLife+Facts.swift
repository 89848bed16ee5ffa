package import NightbellCore

/// The known state of the machine around the clients.
struct Facts {
    var position: Position?
    var bluetooth: [String: Presence] = [:]
    var accessories: [String: Presence] = [:]
    /// The number of the last end of each client's transfers, by its index; it outlives supervisors.
    var finishes: [Int: UInt64] = [:]

    /// Two are 111 m apart, the third is 11 km away, and the last says next to nothing.
    static let positions: [Position] = [
        Position(latitude: 0, longitude: 179.999, accuracy: 10),
        Position(latitude: 0, longitude: -180, accuracy: 10),
        Position(latitude: 0, longitude: -179.9, accuracy: 10),
        Position(latitude: 0, longitude: -179.9, accuracy: 100_000),
    ].compactMap(\.self)

    static let device = "/org/bluez/hci0/dev_1"
    static let characteristic = "/org/bluez/hci0/dev_1/service1/char1"
    static let accessory = "/dev/serial/by-id/one"
    static let session = "issues"

    static let subjects: [Subject] =
        [
            .location(LocationService(.significantChange)),
            .location(LocationService(.foreground, distance: 50)),
            .bluetoothDevice(device), .characteristic(characteristic), .accessory(accessory),
            .transfers(session: session),
        ] + positions.prefix(1).compactMap { Region(centre: $0, radius: 1_000) }.map(Subject.region)
}

extension SmallWorld.Client {
    /// Whether it is to be told of this.
    func wants(_ subject: Subject) -> Bool {
        if case .location(let service) = subject, service.kind == .foreground {
            return isAlive && isForeground
        }
        guard !isAlive else { return true }
        return subject.launchesClients && (!isQuit || subject.mode == .location)
    }
}

extension Subject {
    fileprivate var launchesClients: Bool {
        if case .location(let service) = self { service.kind == .significantChange } else { true }
    }
}

extension ObservationLife {
    /// The observations of a client that are reasons to launch it …
    func launchingWatches(_ index: Int) -> [String: Watch] {
        watches[index].filter { $0.value.subject.launchesClients }
    }

    /// … and of these, those that are so after its user has quit it.
    func locationWatches(_ index: Int) -> [String: Watch] {
        launchingWatches(index).filter { $0.value.subject.mode == .location }
    }
}

/// Wakes are counted by their reasons.
extension ObservationLife {
    static let reasons: [(reason: WakeReasons, counter: Counter)] = [
        (.location, .wakesLocation), (.bluetooth, .wakesBluetooth), (.device, .wakesDevice),
        (.transfer, .wakesTransfer),
    ]

    /// Counts those of this turn, delivered or not: a wake that is repeated after a death counts again.
    mutating func countWakes() {
        for case .notify(let id, .wake(let wake)) in world.actions.actions {
            guard let index = world.index(of: id) else { continue }
            for (reason, counter) in Self.reasons where wake.reasons.contains(reason) {
                wakes[index][counter, default: 0] += 1
            }
        }
    }
}

/// Changes in the world, and their consequences by the rules.
extension ObservationLife {
    mutating func change() -> Event {
        let isKnown = !world.random.once(in: 5)
        switch world.random.below(6) {
        case 0, 1:
            let position = Facts.positions[world.random.below(Facts.positions.count)]
            return .fact(.position(isKnown ? position : nil))
        case 2:
            let presence: Presence = world.random.once(in: 2) ? .absent : .present(node: "")
            return .fact(.bluetooth(isKnown ? [Facts.device: presence] : [:]))
        case 3:
            let presence: Presence =
                world.random.once(in: 2) ? .absent : .present(node: "/dev/ttyACM\(world.random.below(2))")
            return .fact(.accessories(isKnown ? [Facts.accessory: presence] : [:]))
        case 4:
            let index = world.random.below(world.clients.count)
            // It may be the same end once more.
            if facts.finishes[index] == nil || world.random.once(in: 2) {
                facts.finishes[index, default: 0] += 1
            }
            mayWait[index] = world.random.once(in: 2)
            return .fact(ended(index))
        default:
            return .fact(.characteristic(Facts.characteristic, [UInt8(world.random.below(200))]))
        }
    }

    func ended(_ index: Int) -> Fact {
        let registration = world.clients[index].registration
        return .transfers(
            EndedTransfers(
                of: registration.user, registration.identifier, session: Facts.session,
                number: facts.finishes[index] ?? 0, mayWait: mayWait[index]))
    }

    package mutating func learn(_ fact: Fact) {
        switch fact {
        case .position(let position): facts.position = position
        case .bluetooth(let devices): facts.bluetooth = devices
        case .accessories(let accessories): facts.accessories = accessories
        case .characteristic(let path, let value):
            for index in watches.indices {
                for (name, watch) in watches[index]
                where watch.subject == .characteristic(path) && world.clients[index].wants(watch.subject) {
                    watches[index][name]?.untold = .value(value)
                }
            }
        case .transfers(let ended):
            for index in watches.indices where world.clients[index].registration.identifier == ended.client {
                for (name, watch) in watches[index]
                where watch.subject == .transfers(session: ended.session) && watch.finish < ended.number {
                    watches[index][name]?.finish = ended.number
                    watches[index][name]?.untold = .finished
                    watches[index][name]?.heldUntil =
                        ended.mayWait ? world.now + world.settings.discretionary.patience : nil
                }
            }
        default: break
        }
        compare()
    }

    /// Finds the differences between what each client knows and the facts.
    mutating func compare() {
        // Nothing is remembered of what no client observes.
        if !isObserved({ $0.mode == .location }) { facts.position = nil }
        if !isObserved({ $0 == .bluetoothDevice(Facts.device) }) { facts.bluetooth = [:] }
        if !isObserved({ $0 == .accessory(Facts.accessory) }) { facts.accessories = [:] }
        for index in watches.indices {
            for (name, watch) in watches[index] where world.clients[index].wants(watch.subject) {
                var watch = watch
                compare(&watch)
                watches[index][name] = watch
            }
        }
    }

    private func isObserved(_ isMeant: (Subject) -> Bool) -> Bool {
        watches.indices.contains { index in
            watches[index].values.contains {
                isMeant($0.subject) && world.clients[index].wants($0.subject)
            }
        }
    }

    private func compare(_ watch: inout Watch) {
        switch watch.subject {
        case .location(let service):
            guard let position = facts.position else { return }
            if let (before, since) = watch.position {
                let distance = position.distance(to: before)
                let isFar =
                    service.kind == .significantChange
                    ? distance > 500 && position.accuracy < 10_000 && world.now.since(since) >= .seconds(300)
                    : distance > 50
                guard isFar else { return }
            }
            watch.position = (position, world.now)
            watch.untold = .moved(position)
        case .region:
            guard let position = facts.position, position.accuracy < 1_000 else { return }
            let isInside = position != Facts.positions[2]
            if let wasInside = watch.isInside, wasInside != isInside {
                watch.untold = isInside ? .entered : .exited
            }
            watch.isInside = isInside
        case .bluetoothDevice(let path):
            comparePresence(&watch, facts.bluetooth[path])
        case .accessory(let name):
            comparePresence(&watch, facts.accessories[name])
        case .characteristic, .transfers, .pushes:
            break
        }
    }

    private func comparePresence(_ watch: inout Watch, _ presence: Presence?) {
        guard let presence, presence != watch.presence else { return }
        if watch.presence != nil {
            watch.untold =
                switch presence {
                case .absent: .disconnected
                case .present(let node): .connected(node: node)
                }
        }
        watch.presence = presence
    }
}
