/// Why a request was refused. The edge words the answer.
package enum Refusal: Sendable, Hashable {
    case identifierInUse
    case identifierOfOtherUser
    case tooManyClients
    case shuttingDown
    /// The client has declared none of these modes.
    case modeRequired(Modes)
    /// Its user's streams are known, and none of them is the client's.
    case noStream
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
    /// A keep-alive profile with invalid settings.
    case invalidProfile
    /// A profile on a connection that is encrypted, and not by the kernel: only the owner can read its
    /// messages.
    case opaqueSocket
    /// A profile for streams on a datagram socket, or on a descriptor that is no socket.
    case profileNotForThis
    /// A receive buffer for the time asleep on a descriptor that is no datagram socket.
    case receiveBufferNotForThis
    /// There is no known way to start the program again.
    case cannotLaunch
    case stateTooLarge(limit: Int)
    /// It has not asked to be told of other networks.
    case networkChangesNotWanted
    /// It has no keep-alive timeout, or is in the foreground.
    case noKeepAlive
    /// No fetch is going on that this wake told the client of.
    case noFetch
    /// No pushes are being handled that this wake told the client of.
    case noPush
    /// It has no observation of this name to which that could happen.
    case noSuchObservation
    case tooManyObservations
    case tooManyNotifications
}

/// The result of a client's request.
package enum Answer: Sendable, Equatable {
    case done
    case refused(Refusal)
    /// `nil` is the invalid task: none can be granted, because the time is up.
    case backgroundTask(UInt64?)
    /// `nil` is unlimited.
    case backgroundTimeLeft(Duration?)
    /// A notification is scheduled. `dropped`: the identifier of the latest one, which was one too many.
    case scheduled(dropped: String?)
}

/// Why a client is woken.
package struct WakeReasons: OptionSet, Sendable, BitwiseCopyable, Hashable {
    package let rawValue: UInt32

    package init(rawValue: UInt32) {
        self.rawValue = rawValue
    }

    package static let socket = WakeReasons(rawValue: 1)
    package static let keepAlive = WakeReasons(rawValue: 2)
    package static let request = WakeReasons(rawValue: 4)
    /// A message of the client itself arrived after it had been suspended.
    package static let clientMessage = WakeReasons(rawValue: 8)
    package static let supervisorStopping = WakeReasons(rawValue: 16)
    /// It was launched together with the supervisor.
    package static let launched = WakeReasons(rawValue: 32)
    /// It was launched again because it had failed, or was terminated by the supervisor.
    package static let relaunched = WakeReasons(rawValue: 64)
    /// A ping that was sent in the client's name was not answered in time.
    package static let unanswered = WakeReasons(rawValue: 128)
    /// The kernel has given up a connection, because sent data is not acknowledged.
    package static let pathLost = WakeReasons(rawValue: 256)
    /// It is a good moment to fetch new content.
    package static let fetch = WakeReasons(rawValue: 512)
    /// The machine has another network.
    package static let networkChanged = WakeReasons(rawValue: 1_024)
    /// The machine has moved.
    package static let location = WakeReasons(rawValue: 2_048)
    /// An accessory has data, or has come or gone.
    package static let device = WakeReasons(rawValue: 4_096)
    /// A Bluetooth device has notified or connected, or uses a service of the client's.
    package static let bluetooth = WakeReasons(rawValue: 8_192)
    /// The transfers of a session are finished, or one needs credentials.
    package static let transfer = WakeReasons(rawValue: 16_384)
    /// Messages wait for the client at the push service.
    package static let push = WakeReasons(rawValue: 32_768)
    /// A notification was activated, or its time came while the client was in the foreground.
    package static let notification = WakeReasons(rawValue: 65_536)

    /// The reasons that come with sockets.
    static let ofSockets: WakeReasons = [.socket, .unanswered, .pathLost]
    /// The reasons under the wake limit: others cause them.
    static let ofTraffic: WakeReasons = [.socket, .clientMessage, .device, .bluetooth]
    /// The reasons that come with observations.
    package static let ofObservations: WakeReasons = [.location, .device, .bluetooth, .transfer, .push]
}

/// One wake, as it is delivered to the client.
package struct Wake: Sendable, Equatable {
    package var wakeID: UInt64
    package var reasons: WakeReasons
    /// A range of `ActionBuffer.firedSockets`.
    package var sockets: Range<Int>
    /// A range of `ActionBuffer.observed`.
    package var observed: Range<Int> = 0..<0
    /// A range of `ActionBuffer.notified`.
    package var notified: Range<Int> = 0..<0
    package var budget: Duration
    /// Zero if the client was not suspended.
    package var asleepFor: Duration
    /// A previous process decided it and may have delivered it already.
    package var isRepeated = false
    /// The time for the fetch that it tells of; nil: it tells of none.
    package var fetchBudget: Duration?
    /// The time for the pushes that it tells of; nil: it tells of none.
    package var pushBudget: Duration?
}

/// A message of the supervisor to a client that is no answer to a request.
package enum Notice: Sendable, Equatable {
    case didEnterBackground(budget: Duration)
    case prepareToSuspend(epoch: UInt64, budget: Duration)
    case suspendCancelled(epoch: UInt64)
    /// The program of an unmodified client is suspended.
    case suspended(epoch: UInt64)
    case wake(Wake)
    case backgroundTimeExpiring(remaining: Duration)
    case willTerminate(budget: Duration, TerminationReason)
}

