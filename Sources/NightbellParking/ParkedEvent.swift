public import NightbellCore
import NightbellProfiles

/// Names a parked socket. Never reused for another one.
public struct ParkingToken: Sendable, Hashable {
    let socket: SocketToken

    init(_ socket: SocketToken) {
        self.socket = socket
    }

    /// A unique number for each token, never 0.
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
    /// The parked descriptor, to be closed by the host.
    public let descriptor: Int32
    /// The state that was passed to `park`.
    public let state: [UInt8]
    /// The name it had, now invalid.
    public let token: ParkingToken
    /// ``EmbeddedSupervisor/send(_:to:)`` has written only the beginning of a message; its caller has the
    /// rest, which must be written before anything else.
    public let isInsideMessage: Bool
    /// The command IDLE that is under way now, if `park` was given the tag of one.
    public let idle: IMAPIdle?
}

/// The command IDLE of IMAP on a socket that was parked with its tag. A renewal changes both.
public struct IMAPIdle: Sendable, Hashable {
    public enum Phase: Sendable, Hashable {
        /// The server has sent `+`.
        case idling
        /// DONE was sent; its tagged response has not arrived yet.
        case ending
        /// IDLE was sent again; the server has not sent `+` yet.
        case starting
    }

    public let tag: String
    public let phase: Phase

    init?(_ values: DelegatedValues) {
        guard case .idle(let idle) = values else { return nil }
        tag = idle.tag.text
        phase =
            switch idle.phase {
            case .idling: .idling
            case .ending: .ending
            case .starting: .starting
            }
    }
}

/// The bytes that the kernel did not take when sending to a parked socket.
public struct UnsentRest: Sendable {
    /// Claimed. If it is inside a message, the rest of that comes first.
    public let socket: ClaimedSocket
    /// The peer has the bytes before them; if the socket was inside a message, none was written.
    public let bytes: [UInt8]
}

/// Counters of an embedded supervisor.
public struct EmbeddedCounters: Sendable, Equatable {
    /// Sockets that are parked now.
    public var sockets: Int
    /// Bytes of their states.
    public var stateBytes: Int
    public var parking: ParkingCounters
    /// Work done without an event: pings sent, confirmed and answered, and wakes avoided by that.
    public var pings: OffloadCounters
}
