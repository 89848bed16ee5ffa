/// What a client says that a descriptor is for.
public enum SocketTag: Sendable, Hashable, CaseIterable {
    /// A connected stream or a datagram socket.
    case voip
    /// A listening stream socket.
    case listener
    /// Any other pollable descriptor.
    case device
}

/// What has happened to a socket, as far as the kernel tells without anything being read.
public struct Conditions: OptionSet, Sendable, Hashable {
    public let rawValue: UInt8

    public init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    public static let readable = Conditions(rawValue: 1)
    /// The peer closed its half: there may be bytes before the end.
    public static let peerClosed = Conditions(rawValue: 2)
    /// Both halves are closed.
    public static let hangUp = Conditions(rawValue: 4)
    public static let error = Conditions(rawValue: 8)

    // What the kernel does not report, but the supervisor finds out while the owner sleeps.

    /// A ping sent in the owner's name was not answered in time.
    public static let unanswered = Conditions(rawValue: 16)
    /// The peer pings more than is put up with.
    public static let flooded = Conditions(rawValue: 32)
    /// A ping, or the answer to one, could not be sent: the peer takes nothing.
    public static let unanswerable = Conditions(rawValue: 64)
    /// The kernel has given the connection up, because nothing of what was sent arrives.
    public static let pathLost = Conditions(rawValue: 128)

    static let foundOut: Conditions = [.unanswered, .flooded, .unanswerable, .pathLost]
}

/// What the edge found out about a descriptor that a client wants to hand over.
public struct SocketOffer: Sendable, Equatable {
    public var tag: SocketTag
    public var isPollable: Bool
    public var isSocket: Bool
    /// A socket whose bytes have an order and an end: once closed or reset, nothing can follow.
    public var isStream: Bool
    public var isListening: Bool
    public var isConnected: Bool
    public var hasPendingError: Bool
    /// It stays parked when its owner's process is gone, and launches it again.
    public var survives = false
    /// It comes with a keep-alive profile, and that fits.
    public var hasProfile = false
    /// It comes with one that does not, or with another wish that does not.
    public var profileRefusal: Refusal?

    public init(
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

    /// Why it cannot be adopted for what it is; quotas aside.
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
public enum SocketCondition: Sendable, Hashable {
    /// Adopted, not watched: its owner runs, or it fired while its owner ran.
    case held
    /// Watched, one-shot: stays so until it fires, also while the owner runs.
    case armed
    /// Its end was reported. While its owner sleeps it is watched for bytes only.
    case ended
    /// Its end was reported, and it is watched for bytes: those left unread before the end, or those of the next
    /// process that opens a FIFO.
    case armedPastEnd

    package var isPastEnd: Bool {
        switch self {
        case .held, .armed: false
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
    }

    init(
        owner: ClientID, tag: SocketTag, isStream: Bool, survives: Bool, condition: SocketCondition = .held,
        index: Int32
    ) {
        self.owner = owner
        self.index = index
        self.tag = tag
        self.condition = condition
        flags = isStream ? .isStream : []
        if survives { flags.insert(.survives) }
    }

    var isStream: Bool { flags.contains(.isStream) }

    var survives: Bool { flags.contains(.survives) }

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
public struct FiredSocket: Sendable, Equatable {
    public var token: SocketToken
    public var conditions: Conditions
}
