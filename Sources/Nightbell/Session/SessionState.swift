package import NightbellWire

/// All decisions of the client library, without side effects: time and packets come in as values, and actions
/// come out. Pure.
package struct SessionState {
    /// Events for the handlers, in order.
    package enum Notice {
        case wake(Wake, connection: UInt64)
        /// The keep-alive handler is due and no supervisor is there to signal it.
        case keepAlive
        case didEnterBackground
        case prepareToSuspend(epoch: UInt64, connection: UInt64)
        case suspendCancelled(epoch: UInt64)
        case programSuspended
        case backgroundTimeExpiring(Duration)
        /// A supervisor that came back has not granted this task again.
        case taskLost(BackgroundTask, expired: @Sendable (BackgroundTask, Duration) -> Void)
        case willTerminate(Duration)
        case connectionLost(NightbellError)
        case reconnected
        case socketLost(ParkedSocket, NightbellError)
        case keepAliveLost(NightbellError)
        case restored(LaunchContext)
    }

    package enum Action {
        case send(WireClientMessage, descriptors: [CInt] = [])
        case disconnect
        case notify(Notice)
        /// Send these again before all messages that wait to be sent, except those that wait themselves, and
        /// then send the last.
        case sendAgain([Repetition], then: WireClientMessage)
    }

    /// A message that was sent to a supervisor that may have ended without having answered.
    package struct Repetition {
        package var message: WireClientMessage
        package var descriptors: [CInt] = []
    }

    package enum Phase {
        /// A connection is being made.
        case connecting(attempt: Int)
        /// There is one, and the client registers and restores its state step by step.
        case restoring(Restoration)
        case connected(since: Int64)
        /// There is none, and no attempt is made until then.
        case waiting(attempt: Int, until: Int64)
        case closed(NightbellError)
    }

    package struct Welcome: Sendable, Equatable {
        package var minimumKeepAliveTimeout: Duration = .zero
        package var suspension = ""
        package var wakeBudget: Duration = .zero
        /// Empty: there are no transfers.
        package var transferSocket = ""
        /// Empty: there is no push service.
        package var pushSocket = ""
    }

    package static let firstPause: Int64 = 50_000_000
    package static let longestPause: Int64 = 2_000_000_000

    package internal(set) var hello: WireHello
    package let reconnects: Bool
    package let requestTimeout: Int64
    /// Whether the client needs a supervisor.
    package let requiresSupervisor: Bool

    package var phase = Phase.connecting(attempt: 0)
    package var requests = RequestTable()
    package var holdings = Holdings()
    package var welcome = Welcome()
    /// State and sockets of the last process.
    package private(set) var launchContext: LaunchContext?
    /// Counts connections that ended, to detect messages that arrived on an earlier one.
    package var connection: UInt64 = 0
    /// The first registration was made by the caller: its failure is thrown, not passed to handlers.
    package var hasRegistered = false
    /// The supervisor's announced reason for closing the connection, if any.
    package var announcedEnd: NightbellError?
    /// Another worker has taken over this connection: repeated messages are ignored.
    package var hasRestarted = false
    package var lastWakeID: UInt64 = 0
    /// The handlers were told to enter the background, and have not finished.
    package var isToldToEnterBackground = false
    package var isToldOfTermination = false
    /// How often the first registration was lost with its connection.
    package var lostRegistrations = 0
    /// `EnterBackground` was repeated for a new supervisor: its answer is not passed to the handlers.
    package var isReentering = false

    package init(
        hello: WireHello, reconnects: Bool, requestTimeout: Int64, requiresSupervisor: Bool = true
    ) {
        self.requiresSupervisor = requiresSupervisor
        self.hello = hello
        self.reconnects = reconnects
        self.requestTimeout = requestTimeout
    }

    package var isConnected: Bool {
        if case .connected = phase { true } else { false }
    }

    package var closure: NightbellError? {
        if case .closed(let error) = phase { error } else { nil }
    }

    /// The Welcome about to be received carries the state and sockets of the last process.
    package mutating func inherit(
        _ sockets: [(token: UInt64, socket: NewSocket)], state: [UInt8], wasLaunched: Bool
    ) -> [Action] {
        let context = LaunchContext(
            wasLaunched: wasLaunched, sockets: sockets.map { holdings.park($0.socket, token: $0.token) },
            state: state)
        holdings.state = state
        // A client that was launched starts in the background.
        if wasLaunched { holdings.ground = .background }
        launchContext = context
        return [.notify(.restored(context))]
    }

    // MARK: Time

    /// The time at which `tick` has work, in nanoseconds of the clock that counts while asleep; nil: never.
    package var nextDeadline: Int64? {
        switch phase {
        case .connecting, .connected, .closed: nil
        case .restoring(let restoration): min(restoration.deadline, keepAliveDue ?? .max)
        case .waiting(_, let until): min(until, keepAliveDue ?? .max)
        }
    }

    /// Without a supervisor the library runs the keep-alive handler, in the background as always.
    private var keepAliveDue: Int64? {
        switch holdings.ground {
        case .leaving, .background: holdings.keepAlive?.aim
        case .undeclared, .foreground: nil
        }
    }

    package enum Tick {
        case nothing([Action])
        /// Connect, then call `connectionMade` or `connectionFailed`.
        case connect
    }

    package mutating func tick(at now: Int64) -> Tick {
        switch phase {
        case .connecting, .connected, .closed:
            return .nothing([])
        case .restoring(let restoration):
            guard now >= restoration.deadline else { return .nothing(runKeepAlive(at: now)) }
            return .nothing(lost(NightbellError(.requestTimedOut, "while registering"), at: now))
        case .waiting(let attempt, let until):
            let actions = runKeepAlive(at: now)
            guard actions.isEmpty, now >= until else { return .nothing(actions) }
            phase = .connecting(attempt: attempt)
            return .connect
        }
    }

    private mutating func runKeepAlive(at now: Int64) -> [Action] {
        guard let due = keepAliveDue, now >= due else { return [] }
        return [keepAliveRuns(at: now)]
    }

    mutating func keepAliveRuns(at now: Int64) -> Action {
        holdings.keepAlive?.lastRun = now
        holdings.keepAlive?.isDue = true
        return .notify(.keepAlive)
    }

    // MARK: Connections

    /// - Parameter gone: parked sockets with descriptors that no longer refer to the same open file.
    package mutating func connectionMade(gone: [UInt64] = [], at now: Int64) -> [Action] {
        switch phase {
        case .connecting(let attempt):
            announcedEnd = nil
            isReentering = false
            var actions: [Action] = []
            for id in gone.sorted() {
                guard let socket = holdings.remove(id) else { continue }
                let error = NightbellError(.descriptorGone, "descriptor \(socket.descriptor)")
                actions.append(.notify(.socketLost(socket, error)))
            }
            return actions + beginRestoration(attempt: attempt, at: now)
        case .restoring, .connected, .waiting, .closed:
            // Closed while the connection was being made.
            return [.disconnect]
        }
    }

    /// No supervisor was there, and the client needs none: the library keeps looking for one.
    package mutating func startAlone(at now: Int64) {
        hasRegistered = true
        phase = waiting(after: 0, at: now)
    }

    package mutating func connectionFailed(_ error: NightbellError, at now: Int64) {
        switch phase {
        case .connecting(let attempt):
            phase = hasRegistered ? waiting(after: attempt, at: now) : .closed(error)
        case .restoring, .connected, .waiting, .closed:
            break
        }
    }

    /// The connection ended, or has to.
    package mutating func lost(_ reason: NightbellError, at now: Int64) -> [Action] {
        let error = announcedEnd ?? reason
        announcedEnd = nil
        switch phase {
        case .connected(let since):
            // Do not reconnect in a tight loop to a supervisor that drops the connection at once.
            let attempt = now - since >= Self.longestPause ? 0 : 1
            connectionEnded(error)
            phase = error.isFinal || !reconnects ? .closed(error) : waiting(after: attempt, at: now)
            return [.disconnect, .notify(.connectionLost(error))]
        case .restoring(let restoration):
            connectionEnded(error)
            if !hasRegistered {
                // The supervisor may have been replaced at just this moment, before it recorded this client.
                let isToTryAgain = error.code == .connectionLost && lostRegistrations < 3
                lostRegistrations += 1
                phase = isToTryAgain ? .connecting(attempt: 0) : .closed(error)
                return [.disconnect]
            }
            if error.isFinal {
                phase = .closed(error)
                return [.disconnect, .notify(.connectionLost(error))]
            }
            phase = waiting(after: restoration.attempt, at: now)
            // The handlers already know that there is no supervisor, but not that another process has taken
            // this client's place.
            return error.code == .identifierInUse
                ? [.disconnect, .notify(.connectionLost(error))] : [.disconnect]
        case .connecting, .waiting, .closed:
            return []
        }
    }

    package mutating func close() -> [Action] {
        if case .closed = phase { return [] }
        let error = NightbellError(.closed, "")
        connectionEnded(error)
        phase = .closed(error)
        return [.disconnect]
    }

    private func waiting(after attempt: Int, at now: Int64) -> Phase {
        let pause = min(Self.longestPause, Self.firstPause << Int64(min(attempt, 16)))
        return .waiting(attempt: attempt + 1, until: now + pause)
    }

    private mutating func connectionEnded(_ error: NightbellError) {
        connection += 1
        isReentering = false
        hasRestarted = false
        lastWakeID = 0
        isToldToEnterBackground = false
        for (number, request) in requests.orphan() {
            requests.resolve(number, outcome(of: request, lostWith: error))
        }
        holdings.forgetNames()
    }
}

extension NightbellError {
    /// Connecting again would fail the same way.
    package var isFinal: Bool {
        switch code {
        case .unsupportedVersion, .invalidIdentifier, .identifierOfOtherUser: true
        default: false
        }
    }
}
