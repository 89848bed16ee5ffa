/// A thing outside that a client is to be woken for.
package enum Subject: Sendable, Hashable {
    case location(LocationService)
    case region(Region)
    /// That a remote Bluetooth device connects and disconnects: its object path.
    case bluetoothDevice(String)
    /// The notifications of a remote Bluetooth characteristic: its object path.
    case characteristic(String)
    /// That a device is attached and detached: its name below `/dev`.
    case accessory(String)
    /// That all transfers of the client's session with this identifier are finished, or that one needs
    /// credentials.
    case transfers(session: String)
    /// That messages wait for the client at the push service.
    case pushes

    package static let longestPath = 255

    /// Empty: none is needed.
    package var mode: Modes {
        switch self {
        case .location, .region: .location
        case .bluetoothDevice, .characteristic: .bluetoothCentral
        case .accessory: .externalAccessory
        case .transfers, .pushes: []
        }
    }

    /// The name of the client library's observation of something that comes from elsewhere, and may come for a
    /// client that does not run; nil: it is of another kind.
    package var usualName: String? {
        switch self {
        case .transfers(let session): "transfers:\(session)"
        case .pushes: "nightbell.pushes"
        case .location, .region, .bluetoothDevice, .characteristic, .accessory: nil
        }
    }

    var reason: WakeReasons {
        switch self {
        case .location, .region: .location
        case .bluetoothDevice, .characteristic: .bluetooth
        case .accessory: .device
        case .transfers: .transfer
        case .pushes: .push
        }
    }

    /// Whether it wakes a client that is suspended.
    var wakes: Bool {
        switch self {
        case .location(let service): service.kind != .foreground
        case .region, .bluetoothDevice, .characteristic, .accessory, .transfers, .pushes: true
        }
    }

    /// The kinds of objects that the monitor of the machine observes by their paths.
    enum PathKind: Sendable, Hashable {
        case bluetoothDevice
        case characteristic
        case accessory
    }

    /// nil: the monitor observes the location for it, or nothing.
    var pathKind: PathKind? {
        switch self {
        case .location, .region, .transfers, .pushes: nil
        case .bluetoothDevice: .bluetoothDevice
        case .characteristic: .characteristic
        case .accessory: .accessory
        }
    }

    /// Whether it also launches a client without a process.
    var launches: Bool {
        switch self {
        case .location(let service): service.kind == .significantChange
        case .region, .bluetoothDevice, .characteristic, .accessory, .transfers, .pushes: true
        }
    }

    /// Whether such a thing can happen to it.
    func permits(_ occurrence: Occurrence) -> Bool {
        switch (self, occurrence) {
        case (.location, .moved), (.region, .entered), (.region, .exited), (.characteristic, .value): true
        case (.transfers, .finished), (.pushes, .pushed): true
        case (.bluetoothDevice, .connected), (.bluetoothDevice, .disconnected): true
        case (.accessory, .connected), (.accessory, .disconnected): true
        default: false
        }
    }
}

/// How a client wants to be told of the machine's movements.
package struct LocationService: Sendable, Hashable {
    package enum Kind: UInt8, Sendable, Hashable, CaseIterable {
        /// The machine is far from where it was told to be last. Distance and accuracy are those of the
        /// settings.
        case significantChange = 1
        /// All movements, while the client has a process.
        case continuous = 2
        /// All movements, while the client is in the foreground.
        case foreground = 3
    }

    package var kind: Kind
    /// The shortest movement to be told of, in metres; 0: any.
    package var distance: UInt32
    /// GeoClue's accuracy level, which is from 1 (country) to 8 (exact).
    package var accuracy: UInt32

    package static let accuracies: ClosedRange<UInt32> = 1...8

    package init(_ kind: Kind, distance: UInt32 = 0, accuracy: UInt32 = 8) {
        self.kind = kind
        self.distance = distance
        self.accuracy = accuracy
    }
}

