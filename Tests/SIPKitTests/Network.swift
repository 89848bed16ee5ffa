import SIPKit

/// A caller, phones and the proxy between them, in memory, with a clock of their own. Datagrams may be lost
/// or doubled, as `random` decides.
struct Network {
    let transport: SIPTransport
    var lossPercent = 0
    var doublingPercent = 0
    var random: any RandomNumberGenerator
    private(set) var now = ContinuousClock.now
    private(set) var phones: [String: UserAgent] = [:]
    private(set) var caller: Caller
    private(set) var server: ProxyServer
    private(set) var callerEvents: [Caller.Action] = []
    private(set) var phoneEvents: [String: [UserAgent.Action]] = [:]
    /// All messages on the wire.
    private(set) var sent: [SIPMessage] = []
    private var queue: [Delivery] = []
    private var flows: [FlowID: Party] = [:]

    private enum Party: Hashable {
        case caller
        case phone(String)
    }

    private struct Delivery {
        var due: ContinuousClock.Instant
        var flow: FlowID
        var toServer: Bool
        var bytes: [UInt8]
    }

    init(
        _ transport: SIPTransport, users: [String], expires: Duration = .seconds(60),
        answerAfter: Duration = .milliseconds(50),
        random: any RandomNumberGenerator = SystemRandomNumberGenerator()
    ) {
        self.transport = transport
        self.random = random
        let passwords = Dictionary(uniqueKeysWithValues: users.map { ($0, "secret of \($0)") })
        server = ProxyServer(
            domain: "example.test", host: "192.0.2.1", ports: [.udp: 5060, .tcp: 5060],
            registrar: Registrar(domain: "example.test", passwords: passwords))
        caller = Caller(
            SIPEndpoint(user: "caller", transport: transport, host: "192.0.2.2", port: 5062),
            domain: "example.test")
        flows[FlowID(rawValue: 1)] = .caller
        for (index, user) in users.enumerated() {
            var configuration = UserAgent.Configuration(
                user: user, password: "secret of \(user)", domain: "example.test")
            configuration.expires = expires
            configuration.answerAfter = answerAfter
            phones[user] = UserAgent(
                configuration,
                endpoint: SIPEndpoint(
                    user: user, transport: transport, host: "192.0.2.3", port: UInt16(6000 + index)))
            flows[FlowID(rawValue: UInt64(16 + index))] = .phone(user)
        }
    }

    private func flow(of party: Party) -> FlowID? { flows.first { $0.value == party }?.key }

    mutating func register(_ user: String, removing: Bool = false) {
        perform(phones[user]?.register(removing: removing, at: now) ?? [], of: user)
    }

    mutating func call(_ user: String, talkFor: Duration = .milliseconds(200)) -> String {
        let (callID, actions) = caller.call(user, talkFor: talkFor, at: now)
        perform(actions)
        return callID
    }

    mutating func inject(_ message: SIPMessage, from user: String) {
        perform([.send(message)], of: user)
    }

    mutating func deliver(_ message: SIPMessage, to user: String) {
        perform(phones[user]?.receive(message, at: now) ?? [], of: user)
    }

    private mutating func perform(_ actions: [UserAgent.Action], of user: String) {
        for action in actions {
            if case .send(let message) = action {
                guard let flow = flow(of: .phone(user)) else { continue }
                transmit(message, on: flow, toServer: true)
            } else {
                phoneEvents[user, default: []].append(action)
            }
        }
    }

    private mutating func perform(_ actions: [Caller.Action]) {
        for action in actions {
            if case .send(let message) = action {
                transmit(message, on: FlowID(rawValue: 1), toServer: true)
            } else {
                callerEvents.append(action)
            }
        }
    }

    private mutating func transmit(_ message: SIPMessage, on flow: FlowID, toServer: Bool) {
        sent.append(message)
        let isLossy = transport == .udp
        if isLossy, Int.random(in: 0..<100, using: &random) < lossPercent { return }
        let copies = isLossy && Int.random(in: 0..<100, using: &random) < doublingPercent ? 2 : 1
        for copy in 1...copies {
            // Streams keep their order; datagrams may overtake each other.
            let delay = isLossy ? Int.random(in: 100...3_000, using: &random) * copy : 500
            queue.append(
                Delivery(
                    due: now + .microseconds(delay), flow: flow, toServer: toServer,
                    bytes: message.serialized()))
        }
    }

    /// Advances the time by `duration` and processes all events that are due.
    mutating func run(for duration: Duration) {
        let end = now + duration
        while let next = nextDeadline, next <= end {
            now = max(now, next)
            deliverDue()
            perform(caller.advance(to: now))
            for user in phones.keys.sorted() { perform(phones[user]?.advance(to: now) ?? [], of: user) }
        }
        now = end
    }

    private var nextDeadline: ContinuousClock.Instant? {
        ([caller.nextDeadline] + phones.values.map(\.nextDeadline) + queue.map { Optional($0.due) })
            .compactMap { $0 }.min()
    }

    private mutating func deliverDue() {
        let due = queue.filter { $0.due <= now }
        queue.removeAll { $0.due <= now }
        for delivery in due {
            guard let parsed = try? SIPMessage(datagram: delivery.bytes) else { continue }
            if delivery.toServer {
                let known = Set(flows.keys)
                let transport = transport
                let outputs = server.receive(
                    parsed, on: delivery.flow, at: now,
                    transports: { known.contains($0) ? transport : nil })
                for output in outputs { transmit(output.message, on: output.flow, toServer: false) }
            } else {
                switch flows[delivery.flow] {
                case .caller: perform(caller.receive(parsed, at: now))
                case .phone(let user): deliver(parsed, to: user)
                case nil: continue
                }
            }
        }
    }
}

/// A small generator with a seed that makes a run repeatable (SplitMix64).
struct SeededGenerator: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }
}
