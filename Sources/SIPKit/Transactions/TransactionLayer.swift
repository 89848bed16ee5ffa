/// All transactions of one user agent. Messages from the network and the passing of time go in; messages for
/// the network and what the user agent has to know come out.
public struct TransactionLayer: Sendable {
    public enum Output: Sendable, Equatable {
        case send(SIPMessage)
        /// A new request: answer it with `respond`.
        case request(SIPMessage, TransactionID)
        /// The ACK of a 2xx: it has no transaction and no answer.
        case acknowledgement(SIPMessage)
        case response(SIPMessage, TransactionID)
        /// No final response came to a request.
        case timedOut(TransactionID)
    }

    private let timers: SIPTimers
    private let limit: Int
    /// Whether the transport of new transactions is reliable.
    public var isReliable: Bool
    private var clients: [TransactionID: ClientTransaction] = [:]
    private var servers: [TransactionID: ServerTransaction] = [:]

    /// With `limit` transactions open, new requests from the network are refused with 503.
    public init(isReliable: Bool, timers: SIPTimers = SIPTimers(), limit: Int = 1_024) {
        self.isReliable = isReliable
        self.timers = timers
        self.limit = limit
    }

    /// The next moment at which `advance` has something to do.
    public var nextDeadline: ContinuousClock.Instant? {
        let client = clients.values.compactMap(\.nextDeadline).min()
        let server = servers.values.compactMap(\.nextDeadline).min()
        return [client, server].compactMap { $0 }.min()
    }

    /// Whether a request of ours has no final answer.
    public var isWaiting: Bool { clients.values.contains(where: \.isOpen) }

    /// Sends a request in a transaction of its own. Its top `Via` must hold a new branch.
    public mutating func send(_ request: SIPMessage, at now: ContinuousClock.Instant) -> (
        TransactionID, [Output]
    )? {
        guard let id = TransactionID(request) else { return nil }
        clients[id] = ClientTransaction(request, isReliable: isReliable, timers: timers, at: now)
        return (id, [.send(request)])
    }

    /// Answers a request.
    public mutating func respond(
        _ response: SIPMessage, to id: TransactionID, at now: ContinuousClock.Instant
    ) -> [Output] {
        let actions = servers[id]?.respond(response, at: now) ?? []
        if servers[id]?.isTerminated == true { servers[id] = nil }
        return actions.flatMap { outputs($0) }
    }

    /// Whether a request waits for its final answer.
    public func isOpen(_ id: TransactionID) -> Bool { servers[id]?.isOpen ?? false }

    /// Messages that cannot belong to any transaction are dropped.
    public mutating func receive(_ message: SIPMessage, at now: ContinuousClock.Instant) -> [Output] {
        guard let id = TransactionID(message) else { return [] }
        switch message.startLine {
        case .response:
            let actions = clients[id]?.receive(message, at: now) ?? []
            let result = actions.flatMap { outputs($0, id) }
            if clients[id]?.isTerminated == true { clients[id] = nil }
            return result
        case .request(.ack, _):
            let isForUser = servers[id]?.receiveAcknowledgement(at: now) ?? true
            if servers[id]?.isTerminated == true { servers[id] = nil }
            return isForUser ? [.acknowledgement(message)] : []
        case .request(let method, _):
            guard message.cSeq?.method == method else {
                return [.send(message.response(400, "CSeq Does Not Match"))]
            }
            if let actions = servers[id]?.receiveAgain() { return actions.flatMap { outputs($0) } }
            guard servers.count < limit else {
                return [.send(message.response(503, "Service Unavailable"))]
            }
            servers[id] = ServerTransaction(message, isReliable: isReliable, timers: timers)
            return [.request(message, id)]
        }
    }

    /// Advances the clock.
    public mutating func advance(to now: ContinuousClock.Instant) -> [Output] {
        var result: [Output] = []
        for id in clients.keys where (clients[id]?.nextDeadline).map({ $0 <= now }) ?? false {
            result += clients[id]?.advance(to: now).flatMap { outputs($0, id) } ?? []
            if clients[id]?.isTerminated == true { clients[id] = nil }
        }
        for id in servers.keys where (servers[id]?.nextDeadline).map({ $0 <= now }) ?? false {
            result += servers[id]?.advance(to: now).flatMap { outputs($0) } ?? []
            if servers[id]?.isTerminated == true { servers[id] = nil }
        }
        return result
    }

    /// Forgets every transaction: their connection is gone.
    public mutating func removeAll() {
        clients.removeAll()
        servers.removeAll()
    }

    private func outputs(_ action: ClientTransaction.Action, _ id: TransactionID) -> [Output] {
        switch action {
        case .send(let message): [.send(message)]
        case .deliver(let message): [.response(message, id)]
        case .timedOut: [.timedOut(id)]
        }
    }

    private func outputs(_ action: ServerTransaction.Action) -> [Output] {
        switch action {
        case .send(let message): [.send(message)]
        case .timedOut: []
        }
    }
}
