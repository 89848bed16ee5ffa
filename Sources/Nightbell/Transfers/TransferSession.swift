import LinuxSystem
import NightbellWire
import SwiftProtobuf
import TransferWire

/// Downloads and uploads that another process makes, while the client is suspended or has no process at all.
///
/// The client is woken, or launched, with ``WakeReasons/transfer`` when all tasks of the session are
/// finished, or one needs credentials. A new process makes the session again, by the same identifier, and
/// receives the results: each is given to ``Handlers/finished``, and is given again to the next process if
/// this one ends before the handler has returned.
///
/// When its user quits the client, its transfers are cancelled. Make one value for an identifier at a time.
/// All methods may be called from any thread and from inside handlers; they block until the transfer process
/// has answered, for at most the client's ``Client/Configuration/requestTimeout``, and in ``upload(_:to:name:options:)``
/// until the file is copied. Until then the client is not suspended, as long as it is granted background tasks.
public final class TransferSession: Sendable {
    /// Callbacks, one at a time, on a thread of the session's.
    public struct Handlers: Sendable {
        /// A task has ended. When this returns the task is forgotten and its file removed, unless it was kept
        /// (``TransferResult/keep(as:)``). The client is not suspended meanwhile as long as it is granted
        /// background tasks.
        public var finished: @Sendable (TransferResult) -> Void = { _ in }
        /// A task needs credentials (401): ``TransferSession/authorize(_:_:)`` continues it,
        /// ``TransferSession/cancel(_:)`` ends it. Called again in a later process, or connection, as long as
        /// it does.
        public var needsCredentials: @Sendable (TransferTask) -> Void = { _ in }
        /// At most once a second for each task, and only while the client runs.
        public var progress: @Sendable (TransferProgress) -> Void = { _ in }
        /// All tasks of the session have ended, or need credentials, and all that was told. Called again after
        /// another task, result or request for credentials.
        public var sessionFinished: @Sendable () -> Void = {}

        public init() {}
    }

    /// The identifier that was given.
    public let identifier: String
    private let client: Client
    private let link: TransferLink

    /// Makes the session, or continues the one that was made before by this identifier, also by another
    /// process of the client. Handlers may run before this returns.
    ///
    /// - Parameter identifier: 1 to 54 bytes, without control characters.
    /// - Throws: ``NightbellError/Code/transfersUnavailable`` if the supervisor has no transfer process for
    ///   this user; ``NightbellError/Code/tooManyObservations``, because the supervisor observes the session
    ///   for the client; ``NightbellError/Code/requestTimedOut``.
    public init(
        _ client: Client, identifier: String, handlers: Handlers = Handlers()
    ) throws(NightbellError) {
        guard (1...Self.longestIdentifier).contains(identifier.utf8.count) else {
            throw NightbellError(
                .invalidArgument, "a session's identifier has 1 to \(Self.longestIdentifier) bytes")
        }
        guard TransferPacket.isName(identifier) else {
            throw NightbellError(.invalidArgument, "a session's identifier has no control characters")
        }
        self.identifier = identifier
        self.client = client
        link = TransferLink(client.session, identifier, handlers)
        client.session.transfers.withLock { $0[identifier] = WeakTransferLink(link) }
        do throws(NightbellError) {
            try link.awake { () throws(NightbellError) in
                try link.askForProcess()
                try link.start()
            }
            client.session.endAwaiting(identifier)
        } catch {
            link.close()
            throw error
        }
    }

    deinit { link.close() }

    /// The identifier of the session in which the issues come to which the client's manifest subscribes. Make
    /// the session early: a client is launched for an issue, which is given to ``Handlers/finished``.
    public static let newsstand = "newsstand"

    private static let longestIdentifier = 64 - observationPrefix.utf8.count
    private static let observationPrefix = "transfers:"

    static func observation(_ identifier: String) -> String { observationPrefix + identifier }

    /// The identifier of the session that an observation is for.
    static func identifier(ofObservation name: String) -> String? {
        name.hasPrefix(observationPrefix) ? String(name.dropFirst(observationPrefix.count)) : nil
    }

    // MARK: Tasks

