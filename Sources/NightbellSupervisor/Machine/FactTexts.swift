import NightbellCore

extension Fact {
    /// Whether it is about the subject of an observation, which is only for its clients to know.
    var isObserved: Bool {
        switch self {
        case .position, .bluetooth, .characteristic, .accessories, .transfers, .pushes, .pushServiceChanged,
            .notifications:
            true
        case .network, .power, .sleepImminent, .resumed, .wallClock, .clock, .shortage, .unlocked, .media,
            .discretionaryTransfers:
            false
        }
    }

    /// For watchers.
    var text: String {
        switch self {
        case .network(let network?):
            "network \(network.isUp ? "up" : "down")" + (network.isMetered == true ? ", metered" : "")
        case .network(nil): "network unknown"
        case .power(let isOnBattery, let isLow):
            (isOnBattery.map { $0 ? "on battery" : "on mains" } ?? "power unknown")
                + (isLow == true ? ", battery low" : "")
        case .sleepImminent(let isDelayed): "about to sleep" + (isDelayed ? ", delayed" : "")
        case .resumed: "awake"
        case .wallClock, .clock: "the local time has changed"
        case .shortage(let isShort): isShort ? "little memory or processor time" : "enough memory and time"
        case .unlocked(.known(let users)):
            "unlocked: " + users.sorted().map { "\($0)" }.joined(separator: ", ")
        case .unlocked(.unknown), .unlocked(.unavailable): "unlocked users unknown"
        case .position(let position):
            position.map { "at \($0.latitude), \($0.longitude)" } ?? "position unknown"
        case .bluetooth(let devices): "Bluetooth: " + Self.text(of: devices)
        case .characteristic(let path, let value): "\(path) has notified \(value.count) bytes"
        case .accessories(let accessories): "accessories: " + Self.text(of: accessories)
        case .pushServiceChanged: "the push service has gone or come"
        case .pushes(let waiting):
            "pushes for \(waiting.client): " + (waiting.urgency.map { "\($0)" } ?? "none")
        case .discretionaryTransfers(let user, let waits):
            "transfers of uid \(user) " + (waits ? "wait" : "wait no longer") + " for a good moment"
        case .transfers(let ended): "the transfers \(ended.session) of \(ended.client) are finished"
        case .media(let user, .known(let media)):
            media.streaming.map { "\($0.count) clients of uid \(user) stream" }
                ?? "\(media.playing.count) clients of uid \(user) say that they play (MPRIS)"
        case .media(let user, .unknown), .media(let user, .unavailable): "media of uid \(user) unknown"
        case .notifications(let user, let fact):
            switch fact {
            case .server(let server, _):
                "notification server of uid \(user) " + (server == nil ? "missing" : "found")
            case .shown(let number, _, _): "notification \(number) of uid \(user) shown"
            case .refused(let number, _): "notification \(number) of uid \(user) refused"
            case .closed(let id): "notification \(id) of uid \(user) closed"
            case .withdrawn(let number): "notification \(number) of uid \(user) withdrawn"
            case .activated(let id, _, _): "notification \(id) of uid \(user) activated"
            }
        }
    }

    private static func text(of devices: [String: Presence]) -> String {
        guard !devices.isEmpty else { return "unknown" }
        return devices.sorted { $0.key < $1.key }.map { name, presence in
            name + (presence == .absent ? " absent" : " present")
        }.joined(separator: ", ")
    }
}
