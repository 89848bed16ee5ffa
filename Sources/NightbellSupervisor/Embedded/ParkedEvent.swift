public import NightbellCore

/// Names a parked socket. Never used again for another one.
public struct ParkingToken: Sendable, Hashable {
    let socket: SocketToken

    init(_ socket: SocketToken) {
        self.socket = socket
    }

    /// A number of its own for each token, which is never 0.
    public var rawValue: UInt64 { socket.rawValue }
}

/// Something has happened to a parked socket.
public struct ParkedEvent: Sendable, Hashable {
    public let token: ParkingToken
    public let reasons: ParkingReasons

    package init(token: ParkingToken, reasons: ParkingReasons) {
        self.token = token
        self.reasons = reasons
    }
}

/// A socket that its host has again.
public struct ClaimedSocket: Sendable {
    /// As it was parked, and the host's to close.
    public let descriptor: Int32
    /// What it was parked with.
    public let state: [UInt8]
    /// The name it had. It means nothing any more.
    public let token: ParkingToken
    /// ``EmbeddedSupervisor/send(_:to:)`` has left the rest of a message, which its caller has: it is to be written before
    /// anything else.
    public let isInsideMessage: Bool
}

/// What the kernel did not take of something that was sent to a parked socket.
public struct UnsentRest: Sendable {
    /// Claimed. If it is inside a message, the rest of that comes first.
    public let socket: ClaimedSocket
    /// The peer has what was before them: of a socket that was inside a message, nothing.
    public let bytes: [UInt8]
}

/// What an embedded supervisor has done so far.
public struct EmbeddedCounters: Sendable, Equatable {
    /// Sockets that are parked now.
    public var sockets: Int
    /// Bytes of their states.
    public var stateBytes: Int
    public var parking: ParkingCounters
    /// What was done without telling anybody: pings sent, confirmed, answered, and wakes avoided by that.
    public var pings: OffloadCounters
}
