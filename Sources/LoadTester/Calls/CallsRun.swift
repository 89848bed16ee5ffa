import Glibc
import Nightbell
import SIPKit
import Simulation

/// Callers ring sleeping softphones through a SIP proxy, at independent moments.
@MainActor
final class CallsRun {
    struct Settings {
        var suspension: SuspensionMethod
        var transport: Transport
        var clients: Int
        var calls: Int
        /// Calls a second, on average.
        var rate: Double
        /// How long a call lasts, on average; lengths are exponentially distributed.
        var meanLength: Duration
        var seed: UInt64
    }

    private let settings: Settings
    private let runDirectory: RunDirectory
    private let server: CallServer
    private let socket: SIPSocket
    private var caller: Caller
    private var results: CallsResults
    private static let domain = "load.nightbell.invalid"

    init(settings: Settings, runDirectory: RunDirectory) throws {
        self.settings = settings
        self.runDirectory = runDirectory
        let users = (0..<settings.clients).map(Self.user)
        server = try CallServer(domain: Self.domain, passwords: users.reduce(into: [:]) { $0[$1] = "load" })
        let transport: SIPTransport = settings.transport == .udp ? .udp : .tcp
        socket = try SIPSocket.connect(to: server.address, transport)
        let local = try socket.localAddress()
        let endpoint = SIPEndpoint(user: "caller", transport: transport, host: local.host, port: local.port)
        caller = Caller(endpoint, domain: Self.domain)
        results = CallsResults(settings: settings)
    }

    private static func user(_ index: Int) -> String { "phone\(index)" }

    func run() throws -> CallsResults {
        let supervisor = try PrivateSupervisor(
            runDirectory, .init(suspension: settings.suspension, linger: .milliseconds(500)))
        runDirectory.progress.say("starting \(settings.clients) phones")
        for index in 0..<settings.clients {
            _ = try runDirectory.start(
                "nightbell-softphone",
                [
                    "--user", Self.user(index), "--password", "load", "--registrar",
                    server.address.description,
                    "--domain", Self.domain, "--transport", settings.transport == .udp ? "udp" : "tcp",
                    "--answer-after", "0", "--supervisor-socket", supervisor.socketPath,
                ])
        }
        let asleep = try turn(atMost: .seconds(60), lookingEvery: .milliseconds(50)) {
            try runDirectory.requireAllRunning()
            return try supervisor.status().clientsByState["suspended", default: 0] == settings.clients
        }
        guard asleep else { throw LoadError.timedOut("all phones to be asleep") }
        runDirectory.progress.say("all asleep; \(settings.calls) calls at \(figure(settings.rate)) a second")
        let before = try supervisor.clients()
        let start = ContinuousClock.now
        try placeAll()
        let time = ContinuousClock.now - start
        let after = try supervisor.clients()
        results.noteSleep(before, after, time)
        results.finishCalls()
        results.machine.finish()
        return results
    }

    private func placeAll() throws {
        var random = SplitMix64(seed: settings.seed)
        var due = ContinuousClock.now
        let mean = settings.meanLength.inSeconds
        let limit = Duration.seconds(Double(settings.calls) / settings.rate * 2 + 10 * mean + 60)
        // Calls that have not ended by then are a result, not an error.
        _ = try turn(atMost: limit, lookingEvery: .zero) {
            while results.notPlaced > 0, due <= .now {
                let user = Self.user(Int.random(in: 0..<settings.clients, using: &random))
                let length = Duration.seconds(min(random.exponential(perSecond: 1 / mean), 10 * mean))
                let (callID, actions) = caller.call(user, talkFor: length, at: .now)
                results.notePlaced(callID, due: due)
                perform(actions)
                due += .seconds(random.exponential(perSecond: settings.rate))
                if results.placed % 20 == 0 {
                    runDirectory.progress.show("\(results.placed) of \(settings.calls) calls placed")
                }
            }
            return results.areAllOver
        }
    }

    /// Serves the proxy, its connections and the caller until a condition holds. False: it did not come about
    /// in time.
    private func turn(
        atMost limit: Duration, lookingEvery pause: Duration, _ condition: () throws -> Bool
    ) throws -> Bool {
        let end = ContinuousClock.now + limit
        var nextLook = ContinuousClock.now
        while true {
            if nextLook <= .now {
                if try condition() { return true }
                nextLook = .now + pause
            }
            guard .now < end else { return false }
            try server.turn(
                with: socket.descriptor, wantsToWrite: socket.wantsToWrite, atMost: .milliseconds(1)
            ) { serve() }
            perform(caller.advance(to: .now))
        }
    }

    private func serve() {
        guard (try? socket.flush()) != nil else { return }
        for message in socket.receive().messages { perform(caller.receive(message, at: .now)) }
    }

    private func perform(_ actions: [Caller.Action]) {
        for action in actions {
            switch action {
            case .send(let message):
                // A call that cannot be sent is never answered, and counts as lost.
                try? socket.send(message)
            case .ringing:
                break
            case .answered(let callID):
                results.noteAnswered(callID, at: .now)
            case .ended(let callID):
                results.noteEnded(callID)
            case .failed(let callID, _):
                results.noteFailed(callID)
            }
        }
    }
}
