import LinuxSystem
import NightbellWire

/// A client of the Nightbell supervisor: a process that may be suspended while its connections stay alive.
///
/// All methods may be called from any thread and from inside handlers. Those that ask the supervisor block
/// until it has answered, for at most ``Configuration/requestTimeout``.
///
/// The client belongs to the process that made it: in a child made by fork(2) every request throws
/// ``NightbellError/Code/forked``, and the parent's connection is left alone.
public final class Client: Sendable {
    let session: Session
    private let driver: Configuration.Driver

    /// Connects to the supervisor and registers. Blocks for at most the request timeout.
    ///
    /// With ``Configuration/Driver/ownThread`` handlers may run before this returns.
    ///
    /// - Throws: ``NightbellError/Code/cannotConnect`` if no supervisor is there and one is required
    ///   (``Configuration/requiresSupervisor``), or the supervisor's reason to refuse this client, such as
    ///   ``NightbellError/Code/identifierInUse``.
    public init(_ configuration: Configuration, handlers: Handlers = Handlers()) throws(NightbellError) {
        driver = configuration.driver
        session = try Session(configuration, handlers)
        try session.register()
        switch driver {
        case .ownThread: try session.startThread()
        case .manual: break
        }
    }

    deinit { session.close() }

    // MARK: Settings from the supervisor

    /// The identifier by which the supervisor knows this client: that of its launch, or of
    /// `nightbell run --identifier`, else ``Configuration/identifier``.
    public var identifier: String { session.core.withLock { $0.state.hello.identifier } }

    /// The shortest timeout that ``setKeepAliveTimeout(_:handler:)`` accepts.
    public var minimumKeepAliveTimeout: Duration {
        session.core.withLock { $0.state.welcome.minimumKeepAliveTimeout }
    }

    /// How this client is suspended: `cgroup`, `signal` or `none`.
    public var suspensionMethod: String { session.core.withLock { $0.state.welcome.suspension } }

    /// Whether a supervisor is connected that knows all sockets and settings of this client.
    public var isConnected: Bool { session.core.withLock { $0.state.isConnected } }

    // MARK: Recovery

    /// Sockets that survived and state from ``saveState(_:)``, if this process takes over from the client's
    /// last one. Also passed to ``Handlers/restored``.
    public var launchContext: LaunchContext? { session.core.withLock { $0.state.launchContext } }

    /// Saves state for the next process of this client, and replaces what was saved before; an empty array
    /// clears it. The state is also dropped when the user quits the client, and when it crashes twice in a
    /// row at its start.
    ///
    /// May be called while preparing for suspension. Kept in the supervisor's memory, not on disk.
    ///
    /// - Parameter bytes: at most 65,536 by default.
    /// - Throws: ``NightbellError/Code/stateTooLarge``; ``NightbellError/Code/cannotLaunch`` if there will be
    ///   no next process because the supervisor does not know how to start this program.
    public func saveState(_ bytes: [UInt8]) throws(NightbellError) {
        _ = try session.request(.saveState(bytes))
    }

    /// From now on the supervisor ends this process instead of suspending it: after
    /// ``Handlers/prepareToSuspend``, without further notice. Sockets that survive stay parked, and an event
    /// on one of them launches the client again.
    ///
    /// - Throws: ``NightbellError/Code/cannotLaunch``.
    public func hibernate() throws(NightbellError) { _ = try session.request(.hibernate) }

    // MARK: Sockets

    /// A descriptor for ``handOver(_:)``.
    public struct SocketToPark: Sendable, Hashable {
        public var descriptor: CInt
        public var tag: SocketTag
        /// For people to read; at most 64 bytes.
        public var name: String
        /// How its keep-alives are handled while the client sleeps; for ``SocketTag/voip`` only.
        public var profile: Profile?
        /// The bytes of the connection are encrypted. Profiles that read or write messages are refused then,
        /// unless the kernel does the encryption.
        public var isEncrypted: Bool
        /// Whether it stays parked after this process has ended, unless its user quit it, so that an event on
        /// it launches the client again.
        public var survives: Bool
        /// The size in bytes that `SO_RCVBUF` has while the client sleeps; 0, or less than the current size,
        /// leaves the option alone. For UDP sockets only. The kernel grants no more than `net.core.rmem_max`.
        public var receiveBuffer: Int

        public init(
            _ descriptor: CInt, as tag: SocketTag, name: String = "", survives: Bool = false,
            profile: Profile? = nil, isEncrypted: Bool = false, receiveBuffer: Int = 0
        ) {
            self.descriptor = descriptor
            self.tag = tag
            self.name = name
            self.profile = profile
            self.isEncrypted = isEncrypted
            self.survives = survives
            self.receiveBuffer = receiveBuffer
        }
    }