    /// Downloads a file. When this returns the task is on the disk, and survives the end of this process, of
    /// the transfer process, of the supervisor and of the machine.
    ///
    /// - Parameters:
    ///   - address: of `http` or `https`.
    ///   - name: the client's own name for the task, 1 to 255 bytes without control characters. As long as a
    ///     task has it, another one is not added: that task is returned.
    /// - Throws: ``NightbellError/Code/transferRefused``: the address, an option or the number of tasks.
    @discardableResult
    public func download(
        _ address: String, name: String, options: TransferOptions = TransferOptions()
    ) throws(NightbellError) -> TransferTask {
        try add(.download, address, name, options, [])
    }

    /// Uploads a regular file, which is copied from its beginning before this returns, however long that takes. If
    /// the file system of the file does not answer for a minute, the upload is refused. If the transfer process answers
    /// nothing else meanwhile, this fails as other calls do.
    ///
    /// - Parameters:
    ///   - file: a descriptor, which stays the caller's.
    ///   - address, name, options: as for ``download(_:name:options:)``.
    @discardableResult
    public func upload(
        _ file: CInt, to address: String, name: String, options: TransferOptions = TransferOptions()
    ) throws(NightbellError) -> TransferTask {
        try add(.upload, address, name, options, [file])
    }

    private func add(
        _ kind: WireTransferKind, _ address: String, _ name: String, _ options: TransferOptions,
        _ descriptors: [CInt]
    ) throws(NightbellError) -> TransferTask {
        guard (1...TransferPacket.maximumNameBytes).contains(name.utf8.count) else {
            throw NightbellError(
                .invalidArgument, "a task's name has 1 to \(TransferPacket.maximumNameBytes) bytes")
        }
        let answer = try link.request(descriptors: descriptors, isAddition: true) {
            $0.add.tag = name
            $0.add.task = options.wire(kind, address)
        }
        return TransferTask(number: answer.task, name: name)
    }

    /// Ends a task, which is told as ``TransferFailure/cancelled``. Does nothing with one that has ended.
    public func cancel(_ task: TransferTask) throws(NightbellError) {
        _ = try link.request { $0.cancel.task = task.number }
    }

    /// Ends all tasks of the session.
    public func cancelAll() throws(NightbellError) { _ = try link.request { $0.cancel.task = 0 } }

    /// Continues a task that needs credentials, with these fields in place of those with the same names.
    ///
    /// - Throws: ``NightbellError/Code/transferRefused`` if it does not need any.
    public func authorize(_ task: TransferTask, _ fields: [TransferField]) throws(NightbellError) {
        _ = try link.request(isAddition: true) {
            $0.authorize.task = task.number
            $0.authorize.fields = fields.map(\.wire)
        }
    }

    /// The tasks of the session that have not ended, or that have not been told, in the order of their
    /// addition.
    public func tasks() throws(NightbellError) -> [TransferStatus] {
        var tasks: [TransferStatus] = []
        while true {
            let last = tasks.last?.task.number ?? 0
            let answer = try link.request { $0.list.after = last }
            tasks += answer.tasks.map(TransferStatus.init)
            guard answer.hasMore_p, !answer.tasks.isEmpty else { return tasks }
        }
    }

    /// Ends this value: no handler starts after this, but for one that the session's thread is about to
    /// start. The client is not woken for the session any more; its tasks go on, and making the session again
    /// continues it.
    public func invalidate() {
        link.close()
        // Without a supervisor there is nothing to be ended.
        try? client.stopObserving(Self.observation(identifier))
    }
}

extension TransferOptions {
    fileprivate func wire(_ kind: WireTransferKind, _ address: String) -> WireTransferTask {
        .with {
            $0.kind = kind
            $0.url = address
            $0.method = method
            $0.fields = fields.map(\.wire)
            $0.proxy = proxy
            $0.wantsDigest = wantsSHA256
            $0.expectedDigest = expectedSHA256.asField
            $0.isDiscretionary = isDiscretionary
        }
    }
}

extension Wake {
    /// The identifiers of the transfer sessions that this wake is for: present with ``WakeReasons/transfer``.
    public var finishedTransfers: [String] {
        occurrences.compactMap { occurrence in
            occurrence.kind == .finished ? TransferSession.identifier(ofObservation: occurrence.name) : nil
        }
    }
}

/// For the table of sessions, which does not keep them.
struct WeakTransferLink: Sendable {
    private(set) weak var link: TransferLink?

    init(_ link: TransferLink) { self.link = link }
}