/// Why a client is terminated. The numbers are stored.
package enum TerminationReason: UInt8, Sendable, Hashable {
    case quitByUser = 1
    case backgroundTasksOverran = 2
    case tooManyWakes = 3
    /// Memory is short, and it was suspended.
    case memoryPressure = 4
    /// It had asked to be terminated instead of suspended.
    case hibernation = 5
    /// It does not want to be in the background.
    case exitsOnSuspend = 6
    /// It was launched, and did not identify itself in time.
    case launchOverran = 7
    /// It did not complete a fetch in time.
    case fetchOverran = 8
    /// It did not handle a push in time.
    case pushOverran = 9
}

extension TerminationReason {
    /// Whether it is terminated while suspended, or ready for that: it does nothing more.
    var isInSleep: Bool {
        switch self {
        case .memoryPressure, .hibernation: true
        case .quitByUser, .backgroundTasksOverran, .tooManyWakes, .exitsOnSuspend, .launchOverran,
            .fetchOverran, .pushOverran:
            false
        }
    }
}

/// A step that a client may overrun.
package enum Step: Sendable, Hashable, CaseIterable {
    case enteringBackground
    case prepareToSuspend
    case wake
    case backgroundTasks
    case termination
    case launch
    case fetch
    case push
}

/// An event for the supervisor's observers. It is cheap to make, because no text is formatted for it.
package enum Trace: Sendable, Equatable {
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
    /// Reported by the edge, which knows it from `handedOver`: a packet may hold hundreds of sockets.
    case adopted(SocketToken)
    case refusedSocket(Refusal)
    case released(SocketToken)
    case keepAliveLate(by: Duration)
    case tooManyWakes
    case terminated(TerminationReason)
    /// It has no process any more, but its sockets are watched and traffic launches it.
    case becameDormant
    /// A process of its own is being started.
    case launching(WakeReasons)
    /// Its program runs but has not said Hello in time.
    case doesNotSpeak
    case rejoined
    case crashed
    /// It has had too many consecutive failures.
    case gaveUp
    case stateDropped
    /// It is suspended, and only a request can wake it.
    case outOfReach
    /// It is launched although nothing can tell whether its user's home is there.
    case unlockUnknown
    /// nil: it was not completed.
    case fetchEnded(FetchResult?)
    /// The client has handled its pushes; nil: it did not complete that.
    case pushEnded(FetchResult?)
    /// Something has happened to the subject of one of its observations.
    case observed(ObservedOccurrence)
    /// Something has become of its notification with this identifier.
    case notification(String, NotificationProgress)
    /// An administrator has asked for what follows.
    case simulated(Command)
}

/// An action for the edge, to be carried out in order.
package enum Action: Sendable, Equatable {
    case registered(ClientID, RequestKey)
    case refuseRegistration(Refusal, RequestKey)
    case answer(Answer, ClientID, RequestKey)
    /// The outcome of each offer, in a range of `ActionBuffer.adoptions`.
    case handedOver(Range<Int>, ClientID, RequestKey)
    /// The outcome of an administrator's command; `nil` is success.
    case commandAnswer(Refusal?, RequestKey)
    case notify(ClientID, Notice)
    case arm(SocketToken)
    /// Inspect all sockets of a client for paths that cannot work over the present network, and report them.
    /// An inspection under way begins again.
    case inspectPaths(ClientID)
    /// Watch a socket after its owner was told of its end. Report only unread bytes, those already there
    /// included; not the end, which stays true.
    case armPastEnd(SocketToken)
    /// Handle the pings of this socket from now on, and report its terms.
    case beginOffload(SocketToken)
    /// Its owner is about to run again.
    case endOffload(SocketToken)
    /// Send a ping, or repeat the last one. Only failure is reported.
    case ping(SocketToken, again: Bool)
    /// The answer to a ping is due: look for it, report it if it is there, and then report `answerLookedFor`.
    case lookForAnswer(SocketToken)
    /// Stop watching it, close the duplicate, which came from a process of this user.
    case close(SocketToken, of: UserID)
    case freeze(ClientID, epoch: UInt64)
    /// Check again whether the kernel has confirmed.
    case checkFreeze(ClientID, epoch: UInt64)
    case thaw(ClientID)
    case kill(ClientID, TerminationReason)
    /// It has no process any more, or not yet: close its connection, release the process, keep everything
    /// else.
    case makeDormant(ClientID)
    /// Start its program.
    case launch(ClientID)
    /// The process that identified itself takes over this client, with all its kept state.
    case rejoined(ClientID, RequestKey)
    /// A client declared by `Event.launch`. It is launched when its turn comes.
    case declared(ClientID)
    /// Keep the state that the client has just sent.
    case storeState(ClientID)
    case dropState(ClientID)
    /// Forget the client: thaw what still runs, close its connection.
    case forget(ClientID, ClientIdentifier, UserID)
    case trace(ClientID, Trace)
}

/// The buffer to which the core appends its actions. The edge reuses one, so that nothing is allocated in the
/// steady state.
package struct ActionBuffer: Sendable {
    package var actions: [Action] = []
    package var firedSockets: [FiredSocket] = []
    package var observed: [ObservedOccurrence] = []
    package var notified: [NotificationEvent] = []
    package var adoptions: [Result<SocketToken, Refusal>] = []

    package init() {}

    /// More actions than a turn has in the steady state. The room of a turn that adopted or armed thousands
    /// of sockets is not kept: it was 12 bytes for each of 15,000 (`nightbell-load park`).
    private static let usualCount = 128

    package mutating func removeAll() {
        actions.removeAll(keepingCapacity: actions.count <= Self.usualCount)
        firedSockets.removeAll(keepingCapacity: firedSockets.count <= Self.usualCount)
        if !observed.isEmpty { observed.removeAll(keepingCapacity: true) }
        if !notified.isEmpty { notified.removeAll() }
        adoptions.removeAll(keepingCapacity: adoptions.count <= Self.usualCount)
    }

    mutating func append(_ action: Action) {
        actions.append(action)
    }
}

extension Refusal: Error {}
