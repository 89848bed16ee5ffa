/// The client's stated use of a descriptor.
package enum SocketTag: Sendable, Hashable, CaseIterable {
    /// A connected stream or a datagram socket.
    case voip
    /// A listening stream socket.
    case listener
    /// Any other pollable descriptor.
    case device

    /// A client must have declared one of these to hand such a socket over; empty: it need not.
    package var modes: Modes {
        switch self {
        case .voip: .voip
        case .listener: []
        case .device: [.bluetoothCentral, .bluetoothPeripheral, .externalAccessory]
        }
    }
}

/// The state of a socket, as far as it can be seen without reading. Inlinable, because it is tested for each
/// ping.
@usableFromInline package struct Conditions: OptionSet, Sendable, BitwiseCopyable, Hashable {
    @usableFromInline package let rawValue: UInt8

    @inlinable package init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    @inlinable package static var readable: Conditions { Conditions(rawValue: 1) }
    /// The peer closed its half: there may be bytes before the end.
    @inlinable package static var peerClosed: Conditions { Conditions(rawValue: 2) }
    /// Both halves are closed.
    @inlinable package static var hangUp: Conditions { Conditions(rawValue: 4) }
    @inlinable package static var error: Conditions { Conditions(rawValue: 8) }

    // Conditions that the kernel does not report; the supervisor finds them out while the owner sleeps.

    /// A ping sent in the owner's name was not answered in time.
    @inlinable package static var unanswered: Conditions { Conditions(rawValue: 16) }
    /// The peer sends more pings than the rate limit allows.
    @inlinable package static var flooded: Conditions { Conditions(rawValue: 32) }
    /// A ping, or the answer to one, could not be sent: the peer does not read.
    @inlinable package static var unanswerable: Conditions { Conditions(rawValue: 64) }
    /// The kernel has given the connection up, because no data reaches the peer.
    @inlinable package static var pathLost: Conditions { Conditions(rawValue: 128) }

    static let foundOut: Conditions = [.unanswered, .flooded, .unanswerable, .pathLost]
}

/// The edge's findings about a descriptor that a client wants to hand over.
package struct SocketOffer: Sendable, Equatable {
    package var tag: SocketTag
    package var isPollable: Bool
    package var isSocket: Bool
    /// Its bytes have an order and an end: once closed or reset, nothing can follow.
    package var isStream: Bool
    package var isListening: Bool
    package var isConnected: Bool
    package var hasPendingError: Bool
    /// It stays parked when its owner's process is gone, and launches it again.
    package var survives = false
    /// It has an Internet address that the machine can lose: not one of its own alone.
    package var isRouted = false
    /// It comes with a keep-alive profile that fits the socket.
    package var hasProfile: Bool { profile != nil }
    /// The number of that profile in `OffloadTotals`.
    package var profile: UInt8?
    /// Why its profile or another option does not fit the socket.
    package var profileRefusal: Refusal?

    package init(
        tag: SocketTag, isPollable: Bool = true, isSocket: Bool = true, isStream: Bool = true,
        isListening: Bool = false, isConnected: Bool = true, hasPendingError: Bool = false
    ) {
        self.tag = tag
        self.isPollable = isPollable
        self.isSocket = isSocket
        self.isStream = isStream
        self.isListening = isListening
        self.isConnected = isConnected
        self.hasPendingError = hasPendingError
    }

    /// Why it cannot be adopted, quotas aside.
    var refusal: Refusal? {
        guard isPollable else { return .notPollable }
        if let profileRefusal { return profileRefusal }
        switch tag {
        case .voip:
            if !isSocket { return .notASocket }
            if isListening { return .listeningSocket }
            if hasPendingError { return .socketError }
            if isStream, !isConnected { return .notConnected }
        case .listener:
            if !isListening { return .notAListener }
            if hasPendingError { return .socketError }
        case .device:
            if isListening { return .listeningSocket }
        }
        return nil
    }
}

/// Whether an adopted socket is being watched.
package enum SocketCondition: Sendable, Hashable {
    /// Adopted, not watched: its owner runs, or it fired while its owner ran.
    case unwatched
    /// Watched, one-shot: stays so until it fires, even while the owner runs.
    case armed
    /// Its end was reported. While its owner sleeps it is watched for bytes only.
    case ended
    /// Its end was reported, and it is watched for bytes: those left unread before the end, or those of the
    /// next process that opens a FIFO.
    case armedPastEnd

    package var isPastEnd: Bool {
        switch self {
        case .unwatched, .armed: false
        case .ended, .armedPastEnd: true
        }
    }
}

/// A socket that the supervisor holds a duplicate of.
struct ParkedSocket: Sendable, Equatable {
    let owner: ClientID
    /// Where it stands in its owner's list.
    var index: Int32
    let tag: SocketTag
    var condition: SocketCondition
    private var flags: Flags

    /// 16 bytes in all: there may be tens of thousands.
    private struct Flags: OptionSet {
        let rawValue: UInt8

        static let isStream = Flags(rawValue: 1)
        static let survives = Flags(rawValue: 2)
        static let hasProfile = Flags(rawValue: 4)
        static let isRouted = Flags(rawValue: 8)
        static let isPathLost = Flags(rawValue: 16)
    }

    init(
        owner: ClientID, tag: SocketTag, isStream: Bool, survives: Bool, isRouted: Bool = false,
        condition: SocketCondition = .unwatched, index: Int32
    ) {
        self.owner = owner
        self.index = index
        self.tag = tag
        self.condition = condition
        flags = isStream ? .isStream : []
        if survives { flags.insert(.survives) }
        if isRouted { flags.insert(.isRouted) }
    }

    var isStream: Bool { flags.contains(.isStream) }

    var survives: Bool { flags.contains(.survives) }

    /// Whether it can still wake its owner. A device may after its end: the next writer of a FIFO opens it
    /// again.
    var canWake: Bool { !condition.isPastEnd || tag == .device }

    var isRouted: Bool { flags.contains(.isRouted) }

    /// Its owner was told that it cannot work over the present network.
    var isPathLost: Bool {
        get { flags.contains(.isPathLost) }
        set { if newValue { flags.insert(.isPathLost) } else { flags.remove(.isPathLost) } }
    }

    /// There is more about it in `Supervision.pings`.
    var hasProfile: Bool {
        get { flags.contains(.hasProfile) }
        set { if newValue { flags.insert(.hasProfile) } else { flags.remove(.hasProfile) } }
    }

    /// After these conditions were reported, only bytes are news: they go on being true.
    func isFinal(_ conditions: Conditions) -> Bool {
        !conditions.isDisjoint(with: [.peerClosed, .hangUp]) || (isStream && conditions.contains(.error))
    }
}

/// A socket and what happened to it.
package struct FiredSocket: Sendable, Equatable {
    package var token: SocketToken
    package var conditions: Conditions
}