/// An event of a subject.
package enum Occurrence: Sendable, Hashable {
    case moved(Position)
    case entered
    case exited
    /// `node`: the device node of an accessory.
    case connected(node: String)
    case disconnected
    /// The latest value of a characteristic.
    case value([UInt8])
    /// The transfers of a session.
    case finished
    /// Messages of this urgency, at most, have arrived at the push service.
    case pushed(PushUrgency)

    /// In bytes.
    package static let longestNode = 255
    package static let longestValue = 512
}

/// A subject that a client has asked to be told of.
package struct Observation: Sendable, Equatable {
    /// The known state of the subject. An occurrence is a difference to this.
    package enum Known: Sendable, Equatable {
        case position(Position, at: Instant)
        case inside(Bool)
        case presence(Presence)
        /// The number of the last end of a session that was reported.
        case finish(UInt64)
    }

    /// The latest occurrence.
    package struct Latest: Sendable, Equatable {
        package var occurrence: Occurrence
        /// In elapsed time.
        package var at: Instant
        package var isSimulated: Bool
        /// A client that sleeps need not be woken for it before, in elapsed time.
        package var heldUntil: Instant?

        package init(
            _ occurrence: Occurrence, at: Instant, isSimulated: Bool = false, heldUntil: Instant? = nil
        ) {
            self.occurrence = occurrence
            self.at = at
            self.isSimulated = isSimulated
            self.heldUntil = heldUntil
        }
    }

    /// Whether the client was told of the latest occurrence.
    package enum Telling: Sendable, Equatable {
        case pending
        /// It was told, perhaps, by this wake, which is being repeated.
        case repeating(UInt64)
        /// By this wake; 0: there is nothing to tell.
        case told(UInt64)

        package var isDue: Bool {
            switch self {
            case .pending, .repeating: true
            case .told: false
            }
        }

        var isRepeating: Bool { if case .repeating = self { true } else { false } }
    }

    /// Chosen by the client.
    package let name: String
    package let subject: Subject
    package var known: Known?
    package var latest: Latest?
    package var telling = Telling.told(0)
    /// Of pushes only.
    package var push = PushMemory()

    package static let longestName = 64

    package init(name: String, _ subject: Subject) {
        self.name = name
        self.subject = subject
    }
}

/// Whether a device is connected or attached.
package enum Presence: Sendable, Hashable {
    case absent
    /// `node`: the device node of an accessory, else empty.
    case present(node: String)

    var occurrence: Occurrence {
        switch self {
        case .absent: .disconnected
        case .present(let node): .connected(node: node)
        }
    }
}

/// An occurrence that a client is told of.
package struct ObservedOccurrence: Sendable, Equatable {
    package var name: String
    package var occurrence: Occurrence
    package var isSimulated: Bool

    package init(name: String, occurrence: Occurrence, isSimulated: Bool) {
        self.name = name
        self.occurrence = occurrence
        self.isSimulated = isSimulated
    }
}

/// The things to be observed for all clients together.
package struct ObservationDemand: Sendable, Equatable {
    package struct Location: Sendable, Hashable {
        /// The best accuracy level that a client wants.
        package var accuracy: UInt32
        /// The shortest movement to be reported, in metres.
        package var distance: UInt32
    }

    package var location: Location?
    /// Sorted, as the others.
    package var bluetoothDevices: [String] = []
    package var characteristics: [String] = []
    package var accessories: [String] = []
    /// Counts the changes: what was not observed for a moment has to be reported anew.
    package var revision: UInt64 = 0

    package init() {}

    var needs: FactNeeds {
        var needs: FactNeeds = []
        if location != nil { needs.insert(.location) }
        if !bluetoothDevices.isEmpty || !characteristics.isEmpty { needs.insert(.bluetooth) }
        if !accessories.isEmpty { needs.insert(.devices) }
        return needs
    }
}
