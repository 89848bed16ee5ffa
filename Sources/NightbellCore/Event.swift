/// A key with which the edge finds the connection and the request of an answer. The core returns it
/// unchanged.
package struct RequestKey: Sendable, Hashable {
    package var connection: UInt64
    package var request: UInt64
    /// The client asks again, because the process it asked before may have ended without an answer.
    package var isRepeated: Bool

    package init(connection: UInt64, request: UInt64, isRepeated: Bool = false) {
        self.connection = connection
        self.request = request
        self.isRepeated = isRepeated
    }
}

/// The data with which a process registers as a client.
package struct Registration: Sendable, Equatable {
    package var identifier: ClientIdentifier
    package var user: UserID
    package var modes: Modes
    package var wakeLimitPolicy: WakeLimitPolicy
    /// The supervisor can start the program again.
    package var isLaunchable = false
    /// An administrator has declared it: it may be launched for what comes for it, also if it has ended well.
    package var isDeclared = false
    /// It is terminated instead of being suspended.
    package var exitsOnSuspend = false
    /// A keep-alive timeout that holds until the client sets another.
    package var keepAliveTimeout: Duration?
    /// It is woken when the machine has another network.
    package var wantsNetworkChanges = false
    /// It is launched only once its user's home is there.
    package var waitsForUnlock = false
    /// Another process speaks for the program, which is suspended and woken without its knowledge. That
    /// process always runs: it is not asked to prepare, has no budgets, and brings the program to the
    /// background each time anew.
    package var isUnmodified = false

    package init(
        identifier: ClientIdentifier, user: UserID, modes: Modes, wakeLimitPolicy: WakeLimitPolicy = .linger
    ) {
        self.identifier = identifier
        self.user = user
        self.modes = modes
        self.wakeLimitPolicy = wakeLimitPolicy
    }
}

/// The background activities that a client declares.
package struct Modes: OptionSet, Sendable, Hashable {
    package let rawValue: UInt8

    package init(rawValue: UInt8) {
        self.rawValue = rawValue
    }

    /// Hand over `voip` sockets, set a keep-alive timeout.
    package static let voip = Modes(rawValue: 1)
    /// Hold off suspension while media plays.
    package static let audio = Modes(rawValue: 2)
    /// Run now and then to fetch new content.
    package static let fetch = Modes(rawValue: 4)
    /// Run when the machine has moved.
    package static let location = Modes(rawValue: 8)
    /// Run when a Bluetooth device notifies or connects.
    package static let bluetoothCentral = Modes(rawValue: 16)
    /// Run when another machine uses a Bluetooth service of the client's.
    package static let bluetoothPeripheral = Modes(rawValue: 32)
    /// Run when an attached device has data, or comes and goes.
    package static let externalAccessory = Modes(rawValue: 64)
    /// Be launched when an issue is there to which its manifest subscribes.
    package static let newsstand = Modes(rawValue: 128)

    /// All modes, by the names that manifests and people use, in the order of their bits.
    package static let named: [(mode: Modes, name: String)] = [
        (.voip, "voip"), (.audio, "audio"), (.fetch, "fetch"), (.location, "location"),
        (.bluetoothCentral, "bluetooth-central"), (.bluetoothPeripheral, "bluetooth-peripheral"),
        (.externalAccessory, "external-accessory"), (.newsstand, "newsstand"),
    ]
}

/// The treatment of a client that exceeds its wake limit.
package enum WakeLimitPolicy: Sendable, Hashable, CaseIterable {
    /// It stays awake longer after each further wake.
    case linger
    /// It is terminated.
    case terminate
}

/// A client's request or notice.
package enum ClientMessage: Sendable {
    case handOver([SocketOffer])
    case release(SocketToken)
    case enterBackground
    case backgroundEntered
    case enterForeground
    case setKeepAliveTimeout(Duration)
    case clearKeepAliveTimeout
    case setMinimumFetchInterval(FetchInterval)
    /// Wake it when something happens to this subject. Replaces its observation of the same name.
    case observe(name: String, Subject)
    case stopObserving(name: String)
    case schedule(LocalNotification)
    /// nil: all of the client's.
    case cancelNotifications([String]?)
    /// 0: none.
    case setBadge(UInt32)
    case beginBackgroundTask(name: String)
    case endBackgroundTask(UInt64)
    case backgroundTimeRemaining
    case mediaActivity
    case readyToSuspend(epoch: UInt64, notIdle: [SocketToken])
    case wakeDone(wakeID: UInt64)
    /// It has finished the fetch that this wake told it of.
    case fetchDone(wakeID: UInt64, FetchResult)
    /// It has handled the pushes that this wake told it of.
    case pushDone(wakeID: UInt64, FetchResult)
    /// Save this many bytes for the client's next launch; with 0, drop the saved state.
    case saveState(byteCount: Int)
    /// Terminate it instead of suspending it, once it is ready for that.
    case hibernate
    /// It knows that another supervisor has taken over, and has repeated its unanswered requests.
    case restartNoted
}

