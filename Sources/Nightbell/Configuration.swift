extension Client {
    /// The identity of the client and how the library is driven.
    public struct Configuration: Sendable {
        /// Where the handlers run.
        public enum Driver: Sendable, Hashable {
            /// A thread of the library's own reads what the supervisor sends and runs the handlers.
            case ownThread
            /// No thread: the program polls ``Client/fileDescriptor`` and calls ``Client/processPending()``.
            case manual
        }

        /// Reverse-domain style, 1 to 128 characters out of `A-Z a-z 0-9 . _ -`, unique among running
        /// clients.
        public var identifier: String
        public var modes: Set<Mode>
        /// Where the supervisor listens; nil looks it up, see ``defaultSocketPath()``.
        public var socketPath: String?
        public var wakeLimitPolicy: WakeLimitPolicy = .linger
        /// Whether the client is terminated (``Handlers/willTerminate``) when it leaves the foreground,
        /// instead of being suspended.
        public var exitsOnSuspend: Bool = false
        public var driver: Driver = .ownThread
        /// Whether a supervisor must be there. If not, the client can run without one, awake, even from the
        /// start: the library records its sockets and settings, runs its keep-alive handler and grants
        /// background tasks, and passes all of it to a supervisor as soon as there is one
        /// (``Handlers/reconnected``).
        public var requiresSupervisor: Bool = true
        /// Whether to reconnect, until it succeeds, after the supervisor went away.
        public var reconnects: Bool = true
        /// An unmodified program that this client speaks for; nil: the client is this process.
        package var program: Program?
        /// How long a request waits for its answer. Time in which the process was suspended does not count.
        public var requestTimeout: Duration = .seconds(5)

        /// - Parameters:
        ///   - identifier: nil takes `NIGHTBELL_IDENTIFIER` from the environment, which `nightbell run` sets;
        ///     without either, ``Client/init(_:handlers:)`` throws ``NightbellError/Code/invalidIdentifier``.
        ///   - modes: what the client declares that it does.
        ///   - socketPath: where the supervisor listens; nil looks it up, see ``defaultSocketPath()``.
        ///   - requiresSupervisor: false lets the client run, awake, without one: see ``requiresSupervisor``.
        public init(
            identifier: String? = nil, modes: Set<Mode> = [.voip], socketPath: String? = nil,
            requiresSupervisor: Bool = true
        ) {
            self.identifier = identifier ?? Environment.value("NIGHTBELL_IDENTIFIER") ?? ""
            self.modes = modes
            self.socketPath = socketPath
            self.requiresSupervisor = requiresSupervisor
        }

        /// `NIGHTBELL_SOCKET` if set, else the user's own supervisor at
        /// `$XDG_RUNTIME_DIR/nightbell/nightbell.sock` if that exists, else `/run/nightbell/nightbell.sock`.
        public static func defaultSocketPath() -> String { Environment.socketPath() }

        /// Where the push service of that supervisor listens, unless configured otherwise:
        /// `$XDG_RUNTIME_DIR/nightbell/push.sock`, else `/run/nightbell-gateway/push.sock`.
        package static func defaultPushSocketPath() -> String { Environment.pushSocketPath() }
    }

    /// A process of the same user that is suspended and woken as it is.
    package struct Program: Sendable, Hashable {
        package var processID: Int32
        /// In clock ticks since boot, so that a reused pid is not mistaken for it.
        package var startTime: UInt64
        /// Whether this client has systemd suspend it, instead of the supervisor.
        package var isSuspendedBySystemd = false

        package init(processID: Int32, startTime: UInt64) {
            self.processID = processID
            self.startTime = startTime
        }
    }

    /// Callbacks of the library, one at a time, on its own thread or inside ``Client/processPending()``.
    ///
    /// A handler may make requests. No other handler starts before it has returned.
    public struct Handlers: Sendable {
        /// This process takes over from the client's last one. Called before all other handlers, and only in
        /// this case; ``Client/launchContext`` has the same value.
        public var restored: @Sendable (LaunchContext) -> Void = { _ in }
        /// The client was woken. Return when the work is done or covered by a background task.
        public var wake: @Sendable (Wake) -> Void = { _ in }
        /// The machine has another network. The sockets are those that cannot work over it: release them, and
        /// connect again. nil, the default: the client is not woken for that, and only told (``wake``, with
        /// ``WakeReasons/pathLost``) of sockets with a local address that the machine has lost. Called after
        /// ``wake``.
        public var networkChanged: (@Sendable (_ lost: [ParkedSocket]) -> Void)?
        /// It is a good moment to fetch new content. Called after ``wake``; return soon, and call
        /// ``Fetch/complete(_:)`` when it is done. ``fetching(_:)`` sets an asynchronous function instead.
        public var fetch: @Sendable (Fetch) -> Void = { $0.complete(.failed) }
        /// Messages wait at the push service. Called after ``wake``; return soon, and call
        /// ``Pushes/complete(_:)`` when they are handled. ``handlingPushes(_:)`` sets an asynchronous function
        /// for each message instead.
        public var push: @Sendable (Pushes) -> Void = { $0.complete(.failed) }
        /// The time of a notification has come while the client is in the foreground. Called after ``wake``.
        public var notificationDelivered: @Sendable (NotificationDelivery) -> Void = { _ in }
        /// A person has activated a notification; also in a process that was launched for that. Called after
        /// ``wake``. It is told to the next process as well if this one ends before it has finished the wake.
        public var notificationActivated: @Sendable (NotificationActivation) -> Void = { _ in }
        /// The client will be suspended: stop reading, and return the sockets with work left, such as bytes
        /// that were read but not handled, TLS plaintext included. A returned socket cancels the suspension.
        public var prepareToSuspend: @Sendable () -> [ParkedSocket] = { [] }
        /// The announced suspension is cancelled: read on.
        public var suspendCancelled: @Sendable () -> Void = {}
        /// The unmodified program is suspended (``Client/Configuration/program``).
        package var programSuspended: @Sendable () -> Void = {}
        /// The client left the foreground. Save what must be saved within the supervisor's budget (5 s).
        public var didEnterBackground: @Sendable () -> Void = {}
        /// Background tasks still run and their time is nearly up: end them, or the client is terminated. A
        /// task can have a handler of its own, see ``Client/beginBackgroundTask(_:expired:)``.
        public var backgroundTimeExpiring: @Sendable (_ remaining: Duration) -> Void = { _ in }
        /// The supervisor is about to end the process: exit within this time, or it is killed.
        public var willTerminate: @Sendable (_ budget: Duration) -> Void = { _ in }
        /// The connection ended. No socket is watched and the client is not suspended until ``reconnected``.
        ///
        /// With ``NightbellError/Code/identifierInUse``: a reconnection was refused, because another process
        /// goes by this client's identifier now, for example one that was launched in its place. This process
        /// should end; until it does it tries again, and each refusal is reported.
        public var connectionLost: @Sendable (NightbellError) -> Void = { _ in }
        /// The supervisor is back, and everything has been handed over and set again.
        public var reconnected: @Sendable () -> Void = {}
        /// The supervisor that came back refused this socket: its handle is invalid, its descriptor the
        /// caller's.
        public var socketLost: @Sendable (ParkedSocket, NightbellError) -> Void = { _, _ in }
        /// The supervisor that came back refused the keep-alive timeout: none is set now.
        public var keepAliveLost: @Sendable (NightbellError) -> Void = { _ in }

        public init() {}

        /// Has an asynchronous function fetch. It runs in a task of its own, which is cancelled shortly
        /// before the time is over; its result is reported then, too.
        public mutating func fetching(_ operation: @escaping @Sendable () async -> FetchResult) {
            fetch = { fetch in
                Task {
                    let work = Task { await operation() }
                    let limit = Task {
                        try await Task.sleep(for: fetch.budget * 0.9)
                        work.cancel()
                    }
                    fetch.complete(await work.value)
                    limit.cancel()
                }
            }
        }

        /// Has an asynchronous function handle each message that is pushed. It runs in a task of its own, which
        /// is cancelled shortly before the time is over. A message is acknowledged when the function has
        /// returned, unless with ``FetchResult/failed``: then it is given out again later.
        public mutating func handlingPushes(
            _ operation: @escaping @Sendable (PushMessage) async -> FetchResult
        ) {
            push = { pushes in
                Task {
                    let work = Task { await pushes.handleAll(operation) }
                    let limit = Task {
                        try await Task.sleep(for: pushes.budget * 0.9)
                        work.cancel()
                    }
                    pushes.complete(await work.value)
                    limit.cancel()
                }
            }
        }

        /// Handlers for a client that only handles wakes.
        public init(wake: @escaping @Sendable (Wake) -> Void) { self.wake = wake }
    }
}
