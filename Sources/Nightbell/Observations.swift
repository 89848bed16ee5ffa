package import NightbellWire
import SwiftProtobuf

/// A thing outside the process that ``Client/observe(_:_:)`` has observed.
public enum Subject: Sendable, Hashable {
    /// The machine is far (500 m by default) from where the client was last told it is; at most every five
    /// minutes. Also after a quit by the user. Needs ``Mode/location``, as the other services.
    case significantLocationChange
    /// The machine has moved by `distance` metres (0: at all), while the client has a process.
    case continuousLocation(distance: UInt32 = 0, accuracy: LocationAccuracy = .exact)
    /// The same while the client is in the foreground.
    case foregroundLocation(distance: UInt32 = 0, accuracy: LocationAccuracy = .exact)
    /// The machine enters or leaves a circle. `latitude`, `longitude`: in degrees; `radius`: in metres, from
    /// 10 to 1,000,000. It has left when it is a tenth of that further out, and 50 m at least. Also after a
    /// quit by the user.
    case region(latitude: Double, longitude: Double, radius: Double)
    /// A Bluetooth device connects or disconnects, by BlueZ's object path. Needs ``Mode/bluetoothCentral``.
    case bluetoothDevice(path: String)
    /// A Bluetooth characteristic notifies, by BlueZ's object path. Needs ``Mode/bluetoothCentral``.
    case characteristic(path: String)
    /// A device is attached or detached, by a path below `/dev` that stays the same, such as
    /// `/dev/serial/by-id/…`. Needs ``Mode/externalAccessory``.
    case accessory(path: String)
    /// All transfers of a session are finished, or one needs credentials. ``TransferSession`` has this
    /// observed. `session`: 1 to 255 bytes.
    case transfers(session: String)
    /// Messages wait for the client at the push service. ``Client/pushEndpoint(_:applicationServerKey:)`` has
    /// this observed.
    case pushes

    package func wire(named name: String) -> WireObserve {
        .with {
            $0.name = name
            switch self {
            case .significantLocationChange:
                $0.location = .with { $0.service = .significantChange }
            case .continuousLocation(let distance, let accuracy):
                $0.location = accuracy.wire(.continuous, distance)
            case .foregroundLocation(let distance, let accuracy):
                $0.location = accuracy.wire(.foreground, distance)
            case .region(let latitude, let longitude, let radius):
                $0.region = .with {
                    $0.latitudeDegrees = latitude
                    $0.longitudeDegrees = longitude
                    $0.radiusM = radius
                }
            case .bluetoothDevice(let path): $0.bluetoothDevice = path
            case .characteristic(let path): $0.characteristic = path
            case .accessory(let path): $0.accessory = path
            case .transfers(let session): $0.transfers = session
            case .pushes: $0.pushes = .init()
            }
        }
    }

    /// nil: it is from a newer supervisor.
    package init?(_ wire: WireObserve) {
        switch wire.subject {
        case .location(let location)?:
            let accuracy = LocationAccuracy(rawValue: location.accuracy) ?? .exact
            switch location.service {
            case .significantChange: self = .significantLocationChange
            case .continuous:
                self = .continuousLocation(distance: location.distanceM, accuracy: accuracy)
            case .foreground:
                self = .foregroundLocation(distance: location.distanceM, accuracy: accuracy)
            case .unspecified, .UNRECOGNIZED: return nil
            }
        case .region(let region)?:
            self = .region(
                latitude: region.latitudeDegrees, longitude: region.longitudeDegrees, radius: region.radiusM)
        case .bluetoothDevice(let path)?: self = .bluetoothDevice(path: path)
        case .characteristic(let path)?: self = .characteristic(path: path)
        case .accessory(let path)?: self = .accessory(path: path)
        case .transfers(let session)?: self = .transfers(session: session)
        case .pushes?: self = .pushes
        case nil: return nil
        }
    }
}

/// How exactly the machine has to be located, in GeoClue's levels.
public enum LocationAccuracy: UInt32, Sendable, Hashable, CaseIterable {
    case country = 1
    case city = 4
    case neighborhood = 5
    case street = 6
    case exact = 8

    fileprivate func wire(_ service: WireObserve.Location.Service, _ distance: UInt32) -> WireObserve.Location
    {
        .with {
            $0.service = service
            $0.distanceM = distance
            $0.accuracy = rawValue
        }
    }
}

/// An event of the subject of an observation. The client is told of the latest occurrence of each.
public struct Occurrence: Sendable, Hashable {
    /// Where the machine is.
    public struct Position: Sendable, Hashable {
        /// Degrees, north positive.
        public var latitude: Double
        /// Degrees, east positive.
        public var longitude: Double
        /// The radius in metres in which the machine is.
        public var accuracy: Double

        public init(latitude: Double, longitude: Double, accuracy: Double) {
            self.latitude = latitude
            self.longitude = longitude
            self.accuracy = accuracy
        }
    }

    public enum Kind: Sendable, Hashable {
        case moved(Position)
        case entered
        case exited
        /// `node`: the device node of an accessory, which has to be opened anew; else empty.
        case connected(node: String)
        case disconnected
        /// The latest value of a characteristic, of at most 512 bytes.
        case value([UInt8])
        /// The transfers of a session.
        case finished
        /// Messages have arrived at the push service, of this urgency at most.
        case pushed(PushUrgency)
    }

    /// The name of the observation.
    public var name: String
    public var kind: Kind
    /// It has not happened: `nightbell simulate` tells of it, for the client's owner or root.
    public var isSimulated: Bool

    public init(_ name: String, _ kind: Kind, isSimulated: Bool = false) {
        self.name = name
        self.kind = kind
        self.isSimulated = isSimulated
    }

    /// nil: it is from a newer supervisor.
    package init?(_ wire: WireOccurrence) {
        let kind: Kind
        switch wire.happened {
        case .moved(let position)?:
            kind = .moved(
                Position(
                    latitude: position.latitudeDegrees, longitude: position.longitudeDegrees,
                    accuracy: position.accuracyM))
        case .entered?: kind = .entered
        case .exited?: kind = .exited
        case .connected(let node)?: kind = .connected(node: node)
        case .disconnected?: kind = .disconnected
        case .value(let value)?: kind = .value(Array(value))
        case .finished?: kind = .finished
        case .pushed(let urgency)?:
            guard let urgency = PushUrgency(urgency) else { return nil }
            kind = .pushed(urgency)
        case nil: return nil
        }
        self.init(wire.name, kind, isSimulated: wire.isSimulated)
    }

    package var wire: WireOccurrence {
        .with {
            $0.name = name
            $0.isSimulated = isSimulated
            switch kind {
            case .moved(let position):
                $0.moved = .with {
                    $0.latitudeDegrees = position.latitude
                    $0.longitudeDegrees = position.longitude
                    $0.accuracyM = position.accuracy
                }
            case .entered: $0.entered = .init()
            case .exited: $0.exited = .init()
            case .connected(let node): $0.connected = node
            case .disconnected: $0.disconnected = .init()
            case .value(let value): $0.value = value.asField
            case .finished: $0.finished = .init()
            case .pushed(let urgency): $0.pushed = urgency.wire
            }
        }
    }
}
