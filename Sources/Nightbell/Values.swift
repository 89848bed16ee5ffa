/// A capability that a client declares; some requests need one.
public enum Mode: String, Sendable, Hashable, CaseIterable {
    /// May hand over ``SocketTag/voip`` sockets and set a keep-alive timeout.
    case voip
    /// May hold off suspension with ``Client/mediaActivity()``.
    case audio
    /// Is woken now and then to fetch new content.
    case fetch
    /// Is woken when the machine has moved.
    case location
    /// Is woken when a Bluetooth device notifies or connects. May hand over ``SocketTag/device`` sockets, as
    /// the two below.
    case bluetoothCentral = "bluetooth-central"
    /// Is woken when another machine uses a Bluetooth service of the client's.
    case bluetoothPeripheral = "bluetooth-peripheral"
    /// Is woken when an attached device has data, or comes and goes.
    case externalAccessory = "external-accessory"
    /// Be woken when an issue is there to which the client's manifest subscribes: a download that the
    /// supervisor begins by itself. It comes in the session ``TransferSession/newsstand``.
    case newsstand
}

/// The treatment of a client that is woken more often than the supervisor's limit (15 times in 300 s by
/// default).
public enum WakeLimitPolicy: String, Sendable, Hashable, CaseIterable {
    /// It stays awake longer after each further wake.
    case linger
    /// It is terminated.
    case terminate
}

/// The kind of a handed-over descriptor.
public enum SocketTag: String, Sendable, Hashable, CaseIterable {
    /// A connected stream socket or a datagram socket. Needs ``Mode/voip``.
    case voip
    /// A listening stream socket.
    case listener
    /// Any other pollable descriptor: a tty, a pipe, a timer, … Needs ``Mode/externalAccessory``,
    /// ``Mode/bluetoothCentral`` or ``Mode/bluetoothPeripheral``.
    case device
}

/// A handle for a socket that was handed over. It stays valid when the supervisor is replaced.
public struct ParkedSocket: Sendable, Hashable {
    let id: UInt64
    /// The caller's own descriptor. The library keeps only this number: release before you close it.
    public let descriptor: CInt
    public let tag: SocketTag
    /// A label to read; may be empty.
    public let name: String
}

/// A reason not to be suspended, from ``Client/beginBackgroundTask(_:expired:)`` to ``Client/end(_:)``.
public struct BackgroundTask: Sendable, Hashable {
    let id: UInt64
    /// A label to read; may be empty.
    public let name: String
    /// False when no task could be granted because the background time is up: finish quickly.
    public var isValid: Bool { id != 0 }
}

/// How long a client in the background may still run on its background tasks.
public enum BackgroundTimeRemaining: Sendable, Hashable {
    /// All background tasks must end within this time, or the client is terminated.
    case limited(Duration)
    /// In the foreground, or while media plays.
    case unlimited
}

/// Why a client was woken. One wake can have several reasons.
public struct WakeReasons: OptionSet, Sendable, Hashable, CustomStringConvertible {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// An event on a parked socket: see ``Wake/sockets``.
    public static let socket = WakeReasons(rawValue: 1 << 0)
    /// The keep-alive handler is due; the library runs it.
    public static let keepAlive = WakeReasons(rawValue: 1 << 1)
    /// It was requested, for example by `nightbell wake`.
    public static let request = WakeReasons(rawValue: 1 << 2)
    /// The client itself had sent a message that arrived after its suspension.
    public static let clientMessage = WakeReasons(rawValue: 1 << 3)
    /// The supervisor is shutting down: the sockets are not watched until it is back.
    public static let supervisorStopping = WakeReasons(rawValue: 1 << 4)
    /// This process was launched together with the supervisor.
    public static let launched = WakeReasons(rawValue: 1 << 5)
    /// This process was launched because the last one crashed, or was ended by the supervisor.
    public static let relaunched = WakeReasons(rawValue: 1 << 6)
    /// A peer has not answered a ping that was sent for the client: see ``Wake/sockets``.
    public static let unanswered = WakeReasons(rawValue: 1 << 7)
    /// A connection is dead, because no data reaches the peer: see ``Wake/sockets``.
    public static let pathLost = WakeReasons(rawValue: 1 << 8)
    /// It is a good moment to fetch new content.
    public static let fetch = WakeReasons(rawValue: 1 << 9)
    /// The machine has another network. Sockets that cannot work any more are in ``Wake/sockets``.
    public static let networkChanged = WakeReasons(rawValue: 1 << 10)
    /// The machine has moved.
    public static let location = WakeReasons(rawValue: 1 << 11)
    /// An accessory has data, or has come or gone.
    public static let device = WakeReasons(rawValue: 1 << 12)
    /// A Bluetooth device has notified or connected, or uses a service of the client's.
    public static let bluetooth = WakeReasons(rawValue: 1 << 13)
    /// The transfers of a session are finished, or one needs credentials: see ``Wake/finishedTransfers``.
    public static let transfer = WakeReasons(rawValue: 1 << 14)
    /// Messages wait for the client at the push service: see ``Client/Handlers/push``.
    public static let push = WakeReasons(rawValue: 1 << 15)
    /// A notification was activated, or its time has come in the foreground: see
    /// ``Client/Handlers/notificationActivated`` and ``Client/Handlers/notificationDelivered``.
    public static let notification = WakeReasons(rawValue: 1 << 16)

