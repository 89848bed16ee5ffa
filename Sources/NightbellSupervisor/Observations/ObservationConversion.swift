import NightbellCore
import NightbellWire
import SwiftProtobuf

/// Conversion of observations between the core's terms and those of the wire.
extension Position {
    /// nil: a value is out of its range.
    init?(_ wire: WireOccurrence.Position) {
        self.init(
            latitude: wire.latitudeDegrees, longitude: wire.longitudeDegrees, accuracy: wire.accuracyM)
    }

    /// nil: a value is out of its range.
    init?(_ wire: WireMonitorReport.Location) {
        self.init(
            latitude: wire.latitudeDegrees, longitude: wire.longitudeDegrees, accuracy: wire.accuracyM)
    }

    var wire: WireOccurrence.Position {
        .with {
            $0.latitudeDegrees = latitude
            $0.longitudeDegrees = longitude
            $0.accuracyM = accuracy
        }
    }
}

extension Subject {
    /// nil: it is unknown, or a value is out of its range.
    init?(_ wire: WireObserve) {
        switch wire.subject {
        case .location(let location)?:
            guard let service = LocationService(location) else { return nil }
            self = .location(service)
        case .region(let region)?:
            guard
                let centre = Position(
                    latitude: region.latitudeDegrees, longitude: region.longitudeDegrees, accuracy: 0),
                let region = Region(centre: centre, radius: region.radiusM)
            else { return nil }
            self = .region(region)
        case .bluetoothDevice(let path)?:
            guard Self.isObjectPath(path) else { return nil }
            self = .bluetoothDevice(path)
        case .characteristic(let path)?:
            guard Self.isObjectPath(path) else { return nil }
            self = .characteristic(path)
        case .accessory(let name)?:
            guard Self.isDeviceName(name) else { return nil }
            self = .accessory(name)
        case .transfers(let session)?:
            guard (1...Self.longestPath).contains(session.utf8.count) else { return nil }
            self = .transfers(session: session)
        case .pushes?:
            self = .pushes
        case nil:
            return nil
        }
    }

    /// By the rules of D-Bus, which would end a connection for another one.
    private static func isObjectPath(_ path: String) -> Bool {
        guard path.utf8.first == UInt8(ascii: "/"), path.utf8.count <= longestPath else { return false }
        return path.utf8.dropFirst().split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false)
            .allSatisfy { element in
                !element.isEmpty
                    && element.allSatisfy { byte in
                        switch byte {
                        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"):
                            true
                        default: false
                        }
                    }
            }
    }

    /// The entries of `/dev` that all users can make names in, or that are another file for each process.
    private static let noDevices: Set<Substring> = [
        "shm", "mqueue", "hugepages", "fd", "stdin", "stdout", "stderr",
    ]

    /// Whether this is a name below `/dev` that leads to no other directory, and that no user has made.
    private static func isDeviceName(_ name: String) -> Bool {
        guard name.hasPrefix("/dev/"), name.utf8.count <= longestPath, !name.utf8.contains(0) else {
            return false
        }
        let elements = name.dropFirst("/dev/".count).split(separator: "/", omittingEmptySubsequences: false)
        return elements.allSatisfy { !$0.isEmpty && $0 != "." && $0 != ".." }
            && !elements.prefix(1).contains(where: noDevices.contains)
    }

    func wire(named name: String) -> WireObserve {
        .with {
            $0.name = name
            switch self {
            case .location(let service): $0.location = service.wire
            case .region(let region):
                $0.region = .with {
                    $0.latitudeDegrees = region.centre.latitude
                    $0.longitudeDegrees = region.centre.longitude
                    $0.radiusM = region.radius
                }
            case .bluetoothDevice(let path): $0.bluetoothDevice = path
            case .characteristic(let path): $0.characteristic = path
            case .accessory(let name): $0.accessory = name
            case .transfers(let session): $0.transfers = session
            case .pushes: $0.pushes = .init()
            }
        }
    }
}

extension LocationService {
    fileprivate init?(_ wire: WireObserve.Location) {
        let accuracy = wire.accuracy == 0 ? Self.accuracies.upperBound : wire.accuracy
        guard Self.accuracies.contains(accuracy) else { return nil }
        switch wire.service {
        case .significantChange: self.init(.significantChange)
        case .continuous: self.init(.continuous, distance: wire.distanceM, accuracy: accuracy)
        case .foreground: self.init(.foreground, distance: wire.distanceM, accuracy: accuracy)
        case .unspecified, .UNRECOGNIZED: return nil
        }
    }

    fileprivate var wire: WireObserve.Location {
        .with {
            $0.service =
                switch kind {
                case .significantChange: .significantChange
                case .continuous: .continuous
                case .foreground: .foreground
                }
            if kind != .significantChange {
                $0.distanceM = distance
                $0.accuracy = accuracy
            }
        }
    }
}

extension Occurrence {
    /// nil: there is none, or a value is out of its range.
    init?(_ wire: WireOccurrence) {
        switch wire.happened {
        case .moved(let position)?:
            guard let position = Position(position) else { return nil }
            self = .moved(position)
        case .entered?: self = .entered
        case .exited?: self = .exited
        case .connected(let node)?:
            guard node.utf8.count <= Self.longestNode else { return nil }
            self = .connected(node: node)
        case .disconnected?: self = .disconnected
        case .value(let value)?:
            guard value.count <= Self.longestValue else { return nil }
            self = .value(Array(value))
        case .finished?: self = .finished
        case .pushed(let urgency)?:
            guard let urgency = PushUrgency(urgency) else { return nil }
            self = .pushed(urgency)
        case nil: return nil
        }
    }

    func wire(named name: String = "", isSimulated: Bool = false) -> WireOccurrence {
        .with {
            $0.name = name
            $0.isSimulated = isSimulated
            switch self {
            case .moved(let position): $0.moved = position.wire
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

    /// For watchers.
    var text: String {
        switch self {
        case .moved(let position): "moved to \(position.latitude), \(position.longitude)"
        case .entered: "entered"
        case .exited: "exited"
        case .connected(let node): node.isEmpty ? "connected" : "connected as \(node)"
        case .disconnected: "disconnected"
        case .value(let value): "a value of \(value.count) bytes"
        case .finished: "finished"
        case .pushed(let urgency): "pushed, \(urgency.name) urgency"
        }
    }
}

extension ObservedOccurrence {
    var wire: WireOccurrence { occurrence.wire(named: name, isSimulated: isSimulated) }
}

extension WireClientInfo.Observation {
    init(_ observation: Observation, at now: Instant) {
        self.init()
        observe = observation.subject.wire(named: observation.name)
        guard let latest = observation.latest else { return }
        self.latest = latest.occurrence.wire(named: observation.name, isSimulated: latest.isSimulated)
        latestAgoMs = now.since(latest.at).wireMilliseconds
        isTold = !observation.telling.isDue
    }
}
