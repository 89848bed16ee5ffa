/// A number that the edge makes up to find the connection and the request that an answer belongs to. The core
/// hands it back untouched.
public struct RequestKey: Sendable, Hashable {
    public var connection: UInt64
    public var request: UInt64
    /// The client asks again, because the process it asked before may have ended without an answer.
    public var isRepeated: Bool

    public init(connection: UInt64, request: UInt64, isRepeated: Bool = false) {
        self.connection = connection
        self.request = request
        self.isRepeated = isRepeated
    }
}

/// What a process says of itself to become a client.
public struct Registration: Sendable, Equatable {
    public var identifier: ClientIdentifier
    public var user: UserID
    public var modes: Modes
    public var wakeLimitPolicy: WakeLimitPolicy
    /// It is known how to start the program again.
    public var isLaunchable = false
    /// It is told to end instead of being suspended.
    public var exitsOnSuspend = false
    /// A keep-alive timeout that holds until the client sets another.
    public var keepAliveTimeout: Duration?

    public init(
        identifier: ClientIdentifier, user: UserID, modes: Modes, wakeLimitPolicy: WakeLimitPolicy = .linger
    ) {
        self.identifier = identifier
        self.user = user
        self.modes = modes
        self.wakeLimitPolicy = wakeLimitPolicy
    }
}

/// What a client declares that it will do in the background.
public struct Modes: OptionSet, Sendable, Hashable {
    public let rawValue: UInt8

    public init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    /// Hand over `voip` sockets, set a keep-alive timeout.
    public static let voip = Modes(rawValue: 1)
    /// Hold off suspension while media plays.
    public static let audio = Modes(rawValue: 2)
}

/// What happens to a client that is woken more often than the limit.
public enum WakeLimitPolicy: Sendable, Hashable, CaseIterable {
    /// It stays awake longer after each further wake.
    case linger
    /// It is terminated.
    case terminate
}

/// A client's request or notice.
public enum ClientMessage: Sendable {
    case handOver([SocketOffer])
    case release(SocketToken)
    case enterBackground
    case backgroundEntered
    case enterForeground
    case setKeepAliveTimeout(Duration)
    case clearKeepAliveTimeout
    case beginBackgroundTask(name: String)
    case endBackgroundTask(UInt64)
    case backgroundTimeRemaining
    case mediaActivity
    case readyToSuspend(epoch: UInt64, notIdle: [SocketToken])
    case wakeDone(wakeID: UInt64)
    /// So many bytes are to be given back when the client is launched again; none: what was saved is dropped.
    case saveState(byteCount: Int)
    /// It is ended instead of being suspended, once it is ready for that.
    case hibernate
    /// It knows that another supervisor has taken over, and has repeated what was left unanswered.
    case restartNoted
}

/// What an administrator asks to be done with a client.
public enum Command: Sendable, Hashable, CaseIterable {
    case wake
    case suspend
    case quit
    case launch
}

/// How a process has ended.
public enum Ending: Sendable, Hashable, CaseIterable {
    /// It had nothing more to do: exit status 0, or it was asked to end.
    case succeeded
    /// Any other status, a signal, or unknown.
    case failed
}

/// How much memory a client takes.
public struct ClientSize: Sendable, Hashable {
    public var client: ClientID
    public var bytes: Int

    public init(_ client: ClientID, bytes: Int) {
        self.client = client
        self.bytes = bytes
    }
}

/// What happened outside.
public enum Event: Sendable {
    case registration(Registration, RequestKey)
    case message(ClientMessage, from: ClientID, RequestKey)
    case command(Command, ClientID, RequestKey)
    /// An armed socket fired; it is no longer armed.
    case fired(SocketToken, Conditions)
    /// The kernel confirmed the suspension of this epoch.
    case frozen(ClientID, epoch: UInt64)
    /// What there was in a socket of a sleeper has been looked at with its profile.
    case judged(SocketToken, Judgement)
    /// The edge has begun to deal with the pings of a socket, and these are its terms; none: it sends no pings.
    /// Whether an answer is awaited already, to something that the owner has begun and lent.
    case offloadBegan(SocketToken, PingTerms?, isAwaitingAnswer: Bool)
    /// A ping could not be sent.
    case pingFailed(SocketToken)
    /// A socket's pings cannot be answered any more, because the state that its owner delegated is lost.
    case loanLost(SocketToken)
    /// There was no ping to be sent: what it takes is not there at the moment.
    case pingOmitted(SocketToken)
    /// The edge has looked for an answer that is due; if there was one, it has told of it before.
    case answerLookedFor(SocketToken)
    /// The kernel has not confirmed yet.
    case notFrozenYet(ClientID, epoch: UInt64)
    /// The suspension could not be carried out.
    case freezeFailed(ClientID, epoch: UInt64)
    /// A client that was believed to be suspended runs: another process has resumed it.
    case foundRunning(ClientID)
    /// Its user has quit a client that the supervisor before has left running, and that has not come back yet.
    case quitAbsent(ClientIdentifier, RequestKey)
    /// The client's connection ended, but not its process: it is a client no more.
    case gone(ClientID)
    /// The client's process has ended, or could not be started.
    case ended(ClientID, Ending)
    /// The process that a client was launched as identifies itself.
    case rejoined(ClientID, Registration, RequestKey)
    /// A client that was declared in advance is to run: when the supervisor starts, or because a request asks
    /// for it.
    case launch(Registration, RequestKey?)
    /// Forget everything about this identifier, its owner included.
    case disown(ClientIdentifier, RequestKey)
    /// Memory is short. The sizes of the clients that might be ended.
    case memoryPressure([ClientSize])
    /// The supervisor shuts down: all clients are thawed and told.
    case stop
    /// The machine has slept for so long since it was started, up to now. It comes before everything else that happened
    /// in a turn.
    case machineSlept(total: Duration)
    /// `nextDeadline` has come.
    case timer
}
