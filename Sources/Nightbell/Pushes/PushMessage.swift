package import NightbellWire

/// How soon a push has to be handled, by the words of its sender (RFC 8030, section 5.3).
public enum PushUrgency: String, Sendable, Hashable, CaseIterable {
    /// On power and on a network that is not metered.
    case veryLow = "very-low"
    /// On power, or on such a network and on a battery that is not low.
    case low
    /// On power, or on a battery that is not low.
    case normal
    /// At any time.
    case high

    package var wire: WirePushUrgency {
        switch self {
        case .veryLow: .veryLow
        case .low: .low
        case .normal: .normal
        case .high: .high
        }
    }

    /// nil: there is none, or it is from a newer supervisor.
    package init?(_ wire: WirePushUrgency) {
        switch wire {
        case .veryLow: self = .veryLow
        case .low: self = .low
        case .normal: self = .normal
        case .high: self = .high
        case .unspecified, .UNRECOGNIZED: return nil
        }
    }
}

/// A message that a sender has left for the client at the push service.
public struct PushMessage: Sendable, Hashable {
    /// The service's number of the message, which is never used twice. A message that was not acknowledged is
    /// given out again with the same number.
    public let id: UInt64
    /// The name that was given to ``Client/pushEndpoint(_:applicationServerKey:)``.
    public let subscription: String
    /// As its sender has sent it, at most 4,096 bytes; often encrypted for the client (RFC 8291).
    public let body: [UInt8]
    public let urgency: PushUrgency
    /// Of several waiting messages with the same topic only the latest was kept; empty: it has none.
    public let topic: String
    /// When the service has accepted it, in milliseconds since 1970.
    public let acceptedAt: UInt64

    package init(_ wire: WirePushAnswer.Messages.Message) {
        id = wire.id
        subscription = wire.subscription
        body = Array(wire.body)
        urgency = PushUrgency(wire.urgency) ?? .normal
        topic = wire.topic
        acceptedAt = wire.acceptedUnixMs
    }
}
