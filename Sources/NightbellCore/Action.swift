/// Why a request was refused. The edge words the answer.
public enum Refusal: Sendable, Hashable {
    case identifierInUse
    case identifierOfOtherUser
    case tooManyClients
    case shuttingDown
    case modeRequired(Modes)
    case timeoutTooShort(minimum: Duration)
    case timeoutTooLong(maximum: Duration)
    case invalidToken
    case invalidTask
    case illegalState(ClientState)
    case notPollable
    case listeningSocket
    case notAListener
    case notASocket
    case notConnected
    case socketError
    case tooManySockets
    case tooManyTasks
    case noSuchClient
    /// A keep-alive profile with settings that make no sense.
    case invalidProfile
    /// A profile of messages that only the owner can read: the connection is encrypted, and not by the kernel.
    case opaqueSocket
    /// A profile for streams on a datagram socket, or on what is no socket.
    case profileNotForThis
    /// A receive buffer for the time asleep on what is no datagram socket.
    case receiveBufferNotForThis
    /// There is no known way to start the program again.
    case cannotLaunch
    case stateTooLarge(limit: Int)
}

/// What a client's request came to.
public enum Answer: Sendable, Equatable {
    case done
    case refused(Refusal)
    /// `nil` is the invalid task: none can be granted, because the time is up.
    case backgroundTask(UInt64?)
    /// `nil` is unlimited.
    case backgroundTimeLeft(Duration?)
}

/// Why a client is woken.
public struct WakeReasons: OptionSet, Sendable, Hashable {
    public let rawValue: UInt16

    public init(rawValue: UInt16) {
        self.rawValue = rawValue
    }

    public static let socket = WakeReasons(rawValue: 1)
    public static let keepAlive = WakeReasons(rawValue: 2)
    public static let request = WakeReasons(rawValue: 4)
    /// A message of the client itself arrived after it had been suspended.
    public static let clientMessage = WakeReasons(rawValue: 8)
    public static let supervisorStopping = WakeReasons(rawValue: 16)
    /// It was launched together with the supervisor.
    public static let launched = WakeReasons(rawValue: 32)
    /// It was launched again because it had ended badly, or was ended by the supervisor.
    public static let relaunched = WakeReasons(rawValue: 64)
    /// A ping that was sent in the client's name was not answered in time.
    public static let unanswered = WakeReasons(rawValue: 128)
    /// The kernel has given a connection up, because nothing of what was sent arrives.
    public static let pathLost = WakeReasons(rawValue: 256)

    /// Those that come with sockets.
    static let ofSockets: WakeReasons = [.socket, .unanswered, .pathLost]
}

/// One wake, as the client is told of it.
public struct Wake: Sendable, Equatable {
    public var wakeID: UInt64
    public var reasons: WakeReasons
    /// A range of `ActionBuffer.firedSockets`.
    public var sockets: Range<Int>
    public var budget: Duration
    /// Zero if the client was not suspended.
    public var asleepFor: Duration
    /// A previous process decided it and may have delivered it already.
    public var isRepeated = false
}

/// What the supervisor tells a client of its own accord.
public enum Notice: Sendable, Equatable {
    case didEnterBackground(budget: Duration)
    case prepareToSuspend(epoch: UInt64, budget: Duration)
    case suspendCancelled(epoch: UInt64)
    case wake(Wake)
    case backgroundTimeExpiring(remaining: Duration)
    case willTerminate(budget: Duration, TerminationReason)
}

/// Why a client is ended.
public enum TerminationReason: Sendable, Hashable {
    case quitByUser
    case backgroundTasksOverran
    case tooManyWakes
    /// Memory is short, and it was suspended.
    case memoryPressure
    /// It had asked for that instead of being suspended.
    case hibernation
    /// It does not want to be in the background.
    case exitsOnSuspend
    /// It was launched, and did not identify itself in time.
    case launchOverran
}

extension TerminationReason {
    /// Whether it is ended asleep, or when it was ready to sleep: it does nothing more.
    var isInSleep: Bool {
        switch self {
        case .memoryPressure, .hibernation: true
        case .quitByUser, .backgroundTasksOverran, .tooManyWakes, .exitsOnSuspend, .launchOverran: false
        }
    }
}

/// A step that a client may overrun.
public enum Step: Sendable, Hashable, CaseIterable {
    case enteringBackground
    case prepareToSuspend
    case wake
    case backgroundTasks
    case termination
    case launch
}

