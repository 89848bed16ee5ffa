/// The client's sockets and settings, which a supervisor needs again after a reconnection. Pure.
package struct Holdings {
    package struct Parked {
        package var socket: ParkedSocket
        package var file: FileIdentity
        package var survives: Bool
        /// The supervisor's name for the socket; nil while no supervisor knows it.
        package var token: UInt64?
        package var profile: Profile?
        package var isEncrypted = false
        package var isRouted = false
        package var receiveBuffer: UInt32 = 0
        /// The state delegated with the profile at each suspension.
        package var delegatedState: DelegatedState?
        package var isDelegatedStateLost = false
    }

    package struct KeepAlive {
        package var milliseconds: UInt64
        package var handler: @Sendable () -> Void
        /// When the handler ran last, or the timeout was set.
        package var lastRun: Int64
        /// The handler is about to run. A newly set one is not.
        package var isDue = false

        private var nanoseconds: Int64 { Int64(clamping: milliseconds).multipliedClamping(1_000_000) }

        /// The latest time to run, in nanoseconds.
        package var due: Int64 { lastRun &+ nanoseconds }

        /// The time at which the library runs it: a little earlier, so that a delay does not make it late.
        package var aim: Int64 { due - min(Self.lead, nanoseconds / 2) }

        package static let lead: Int64 = 250_000_000
    }

    package struct Task {
        package var name: String
        package var wireID: UInt64?
        package var expired: (@Sendable (BackgroundTask, Duration) -> Void)?
    }

    package enum Ground { case undeclared, foreground, leaving, background }

    package private(set) var sockets: [UInt64: Parked] = [:]
    private var socketsByToken: [UInt64: UInt64] = [:]
    package var tasks: [UInt64: Task] = [:]
    package var keepAlive: KeepAlive?
    /// The state saved for the next process.
    package var state: [UInt8] = []
    package var hibernates = false
    /// The interval that was set in this process.
    package var fetchInterval: FetchInterval?
    /// The observations that were begun in this process, by name.
    package var observations: [String: Subject] = [:]
    /// `leaving`: the background was requested, but the client's handler for entering it has not run yet.
    package var ground = Ground.undeclared
    /// A socket has, or had, a profile.
    package private(set) var hasProfiles = false
    private var lastID: UInt64 = 0

    /// - Parameter token: nil while no supervisor knows it.
    package mutating func park(_ new: NewSocket, token: UInt64?) -> ParkedSocket {
        let socket = ParkedSocket(id: nextID(), descriptor: new.descriptor, tag: new.tag, name: new.name)
        sockets[socket.id] = Parked(
            socket: socket, file: new.file, survives: new.survives, token: token, profile: new.profile,
            isEncrypted: new.isEncrypted, isRouted: new.isRouted, receiveBuffer: new.receiveBuffer)
        if new.profile != nil { hasProfiles = true }
        if let token { socketsByToken[token] = socket.id }
        return socket
    }

    package mutating func reparked(_ id: UInt64, token: UInt64) {
        sockets[id]?.token = token
        socketsByToken[token] = id
    }

    package mutating func storeDelegated(
        _ delegatedState: DelegatedState?, _ id: UInt64, isLost: Bool = false
    ) {
        sockets[id]?.delegatedState = delegatedState
        sockets[id]?.isDelegatedStateLost = isLost
    }

    @discardableResult package mutating func remove(_ id: UInt64) -> ParkedSocket? {
        guard let parked = sockets.removeValue(forKey: id) else { return nil }
        if let token = parked.token { socketsByToken[token] = nil }
        return parked.socket
    }

    package func socket(of token: UInt64) -> ParkedSocket? {
        guard let id = socketsByToken[token] else { return nil }
        return sockets[id]?.socket
    }

    package func token(of socket: ParkedSocket) -> UInt64? {
        guard let parked = sockets[socket.id], parked.socket == socket else { return nil }
        return parked.token
    }

    package func contains(_ socket: ParkedSocket) -> Bool { sockets[socket.id]?.socket == socket }

    /// - Parameter wireID: 0 for a task that is not granted, nil while no supervisor is there.
    package mutating func begin(
        _ name: String, wireID: UInt64?, expired: (@Sendable (BackgroundTask, Duration) -> Void)? = nil
    ) -> BackgroundTask {
        guard wireID != 0 else { return BackgroundTask(id: 0, name: name) }
        let task = BackgroundTask(id: nextID(), name: name)
        tasks[task.id] = Task(name: name, wireID: wireID, expired: expired)
        return task
    }

    /// The active tasks with handlers of their own, oldest first.
    package var expiring: [BackgroundTask] {
        tasks.filter { $0.value.expired != nil }.sorted { $0.key < $1.key }
            .map { BackgroundTask(id: $0.key, name: $0.value.name) }
    }

    /// Returns the handler once if it is due now.
    package mutating func takeDueKeepAlive() -> (@Sendable () -> Void)? {
        guard keepAlive?.isDue == true else { return nil }
        keepAlive?.isDue = false
        return keepAlive?.handler
    }

    /// The connection ended, and the supervisor's tokens are invalid.
    package mutating func forgetNames() {
        socketsByToken = [:]
        for id in sockets.keys { sockets[id]?.token = nil }
        for id in tasks.keys { tasks[id]?.wireID = nil }
    }

    private mutating func nextID() -> UInt64 {
        lastID += 1
        return lastID
    }
}

extension Int64 {
    package func multipliedClamping(_ factor: Int64) -> Int64 {
        let (product, overflow) = multipliedReportingOverflow(by: factor)
        return overflow ? .max / 4 : Swift.min(product, .max / 4)
    }
}
