/// A phone: it registers, and answers calls and OPTIONS.
///
/// A state machine without I/O or clock. Requests of its owner, messages from the network and the passing of
/// time go in; each call returns what has to be done, in order.
public struct UserAgent: Sendable {
    public struct Configuration: Sendable {
        public var user: String
        public var password: String
        /// The domain of the user's address.
        public var domain: String
        /// How long a registration is asked to last.
        public var expires: Duration = .seconds(3600)
        /// How long a call rings before it is answered.
        public var answerAfter: Duration = .zero
        /// Calls at the same time; further ones get 486.
        public var callLimit = 8
        /// How often the other side of a call is asked whether the call goes on.
        public var callCheckInterval: Duration = .seconds(300)
        public var timers = SIPTimers()

        public init(user: String, password: String, domain: String) {
            self.user = user
            self.password = password
            self.domain = domain
        }
    }

    public enum Action: Sendable, Equatable {
        case send(SIPMessage)
        /// The binding lasts this long from now; zero: it is removed.
        case registered(Duration)
        case registrationFailed(RegistrationFailure)
        case callStarted(String)
        case callAnswered(String)
        case callEnded(String, CallEnd)
    }

    /// How a call ended.
    public enum CallEnd: String, Sendable {
        /// The other side hung up.
        case remote
        /// This side hung up.
        case local
        /// The caller gave up before the call was answered.
        case cancelled
        /// The answer was never acknowledged.
        case unacknowledged
        /// The other side does not answer any more, or knows nothing of the call.
        case lost
    }

    let configuration: Configuration
    private(set) var endpoint: SIPEndpoint
    var transactions: TransactionLayer
    private var registration: Registration
    private var registering: TransactionID?
    /// The registration under way is to be removed again.
    private var removesNext = false
    var calls: [IncomingCall] = []

    public init(_ configuration: Configuration, endpoint: SIPEndpoint) {
        self.configuration = configuration
        self.endpoint = endpoint
        transactions = TransactionLayer(
            isReliable: endpoint.transport.isReliable, timers: configuration.timers)
        registration = Registration(
            user: configuration.user, password: configuration.password, domain: configuration.domain,
            expires: configuration.expires)
    }

    public var isRegistering: Bool { registering != nil }
    public var callCount: Int { calls.count }

    /// The next moment at which `advance` has something to do.
    public var nextDeadline: ContinuousClock.Instant? {
        ([transactions.nextDeadline] + calls.map(\.nextDeadline)).compactMap { $0 }.min()
    }

    /// The connection to the server was replaced by this one. Requests in flight on the old one are lost, and
    /// calls are hung up: the other side could not end them any more.
    public mutating func reconnected(_ endpoint: SIPEndpoint, at now: ContinuousClock.Instant) -> [Action] {
        self.endpoint = endpoint
        transactions.removeAll()
        transactions.isReliable = endpoint.transport.isReliable
        registering = nil
        registration.abandon()
        return hangUp(at: now)
    }

    /// Makes, refreshes or removes the registration. While one is under way, only a removal counts: it
    /// follows.
    public mutating func register(removing: Bool = false, at now: ContinuousClock.Instant) -> [Action] {
        guard registering == nil else {
            removesNext = removesNext || removing
            return []
        }
        removesNext = false
        return sendRegister(registration.begin(from: endpoint, removing: removing), at: now)
    }

    private mutating func sendRegister(_ request: SIPMessage, at now: ContinuousClock.Instant) -> [Action] {
        guard let (id, outputs) = transactions.send(request, at: now) else { return [] }
        registering = id
        return handle(outputs, at: now)
    }

    /// A message has come from the network.
    public mutating func receive(_ message: SIPMessage, at now: ContinuousClock.Instant) -> [Action] {
        handle(transactions.receive(message, at: now), at: now)
    }

    /// Time has passed.
    public mutating func advance(to now: ContinuousClock.Instant) -> [Action] {
        handle(transactions.advance(to: now), at: now) + advanceCalls(to: now)
    }

    func handleSends(_ outputs: [TransactionLayer.Output]) -> [Action] {
        outputs.compactMap { output in
            if case .send(let message) = output { .send(message) } else { nil }
        }
    }

    private mutating func handle(_ outputs: [TransactionLayer.Output], at now: ContinuousClock.Instant)
        -> [Action]
    {
        var actions: [Action] = []
        for output in outputs {
            switch output {
            case .send(let message): actions.append(.send(message))
            case .request(let request, let id): actions += receive(request, id, at: now)
            case .acknowledgement(let ack): acknowledge(ack, at: now)
            case .response(let response, let id): actions += receiveResponse(response, id, at: now)
            case .timedOut(let id):
                if let ended = noteCheck(id, nil, at: now) { actions += ended }
                guard id == registering else { continue }
                registering = nil
                registration.abandon()
                actions.append(.registrationFailed(.timedOut))
            }
        }
        return actions
    }

    private mutating func receiveResponse(
        _ response: SIPMessage, _ id: TransactionID, at now: ContinuousClock.Instant
    ) -> [Action] {
        if let ended = noteCheck(id, response.status, at: now) { return ended }
        guard id == registering, let step = registration.receive(response, from: endpoint) else { return [] }
        registering = nil
        switch step {
        case .send(let request): return sendRegister(request, at: now)
        case .granted(let duration):
            return [.registered(duration)] + (removesNext ? register(removing: true, at: now) : [])
        case .failed(let failure): return [.registrationFailed(failure)]
        }
    }

    private mutating func receive(
        _ request: SIPMessage, _ id: TransactionID, at now: ContinuousClock.Instant
    ) -> [Action] {
        let required = request.headers.list("Require")
        guard required.isEmpty || request.method == .cancel else {
            var answer = request.response(420, "Bad Extension", tag: newToken())
            answer.headers["Unsupported"] = required.joined(separator: ", ")
            return respond(answer, to: id, at: now)
        }
        switch request.method {
        case .invite:
            return receiveInvite(request, id, at: now)
        case .bye:
            return receiveBye(request, id, at: now)
        case .cancel:
            return receiveCancel(request, id, at: now)
        case .options:
            var answer = request.response(200, "OK", tag: newToken())
            answer.headers[.allow] = Self.allowedMethods
            answer.headers["Accept"] = "application/sdp"
            return respond(answer, to: id, at: now)
        default:
            var answer = request.response(405, "Method Not Allowed", tag: newToken())
            answer.headers[.allow] = Self.allowedMethods
            return respond(answer, to: id, at: now)
        }
    }

    private static let allowedMethods = "INVITE, ACK, BYE, CANCEL, OPTIONS"

    mutating func respond(
        _ response: SIPMessage, to id: TransactionID, at now: ContinuousClock.Instant
    ) -> [Action] {
        handleSends(transactions.respond(response, to: id, at: now))
    }
}