    public var description: String {
        let names: [(WakeReasons, String)] = [
            (.socket, "socket"), (.keepAlive, "keep-alive"), (.request, "request"),
            (.clientMessage, "client-message"), (.supervisorStopping, "supervisor-stopping"),
            (.launched, "launched"), (.relaunched, "relaunched"),
            (.unanswered, "unanswered"), (.pathLost, "path-lost"), (.fetch, "fetch"),
            (.networkChanged, "network-changed"), (.location, "location"), (.device, "device"),
            (.bluetooth, "bluetooth"), (.transfer, "transfer"), (.push, "push"),
            (.notification, "notification"),
        ]
        return names.filter { contains($0.0) }.map(\.1).joined(separator: "+")
    }
}

/// Events of a parked socket.
public struct SocketConditions: OptionSet, Sendable, Hashable, CustomStringConvertible {
    public let rawValue: UInt8
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// There is something to read (or to accept).
    public static let readable = SocketConditions(rawValue: 1 << 0)
    /// The peer closed its half. There may be bytes before the end.
    public static let peerClosed = SocketConditions(rawValue: 1 << 1)
    /// Both halves are closed.
    public static let hangUp = SocketConditions(rawValue: 1 << 2)
    /// The socket has an error; `SO_ERROR` still holds it.
    public static let error = SocketConditions(rawValue: 1 << 3)
    /// A ping sent for the client was not answered in time.
    public static let unanswered = SocketConditions(rawValue: 1 << 4)
    /// The peer pings more often than the supervisor's rate limit.
    public static let flooded = SocketConditions(rawValue: 1 << 5)
    /// A ping, or the answer to one, could not be sent: the peer's receive window is full.
    public static let unanswerable = SocketConditions(rawValue: 1 << 6)
    /// The kernel has given up the connection, or it cannot work over the present network: the machine has no
    /// longer the socket's local address, or no route to its peer.
    public static let pathLost = SocketConditions(rawValue: 1 << 7)

    public var description: String {
        let names: [(SocketConditions, String)] = [
            (.readable, "readable"), (.peerClosed, "peerClosed"), (.hangUp, "hangUp"), (.error, "error"),
            (.unanswered, "unanswered"), (.flooded, "flooded"), (.unanswerable, "unanswerable"),
            (.pathLost, "pathLost"),
        ]
        return names.filter { contains($0.0) }.map(\.1).joined(separator: "+")
    }
}

/// The client was woken, or is running and an event is due.
public struct Wake: Sendable, Hashable {
    /// The events of one socket.
    public struct SocketEvent: Sendable, Hashable {
        public let socket: ParkedSocket
        public var conditions: SocketConditions
        /// Datagrams that the kernel has dropped since the client fell asleep, most of them for lack of
        /// buffer space; reported only for a socket that was handed over with a
        /// ``Client/SocketToPark/receiveBuffer``.
        public var dropped = 0
    }

    /// The supervisor's number of this wake. A wake that is detected before the supervisor's message gets the
    /// next number; if the supervisor's worker dies before it sends the message, another wake has the same
    /// number.
    public internal(set) var id: UInt64
    public internal(set) var reasons: WakeReasons
    /// Each socket at most once; present with ``WakeReasons/socket``.
    public internal(set) var sockets: [SocketEvent]
    /// The time allowed for the wake handlers; longer work needs a background task.
    public internal(set) var budget: Duration
    /// How long the client was suspended; zero if it was not.
    public internal(set) var asleepFor: Duration
    /// The supervisor's worker died and did not record whether this wake was sent. The library delivers each
    /// wake once; only work done for it by other means may have been done already.
    public internal(set) var isRepeated: Bool
    /// The latest occurrence of each observation that has one; present with ``WakeReasons/location``,
    /// ``WakeReasons/device``, ``WakeReasons/bluetooth``, ``WakeReasons/transfer`` and ``WakeReasons/push``.
    public internal(set) var occurrences: [Occurrence] = []
    package var notifications: [NotificationEvent] = []
    /// The time for the fetch; zero without ``WakeReasons/fetch``.
    package var fetchBudget: Duration = .zero
    /// The time for the pushes; zero without ``WakeReasons/push``.
    package var pushBudget: Duration = .zero

    package init(
        id: UInt64, reasons: WakeReasons, sockets: [SocketEvent], budget: Duration, asleepFor: Duration,
        isRepeated: Bool = false
    ) {
        self.id = id
        self.reasons = reasons
        self.sockets = sockets
        self.budget = budget
        self.asleepFor = asleepFor
        self.isRepeated = isRepeated
    }

    /// The sockets that cannot work any more, or not over the present network.
    public var lostSockets: [ParkedSocket] {
        sockets.filter { $0.conditions.contains(.pathLost) }.map(\.socket)
    }

    /// The events of this socket; empty if there was none.
    public func conditions(of socket: ParkedSocket) -> SocketConditions {
        sockets.first { $0.socket == socket }?.conditions ?? []
    }
}