    /// Hands a descriptor over: from now on the supervisor watches it while the client is suspended.
    ///
    /// The descriptor and its options stay the caller's. The supervisor holds a duplicate of it, so the peer
    /// does not notice when only the descriptor is closed: ``release(_:)`` it first, or use
    /// ``close(socket:)``. This library keeps only the number, to hand it over again after a reconnection.
    ///
    /// - Parameters:
    ///   - descriptor: any pollable descriptor.
    ///   - tag: what it is.
    ///   - name: a label to read, by which the next process tells its sockets apart; at most 64 bytes.
    ///   - survives: whether the socket stays parked when this process is gone, and launches the client
    ///     again. For programs that the supervisor knows how to start: by `nightbell run`, or from a
    ///     manifest.
    ///   - profile: how its keep-alives are handled while the client sleeps, or is gone and the socket
    ///     survives.
    ///   - isEncrypted: its bytes are encrypted, see ``SocketToPark/isEncrypted``.
    ///   - receiveBuffer: its receive buffer while the client sleeps, see ``SocketToPark/receiveBuffer``.
    /// - Throws: the reason why it is refused, such as ``NightbellError/Code/notPollable``,
    ///   ``NightbellError/Code/listeningSocket``, ``NightbellError/Code/notConnected``,
    ///   ``NightbellError/Code/modeRequired``, ``NightbellError/Code/tooManySockets`` or
    ///   ``NightbellError/Code/invalidProfile``; ``NightbellError/Code/disconnected`` while no supervisor is
    ///   there, unless the client can do without one (``Configuration/requiresSupervisor``).
    public func handOver(
        _ descriptor: CInt, as tag: SocketTag, name: String = "", survives: Bool = false,
        profile: Profile? = nil, isEncrypted: Bool = false, receiveBuffer: Int = 0
    ) throws(NightbellError) -> ParkedSocket {
        let socket = SocketToPark(
            descriptor, as: tag, name: name, survives: survives, profile: profile, isEncrypted: isEncrypted,
            receiveBuffer: receiveBuffer)
        guard let result = try handOver([socket]).first else {
            throw NightbellError(.malformedAnswer, "no adoption")
        }
        return try result.get()
    }

    /// Hands over many descriptors, 250 in a packet. Returns one result for each, in order; the call as a
    /// whole throws only if no request could be sent at all.
    public func handOver(
        _ sockets: [SocketToPark]
    ) throws(NightbellError) -> [Result<ParkedSocket, NightbellError>] {
        var results: [Result<ParkedSocket, NightbellError>] = []
        for start in stride(from: 0, to: sockets.count, by: Request.socketsPerPacket) {
            let batch = sockets[start..<min(start + Request.socketsPerPacket, sockets.count)]
            do throws(NightbellError) {
                results += try handOverBatch(batch)
            } catch {
                if start == 0 { throw error }
                results += batch.map { _ in .failure(error) }
            }
        }
        return results
    }

    private func handOverBatch(
        _ batch: ArraySlice<SocketToPark>
    ) throws(NightbellError) -> [Result<ParkedSocket, NightbellError>] {
        let checked = batch.map { socket in Result { () throws(NightbellError) in try socket.checked() } }
        let good = checked.compactMap { try? $0.get() }
        guard !good.isEmpty else { return checked.map { $0.flatMap { _ in .failure(.wrongAnswer) } } }
        guard case .sockets(let adopted) = try session.request(.handOver(good)) else {
            throw NightbellError.wrongAnswer
        }
        var answers = adopted.makeIterator()
        return checked.map { $0.flatMap { _ in answers.next() ?? .failure(.wrongAnswer) } }
    }

    /// Ends the adoption: the supervisor closes its duplicate. The descriptor stays open and the caller's.
    ///
    /// Also succeeds without a supervisor: the socket is then not handed over again.
    ///
    /// - Throws: ``NightbellError/Code/invalidToken`` if it was released before, or lost.
    public func release(_ socket: ParkedSocket) throws(NightbellError) {
        _ = try session.request(.release(socket))
        session.forgetWatch(socket)
    }

    /// Releases the socket, then closes its descriptor. The peer learns of the close when the keeper has
    /// closed its duplicate too, which follows without further action of the client.
    ///
    /// If the release fails, because the handle is invalid or the supervisor does not answer, the descriptor
    /// stays open.
    public func close(socket: ParkedSocket) throws(NightbellError) {
        try release(socket)
        OwnedDescriptor(adopting: socket.descriptor).close()
    }

