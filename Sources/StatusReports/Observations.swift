import Nightbell
import Presentation

extension ClientInfo.Observation {
    var json: JSON {
        [
            "name": .string(name), "subject": .string(subject.words),
            "latest": latest.map { .string($0.words) } ?? .null,
            "latest_ago_ms": latestAgo.map(JSON.milliseconds) ?? .null,
            "is_simulated": .bool(latest?.isSimulated ?? false), "is_told": .bool(isTold),
            "waits_for": pushObstacle.map { .string($0.rawValue) } ?? .null,
        ]
    }

    /// For people.
    var sentence: String {
        let observed = "\(name): \(subject.words)"
        guard let latest, let latestAgo else { return observed }
        let simulated = latest.isSimulated ? " (simulated)" : ""
        return "\(observed), \(latest.words)\(simulated) \(Human.duration(latestAgo)) ago"
            + (isTold ? "" : ", not told yet") + (pushObstacle.map { ": \($0.words)" } ?? "")
    }
}

extension ClientInfo.Observation.PushObstacle {
    fileprivate var words: String {
        switch self {
        case .underWay: "it handles others"
        case .failed: "it has just failed to handle them"
        case .tooMany: "it was told as often as it may be in an hour"
        case .conditions: "they wait for power, for a fuller battery, or for a network that is not metered"
        }
    }
}

extension Subject {
    fileprivate var words: String {
        switch self {
        case .significantLocationChange: "significant location changes"
        case .continuousLocation(let distance, _): "location, each \(distance) m"
        case .foregroundLocation(let distance, _): "location in the foreground, each \(distance) m"
        case .region(let latitude, let longitude, let radius):
            "region of \(radius) m around \(latitude), \(longitude)"
        case .bluetoothDevice(let path): "Bluetooth device \(path)"
        case .characteristic(let path): "Bluetooth characteristic \(path)"
        case .accessory(let path): "accessory \(path)"
        case .transfers(let session): "transfers of session \(session)"
        case .pushes: "pushes"
        }
    }
}

extension Occurrence {
    fileprivate var words: String {
        switch kind {
        case .moved(let position): "moved to \(position.latitude), \(position.longitude)"
        case .entered: "entered"
        case .exited: "exited"
        case .connected(let node): node.isEmpty ? "connected" : "connected as \(node)"
        case .disconnected: "disconnected"
        case .value(let value): "a value of \(value.count) bytes"
        case .finished: "finished"
        case .pushed(let urgency): "pushed, \(urgency.rawValue) urgency"
        }
    }
}
