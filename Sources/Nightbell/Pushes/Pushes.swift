import LinuxSystem
import NightbellWire
import SwiftProtobuf

/// Pushes that ``Client/Handlers/push`` is told of: messages wait at the push service.
///
/// Take them, handle and acknowledge each, until there are none, and complete within ``budget``, on any
/// thread: a client in the background that does not is terminated. It is not suspended before.
public struct Pushes: Sendable {
    /// The time from the wake to the completion.
    public let budget: Duration
    let wakeID: UInt64
    let session: Session
    private let connection = Monitor<PushConnection?>(nil)

    init(budget: Duration, wakeID: UInt64, session: Session) {
        self.budget = budget
        self.wakeID = wakeID
        self.session = session
    }

    /// The oldest messages that this has not returned yet; none: there are no more. Waits for the service's
    /// answer.
    ///
    /// - Throws: ``NightbellError/Code/pushUnavailable``: the service is not there, or does not answer.
    public func take() throws(NightbellError) -> [PushMessage] {
        guard case .messages(let messages)? = try ask(.take(.init())) else {
            throw NightbellError(.malformedAnswer, "the answer to Take is of another kind")
        }
        return messages.messages.map(PushMessage.init)
    }

    /// The message is handled: the service drops it. Waits until that is stored.
    ///
    /// - Throws: as ``take()``. The message may be given out again, then.
    public func acknowledge(_ message: PushMessage) throws(NightbellError) { try acknowledge([message]) }

    /// The same for several messages, at the cost of one.
    public func acknowledge(_ messages: [PushMessage]) throws(NightbellError) {
        guard !messages.isEmpty else { return }
        _ = try ask(.acknowledge(.with { $0.ids = messages.map(\.id) }))
    }

    /// Asks once more on another connection: the service may have been replaced since the last request.
    private func ask(
        _ body: WirePushRequest.OneOf_Body
    ) throws(NightbellError) -> WirePushAnswer.OneOf_Body? {
        do throws(NightbellError) {
            return try connected().ask(body)
        } catch {
            guard error.code == .pushUnavailable else { throw error }
            connection.withLock { $0 = nil }
            return try connected().ask(body)
        }
    }

    /// Tells the supervisor the result. With ``FetchResult/failed`` the client is told again after a minute,
    /// if messages still wait. Further calls do nothing.
    public func complete(_ result: FetchResult) {
        // Nothing is left to do if the supervisor does not know these pushes, or is gone.
        _ = try? session.request(.pushDone(wakeID, result))
    }

    private func connected() throws(NightbellError) -> PushConnection {
        try connection.withLock { connection throws(NightbellError) in
            if let connection { return connection }
            let new = try session.pushConnection()
            connection = new
            return new
        }
    }

    /// Has an operation handle one message after the other, until none are left or the task is cancelled.
    func handleAll(_ operation: @Sendable (PushMessage) async -> FetchResult) async -> FetchResult {
        var result = FetchResult.noData
        do {
            while !Task.isCancelled {
                let messages = try await offThread { () throws(NightbellError) in try take() }
                if messages.isEmpty { return result }
                var handled: [PushMessage] = []
                for message in messages where !Task.isCancelled {
                    switch await operation(message) {
                    case .failed:
                        result = .failed
                        continue
                    case .newData: if result == .noData { result = .newData }
                    case .noData: break
                    }
                    handled.append(message)
                }
                let acknowledged = handled
                try await offThread { () throws(NightbellError) in try acknowledge(acknowledged) }
            }
        } catch {
            return .failed
        }
        return .failed
    }

    /// The service's answer is waited for on a thread of its own: tasks have few.
    private func offThread<Result: Sendable>(
        _ body: @escaping @Sendable () throws(NightbellError) -> Result
    ) async throws(NightbellError) -> Result {
        let outcome = await withCheckedContinuation {
            (continuation: CheckedContinuation<Swift.Result<Result, NightbellError>, Never>) in
            let code = Thread.start(stackSize: Thread.smallStack) {
                do throws(NightbellError) {
                    continuation.resume(returning: .success(try body()))
                } catch {
                    continuation.resume(returning: .failure(error))
                }
            }
            guard code != 0 else { return }
            let error = NightbellError(.system, SystemError(code: code, call: "pthread_create"))
            continuation.resume(returning: .failure(error))
        }
        return try outcome.get()
    }
}

extension Session {
    /// - Throws: ``NightbellError/Code/pushUnavailable``.
    func pushConnection() throws(NightbellError) -> PushConnection {
        let (path, client) = core.withLock { ($0.state.welcome.pushSocket, $0.state.hello.identifier) }
        return try PushConnection(path: path, client: client, timeout: requestTimeout)
    }
}

extension Client {
    /// An address at which senders can leave messages for this client (Web Push, RFC 8030), and has
    /// ``Handlers/push`` called when they do; also in a process that is launched for it. It stays the same as
    /// long as the push service keeps it: call this in each process, and tell senders if it is another one.
    ///
    /// - Parameters:
    ///   - name: the client's own, at most 512 bytes, to tell several addresses apart.
    ///   - applicationServerKey: the public key of the only sender that may use the address (RFC 8292): 65
    ///     bytes, an uncompressed point of P-256. Empty: all that know the address may. Another key ends the
    ///     former address of this name.
    /// - Throws: ``NightbellError/Code/pushUnavailable`` if there is no push service,
    ///   ``NightbellError/Code/pushRefused`` if it refuses: a key that is none, or too many addresses.
    public func pushEndpoint(
        _ name: String = "", applicationServerKey: [UInt8] = []
    ) throws(NightbellError) -> String {
        guard name.utf8.count <= 512 else {
            throw NightbellError(.invalidArgument, "a name of \(name.utf8.count) bytes; 512 are allowed")
        }
        // Before the service is asked: what waits there is reported once more then.
        try observe(Self.pushObservation, .pushes)
        let answer = try session.pushConnection().ask(
            .subscribe(
                .with {
                    $0.name = name
                    $0.applicationServerKey = applicationServerKey.asField
                }))
        guard case .subscription(let subscription)? = answer else {
            throw NightbellError(.malformedAnswer, "the answer to Subscribe is of another kind")
        }
        return subscription.endpoint
    }

    /// Ends an address, and drops its messages; does nothing if there is none of this name.
    ///
    /// - Throws: as ``pushEndpoint(_:applicationServerKey:)``.
    public func removePushEndpoint(_ name: String = "") throws(NightbellError) {
        _ = try session.pushConnection().ask(.unsubscribe(.with { $0.name = name }))
    }

    /// The client's addresses, by their names.
    ///
    /// - Throws: as ``pushEndpoint(_:applicationServerKey:)``.
    public func pushEndpoints() throws(NightbellError) -> [String: String] {
        guard case .subscriptions(let answer)? = try session.pushConnection().ask(.list(.init())),
            answer.names.count == answer.endpoints.count
        else { throw NightbellError(.malformedAnswer, "the answer to List is of another kind") }
        return Dictionary(zip(answer.names, answer.endpoints)) { first, _ in first }
    }

    /// Where this process reaches the push service; empty: nowhere.
    package var pushSocket: String { session.core.withLock { $0.state.welcome.pushSocket } }

    /// The name of the observation of pushes.
    private static let pushObservation = "nightbell.pushes"
}