    // MARK: Life cycle

    /// The client leaves the foreground. ``Handlers/didEnterBackground`` follows; once it has returned and no
    /// background task is held, the client may be suspended at any time.
    public func enterBackground() throws(NightbellError) { _ = try session.request(.enterBackground) }

    /// The client is in use: it is not suspended until ``enterBackground()``.
    public func enterForeground() throws(NightbellError) { _ = try session.request(.enterForeground) }

    /// Reports why an unmodified program is awake, for people to read. Does nothing without a supervisor.
    package func reportAwake(_ reason: String) { session.reportAwake(reason) }

    /// Reports that the memory of an unmodified program was written to swap, or cannot be. Does nothing
    /// without a supervisor.
    package func reportPagedOut(_ pagedOut: ClientInfo.PagedOut) { session.reportPagedOut(pagedOut) }

    // MARK: Keep-alive

    /// Runs `handler` at least this often while the client is in the background, suspended or not: a little
    /// early if it can share the moment with others, never late. Replaces an earlier handler. Needs
    /// ``Mode/voip``.
    ///
    /// While no supervisor is there, the library itself runs the handler in time. A handler that is replaced
    /// during a wake does not run in that wake any more, nor does the new one. After a supervisor was
    /// replaced, the pause between two runs can once be up to half as long again.
    ///
    /// - Parameters:
    ///   - timeout: at least ``minimumKeepAliveTimeout``, at most 30 days; counted in whole milliseconds.
    ///   - handler: called like all handlers, after the wake handler. Its time counts against the wake's
    ///     budget.
    /// - Throws: ``NightbellError/Code/timeoutTooShort``, ``NightbellError/Code/timeoutTooLong``,
    ///   ``NightbellError/Code/modeRequired``.
    public func setKeepAliveTimeout(
        _ timeout: Duration, handler: @escaping @Sendable () -> Void
    ) throws(NightbellError) {
        let milliseconds = timeout.wholeNanoseconds / 1_000_000
        guard milliseconds > 0 else {
            throw NightbellError(.invalidArgument, "a keep-alive timeout of \(timeout)")
        }
        _ = try session.request(.setKeepAlive(milliseconds: UInt64(milliseconds), handler: handler))
    }

    /// Does nothing if no timeout is set.
    public func clearKeepAliveTimeout() throws(NightbellError) { _ = try session.request(.clearKeepAlive) }

    // MARK: Fetch

    /// Has ``Handlers/fetch`` called now and then while the client is in the background, suspended or not;
    /// also in a process that is launched for it. The supervisor chooses the moments: shortly before the
    /// client is usually brought to the foreground. It remembers the interval, also when the process has
    /// ended. Needs ``Mode/fetch``.
    ///
    /// - Throws: ``NightbellError/Code/modeRequired``.
    public func setMinimumFetchInterval(_ interval: FetchInterval) throws(NightbellError) {
        _ = try session.request(.setFetchInterval(interval))
    }

    // MARK: Observations

    /// Has the client woken when something happens to `subject`: ``Wake/occurrences`` tells what. Replaces
    /// the observation of the same name.
    ///
    /// Observations stay with a client that can be launched while it has no process, and launch it, except of
    /// ``Subject/continuousLocation(distance:accuracy:)`` and
    /// ``Subject/foregroundLocation(distance:accuracy:)``. After a quit by its user only location services
    /// remain. A new process should call this again, although it inherits them: what it has asked for itself
    /// is asked for again when a supervisor has started without the records of the one before.
    ///
    /// - Parameter name: 1 to 64 bytes.
    /// - Throws: ``NightbellError/Code/modeRequired``: ``Mode/location``, ``Mode/bluetoothCentral`` or
    ///   ``Mode/externalAccessory``; ``NightbellError/Code/tooManyObservations``;
    ///   ``NightbellError/Code/invalidArgument`` if a value is out of its range.
    public func observe(_ name: String, _ subject: Subject) throws(NightbellError) {
        _ = try session.request(.observe(name, subject))
    }

    /// Ends an observation; does nothing if there is none of this name.
    public func stopObserving(_ name: String) throws(NightbellError) {
        _ = try session.request(.stopObserving(name))
    }

    // MARK: Assertions