/// An event for people watching the supervisor. Costs nothing to make: no text.
public enum Trace: Sendable, Equatable {
    case registered
    case gone
    case state(from: ClientState, to: ClientState)
    case woken(WakeReasons)
    case overran(Step)
    case suspendedByForce
    case suspensionCancelled
    case suspensionFailed
    /// Another process resumed it while it was suspended.
    case foundRunning
    case adopted(SocketToken)
    case refusedSocket(Refusal)
    case released(SocketToken)
    case keepAliveLate(by: Duration)
    case tooManyWakes
    case terminated(TerminationReason)
    /// It has no process any more, but its sockets are watched, and traffic launches it.
    case parked
    /// A process of its own is being started.
    case launching(WakeReasons)
    /// Its program runs, and has not said Hello in time.
    case doesNotSpeak
    case rejoined
    case crashed
    /// It has ended badly too often in a row.
    case gaveUp
    case stateDropped
    /// It sleeps, and nothing but a request can wake it.
    case outOfReach
}

/// What the edge is asked to do, in this order.
public enum Action: Sendable, Equatable {
    case registered(ClientID, RequestKey)
    case refuseRegistration(Refusal, RequestKey)
    case answer(Answer, ClientID, RequestKey)
    /// The outcome of each offer, in a range of `ActionBuffer.adoptions`.
    case handedOver(Range<Int>, ClientID, RequestKey)
    /// The outcome of an administrator's command; no refusal: done.
    case commandAnswer(Refusal?, RequestKey)
    case notify(ClientID, Notice)
    case arm(SocketToken)
    /// Watch a socket after its owner was told of its end. Only unread bytes are to be reported, those that are there already
    /// included; not the end, which goes on being true.
    case armPastEnd(SocketToken)
    /// From now on deal with the pings of this socket, and tell its terms.
    case beginOffload(SocketToken)
    /// Its owner is about to run again.
    case endOffload(SocketToken)
    /// Send a ping, or the last one once more. Only failure is told.
    case ping(SocketToken, again: Bool)
    /// The answer to a ping is due: look whether it is there, tell of it, and then that it was looked for.
    case lookForAnswer(SocketToken)
    /// Stop watching it, close the duplicate.
    case close(SocketToken)
    case freeze(ClientID, epoch: UInt64)
    /// Look again whether the kernel has confirmed.
    case checkFreeze(ClientID, epoch: UInt64)
    case thaw(ClientID)
    case kill(ClientID, TerminationReason)
    /// Its process is gone, or has yet to come: close its connection, let go of the process, keep everything else.
    case park(ClientID)
    /// Start its program.
    case launch(ClientID)
    /// The process that said so is this client, with everything that was kept.
    case rejoined(ClientID, RequestKey)
    /// The client that `Event.launch` has declared. It is launched when its turn comes.
    case declared(ClientID)
    /// Keep the state that the client has just sent.
    case keepState(ClientID)
    case dropState(ClientID)
    /// Forget the client: thaw what still runs, close its connection.
    case forget(ClientID, ClientIdentifier, UserID)
    case trace(ClientID, Trace)
}

/// Where the core writes its actions. The edge uses one again and again, so that nothing is allocated in the
/// steady state.
public struct ActionBuffer: Sendable {
    public var actions: [Action] = []
    public var firedSockets: [FiredSocket] = []
    public var adoptions: [Result<SocketToken, Refusal>] = []
    /// Identifiers of which the owner, or that they were quit, is to outlive the supervisor.
    public var changedOwnership: [ClientIdentifier] = []

    public init() {}

    public mutating func removeAll() {
        actions.removeAll(keepingCapacity: true)
        firedSockets.removeAll(keepingCapacity: true)
        adoptions.removeAll(keepingCapacity: true)
        changedOwnership.removeAll(keepingCapacity: true)
    }

    mutating func append(_ action: Action) {
        actions.append(action)
    }

    /// In place: a slice of its own would be a copy, with room for as much as there is behind it.
    mutating func removeThaws(of client: ClientID, from start: Int) {
        var end = start
        for index in start..<actions.count where actions[index] != .thaw(client) {
            actions.swapAt(index, end)
            end += 1
        }
        actions.removeLast(actions.count - end)
    }
}

extension Refusal: Error {}
