import SIPKit

/// The results of the calls.
struct CallCounts {
    var placed = 0
    var answered = 0
    var endedProperly = 0
    var noAnswer = 0
    var refused: [Int: Int] = [:]

    var failed: Int { noAnswer + refused.values.reduce(0, +) }
    var isOver: Int { endedProperly + failed }
}

/// Places calls at a bounded rate to phones chosen at random.
@MainActor
final class Callers {
    private(set) var counts = CallCounts()
    private let lines: [Line]
    private let users: [String]
    private let total: Int
    private let interval: Duration
    private var nextCall: ContinuousClock.Instant?
    private var random: SeededGenerator

    /// One connection to the server, on which many calls take place.
    private final class Line {
        let socket: SIPSocket
        var caller: Caller

        init(_ socket: SIPSocket, _ caller: Caller) {
            self.socket = socket
            self.caller = caller
        }
    }

    init(
        server: SIPAddress, domain: String, transports: [SIPTransport], users: [String], calls: Int,
        perSecond rate: Double, seed: UInt64, loop: Loop
    ) throws {
        self.users = users
        total = calls
        interval = .seconds(1 / rate)
        random = SeededGenerator(seed: seed)
        lines = try transports.map { transport in
            let socket = try SIPSocket.connect(to: server, transport)
            let local = try socket.localAddress()
            let endpoint = SIPEndpoint(
                user: "caller", transport: transport, host: local.host, port: local.port)
            return Line(socket, Caller(endpoint, domain: domain))
        }
        for line in lines {
            loop.add(
                Loop.Source(
                    descriptor: line.socket.descriptor, wantsToWrite: { line.socket.wantsToWrite },
                    serve: { [weak self] in self?.serve(line) }))
            loop.addTimer(next: { line.caller.nextDeadline }) { [weak self] in
                self?.perform(line.caller.advance(to: .now), on: line)
            }
        }
        loop.addTimer(next: { [weak self] in self?.nextCall }, fire: { [weak self] in self?.placeCall() })
    }

    func start() { nextCall = .now }

    var isDone: Bool { nextCall == nil && lines.allSatisfy { $0.caller.callCount == 0 } }

    private func placeCall() {
        let line = lines[counts.placed % lines.count]
        let user = users[Int.random(in: users.indices, using: &random)]
        let talkFor = Duration.milliseconds(Int64.random(in: 200...600, using: &random))
        counts.placed += 1
        nextCall = counts.placed < total ? (nextCall ?? .now) + interval : nil
        perform(line.caller.call(user, talkFor: talkFor, at: .now).actions, on: line)
    }

    private func serve(_ line: Line) {
        guard (try? line.socket.flush()) != nil else { return }
        for message in line.socket.receive().messages {
            perform(line.caller.receive(message, at: .now), on: line)
        }
    }

    private func perform(_ actions: [Caller.Action], on line: Line) {
        for action in actions {
            switch action {
            case .send(let message): try? line.socket.send(message)
            case .ringing: continue
            case .answered: counts.answered += 1
            case .ended: counts.endedProperly += 1
            case .failed(_, .noAnswer): counts.noAnswer += 1
            case .failed(_, .refused(let status)): counts.refused[status, default: 0] += 1
            }
        }
    }
}

/// A small generator (SplitMix64); its seed makes a run repeatable.
struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }
}