/// An administrator's command for a client.
package enum Command: Sendable, Hashable, CaseIterable {
    case wake
    case suspend
    case quit
    case launch
    /// Act as if the machine had another network …
    case simulateNetworkChange
    /// … were about to sleep …
    case simulateSleep
    /// … or the client's user had unlocked it.
    case simulateUnlock
    /// Act as if the moment for a fetch had come …
    case simulateFetch
    /// … for a client that has to be launched for it.
    case simulateFetchLaunch
}

/// How a process has ended.
package enum Ending: Sendable, Hashable, CaseIterable {
    /// It had nothing more to do: exit status 0, or it was asked to terminate.
    case succeeded
    /// Any other status, a signal, or unknown.
    case failed
    /// It was never there: the supervisor or the machine has run out of something that a launch needs.
    case notStarted
    /// It was never there: its program does not exist, as while a package is replaced.
    case programMissing
}

/// The memory that a client uses.
package struct ClientSize: Sendable, Hashable {
    package var client: ClientID
    package var bytes: Int

    package init(_ client: ClientID, bytes: Int) {
        self.client = client
        self.bytes = bytes
    }
}

/// An event from outside the core.
package enum Event: Sendable {
    case registration(Registration, RequestKey)
    case message(ClientMessage, from: ClientID, RequestKey)
    case command(Command, ClientID, RequestKey)
    /// An administrator has the client's observation of this name treated as if this had happened.
    case simulate(Occurrence, observation: String, ClientID, RequestKey)
    /// An armed socket fired; it is no longer armed.
    case fired(SocketToken, Conditions)
    /// The same, and the edge has thawed the owner already (see `allowsEarlyThaw(of:)`). The conditions,
    /// which are not empty, are those that the edge saw: the owner may have read the input since.
    case thawedEarly(SocketToken, Conditions)
    /// The kernel confirmed the suspension of this epoch.
    case frozen(ClientID, epoch: UInt64)
    /// The incoming data of a suspended client's socket was inspected with its profile.
    case inspected(SocketToken, InspectionResult)
    /// The edge has begun to handle the pings of a socket, under these terms; without terms, it sends no
    /// pings. `isAwaitingAnswer`: whether the owner's delegated state awaits an answer already.
    case offloadBegan(SocketToken, PingTerms?, isAwaitingAnswer: Bool)
    /// A ping could not be sent.
    case pingFailed(SocketToken)
    /// A socket's pings cannot be answered any more, because the state that its owner delegated is lost.
    case delegatedStateLost(SocketToken)
    /// No ping was sent: the state that it needs is not available at the moment.
    case pingOmitted(SocketToken)
    /// The edge has looked for an answer that is due; if there was one, it was reported before.
    case answerLookedFor(SocketToken)
    /// The kernel has not confirmed yet.
    case notFrozenYet(ClientID, epoch: UInt64)
    /// The suspension could not be carried out.
    case freezeFailed(ClientID, epoch: UInt64)
    /// A client that was believed to be suspended runs: another process has resumed it.
    case foundRunning(ClientID)
    /// A user has quit a client that the previous supervisor left running and that has not reconnected yet.
    case quitAbsent(ClientIdentifier, RequestKey)
    /// The client's connection ended, but not its process: it is no longer a client.
    case gone(ClientID)
    /// The client's process has ended, or could not be started.
    case ended(ClientID, Ending)
    /// The process that a client was launched as identifies itself.
    case rejoined(ClientID, Registration, RequestKey)
    /// Launch a client that was declared in advance: when the supervisor starts, or on request.
    case launch(Registration, RequestKey?)
    /// Something has come for a client that was declared in advance and has no record. It gets one without a
    /// process, and is not launched before that instant: a process of it may be about to reconnect. With reasons it is
    /// launched then, whatever has come, also if it has a record and no process.
    case declare(Registration, notBefore: Instant?, reasons: WakeReasons = [])
    /// Forget everything about this identifier, its owner included.
    case disown(ClientIdentifier, RequestKey)
    /// Memory is short. The sizes are those of the clients that may be terminated.
    case memoryPressure([ClientSize])
    /// The supervisor shuts down: all clients are thawed and notified.
    case stop
    /// A source reports how a thing outside is now.
    case fact(Fact)
    /// The sockets of a client were inspected: these cannot work over the present network.
    case pathsInspected(ClientID, [BrokenPath])
    /// The total time that the machine has slept since it was started. It comes before all other events of a
    /// turn.
    case machineSlept(total: Duration)
    /// `nextDeadline` has come.
    case timer
}