    /// Asks not to be suspended until ``end(_:)``. All tasks of a client together have the supervisor's
    /// budget (180 s by default): a client that has not ended them by then is terminated.
    ///
    /// - Parameters:
    ///   - name: for people to read; at most 64 bytes.
    ///   - expired: called when the time is nearly up (about 5 s before) and this task has not ended: end
    ///     it, or the client is terminated. It receives the task and the remaining time, which is zero if a
    ///     supervisor that came back did not grant the task again. Runs after
    ///     ``Handlers/backgroundTimeExpiring``.
    /// - Returns: a task with ``BackgroundTask/isValid`` false when the time is up already, or so nearly that
    ///   `expired` could not be run in time.
    public func beginBackgroundTask(
        _ name: String = "", expired: (@Sendable (BackgroundTask, _ remaining: Duration) -> Void)? = nil
    ) throws(NightbellError) -> BackgroundTask {
        try Self.check(name: name)
        guard case .task(let task) = try session.request(.beginTask(name: name, expired: expired)) else {
            throw NightbellError.wrongAnswer
        }
        return task
    }

    /// Ends a background task; does nothing with an invalid one.
    ///
    /// - Throws: ``NightbellError/Code/invalidTask`` if it has ended before.
    public func end(_ task: BackgroundTask) throws(NightbellError) {
        _ = try session.request(.endTask(task))
    }

    /// How long background tasks may still run.
    public func backgroundTimeRemaining() throws(NightbellError) -> BackgroundTimeRemaining {
        guard case .time(let time) = try session.request(.timeRemaining) else {
            throw NightbellError.wrongAnswer
        }
        return time
    }

    /// Reports that media plays or is recorded, which delays suspension for 5 s by default: repeat it while
    /// it lasts. Needs ``Mode/audio``. Where PipeWire runs, a stream of the client's delays suspension
    /// instead, for as long as it runs and is not muted.
    ///
    /// - Throws: ``NightbellError/Code/noStream`` if this has no effect, because PipeWire knows of no such
    ///   stream, or only of one that has ended, which counts for 5 s more: a call that is held needs another
    ///   reason to run, such as ``enterForeground()``; ``NightbellError/Code/modeRequired``.
    public func mediaActivity() throws(NightbellError) { _ = try session.request(.media) }

    // MARK: Driving

    /// The client's wakes, for one consumer at a time.
    ///
    /// Once this is read, wakes are buffered for the consumer, and a wake counts as done only when the
    /// consumer asks for the next. Dropping the sequence or cancelling the task that iterates ends that.
    public var wakes: Wakes { Wakes(Wakes.Subscription(session)) }

    /// For ``Configuration/Driver/manual``: readable whenever ``processPending()`` has work. Poll it, do not
    /// read it. It stays the same for the life of the client, also across reconnection.
    public var fileDescriptor: CInt { session.watcher.rawValue }

    /// For ``Configuration/Driver/manual``: reads waiting messages, runs handlers, and reconnects when that
    /// is due. Never waits for the supervisor. Does nothing inside a handler.
    ///
    /// - Throws: ``NightbellError/Code/closed`` once the client is closed or its connection has ended for
    ///   good.
    public func processPending() throws(NightbellError) {
        if session.isForked { throw NightbellError(.forked, "") }
        switch driver {
        case .manual: session.processPending()
        case .ownThread: break
        }
        let closure = session.core.withLock { $0.state.closure }
        if let closure {
            throw NightbellError(.closed, closure.code == .closed ? "" : closure.description.withoutFullStop)
        }
    }

    /// Ends the connection: the supervisor drops all sockets and forgets the client. No handler starts after
    /// this; one that runs on another thread may still be running.
    public func close() { session.close() }

    static func check(name: String) throws(NightbellError) {
        guard name.utf8.count <= 64 else {
            throw NightbellError(.invalidArgument, "a name of \(name.utf8.count) bytes; 64 are allowed")
        }
    }
}

extension Client.SocketToPark {
    fileprivate func checked() throws(NightbellError) -> NewSocket {
        try Client.check(name: name)
        do {
            return NewSocket(
                descriptor: descriptor, tag: tag, name: name, file: try FileIdentity(of: descriptor),
                survives: survives, profile: profile, isEncrypted: isEncrypted,
                isRouted: tag == .voip && SocketPath.isRouted(descriptor),
                receiveBuffer: UInt32(clamping: receiveBuffer))
        } catch {
            throw NightbellError(.system, error)
        }
    }
}

extension NightbellError {
    /// `SessionState` matches answers with requests, so this indicates a bug in this library.
    fileprivate static let wrongAnswer = NightbellError(.malformedAnswer, "an answer of the wrong kind")
}
