/// Why a host is notified of a socket that it has parked.
public struct ParkingReasons: OptionSet, Sendable, Hashable {
    public let rawValue: UInt16

    public init(rawValue: UInt16) {
        self.rawValue = rawValue
    }

    /// There is data to read for the host: with a profile, a message that is no keep-alive.
    public static let readable = ParkingReasons(rawValue: 1)
    /// The peer has closed its half. There may be bytes before the end, and the host may still write.
    public static let peerClosed = ParkingReasons(rawValue: 2)
    /// Both halves are closed, or the connection was reset or has another error: reading tells which.
    public static let broken = ParkingReasons(rawValue: 4)
    /// The time given as `keepAlive` is about to end. The socket stays parked and watched.
    public static let keepAliveDue = ParkingReasons(rawValue: 8)
    /// A ping that was sent for the host was not answered in time: the peer is gone, most likely.
    public static let pongMissing = ParkingReasons(rawValue: 16)
    /// The peer exceeds the rate limit of pings.
    public static let flooded = ParkingReasons(rawValue: 32)
    /// A ping, or the answer to one, could not be sent: the peer accepts no data.
    public static let unanswerable = ParkingReasons(rawValue: 64)
    /// The kernel has given up the connection, because sent data is not acknowledged.
    public static let pathLost = ParkingReasons(rawValue: 128)

    init(_ conditions: Conditions) {
        self = []
        if conditions.contains(.readable) { insert(.readable) }
        if conditions.contains(.peerClosed) { insert(.peerClosed) }
        if !conditions.isDisjoint(with: [.hangUp, .error]) { insert(.broken) }
        if conditions.contains(.unanswered) { insert(.pongMissing) }
        if conditions.contains(.flooded) { insert(.flooded) }
        if conditions.contains(.unanswerable) { insert(.unanswerable) }
        if conditions.contains(.pathLost) { insert(.pathLost) }
    }
}

extension ParkingReasons: CustomStringConvertible {
    public var description: String {
        let names: [(ParkingReasons, String)] = [
            (.readable, "readable"), (.peerClosed, "peer closed"), (.broken, "broken"),
            (.keepAliveDue, "keep-alive due"), (.pongMissing, "pong missing"), (.flooded, "flooded"),
            (.unanswerable, "unanswerable"), (.pathLost, "path lost"),
        ]
        return names.filter { contains($0.0) }.map(\.1).joined(separator: ", ")
    }
}

/// The event counters of all parked sockets.
public struct ParkingCounters: Sendable, Equatable {
    public var parked: UInt64 = 0
    public var claimed: UInt64 = 0
    public var released: UInt64 = 0
    /// The number of notifications of events on sockets.
    public var told: UInt64 = 0
    public var keepAlivesDue: UInt64 = 0
    /// Of `told`, those for a ping that was not answered.
    public var pongsMissing: UInt64 = 0

    public init() {}
}
