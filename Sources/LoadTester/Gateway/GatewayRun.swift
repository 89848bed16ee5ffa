import CFloors
import Glibc
import LinuxSystem
import Nightbell
import Simulation

/// Looks at many clients through the dashboard, and calls clients while the gateway is attacked.
final class GatewayRun {
    struct Settings {
        var suspension: SuspensionMethod
        /// Dormant.
        var clients: Int
        var sleepers: Int
        /// Wakes a second.
        var rate: Int
        /// Requests of strangers a second.
        var garbage: Int
        /// Of each part.
        var seconds: Int
        /// nil: there is none.
        var browser: String?
        var seed: UInt64
    }

    /// Connections that follow events and read nothing.
    static let slowBrowsers = 100
    private static let pageLoads = 9
    private static let rounds = 3
    private static let visibleWakes = 30
    /// How long a packet may take before it counts as lost.
    private static let patience = Duration.seconds(20)

    private let settings: Settings
    private let runDirectory: RunDirectory
    private let gateway: GatewayProcess
    private let supervisor: PrivateSupervisor
    private let phones: DormantPhones
    private let population: SupervisedPopulation
    private let token: String
    private var random: SplitMix64
    private var results: GatewayResults

    init(settings: Settings, runDirectory: RunDirectory) throws {
        self.settings = settings
        self.runDirectory = runDirectory
        random = SplitMix64(seed: settings.seed)
        results = GatewayResults(settings: settings)
        gateway = GatewayProcess(runDirectory)
        supervisor = try PrivateSupervisor(
            runDirectory,
            .init(
                suspension: settings.suspension,
                extra: ["memoryPressure.file=", "monitor=off", "gateway.pushSocket=\(gateway.pushSocket)"]))
        phones = DormantPhones(
            runDirectory: runDirectory, supervisor: supervisor,
            callers: try Callers(.tcp, slots: settings.clients, runDirectory))
        runDirectory.progress.say("starting \(settings.clients) clients, which then have no process")
        try phones.start(0..<settings.clients)
        runDirectory.progress.say("starting \(settings.sleepers) sleepers")
        population = try SupervisedPopulation(
            runDirectory, supervisor, method: settings.suspension, range: 0..<settings.sleepers,
            sharedMemory: try SharedMemory(slots: settings.sleepers),
            callers: try Callers(.unix, slots: settings.sleepers, runDirectory))
        token = try gateway.makeToken()
        try gateway.start(supervisor)
    }

    func run() throws -> GatewayResults {
        if let browser = settings.browser {
            try look(with: try GatewayBrowser(browser, runDirectory))
        }
        // In turns, so that whatever else the machine does is spread over all.
        for round in 1...Self.rounds {
            for index in results.phases.indices {
                var phase = results.phases[index]
                try measure(&phase, round: round)
                results.phases[index] = phase
            }
        }
        for phase in results.phases { runDirectory.progress.say(phase.line) }
        try population.requireAllAlive()
        gateway.end()
        supervisor.end()
        results.machine.finish()
        return results
    }

    // MARK: The dashboard

    private func look(with browser: GatewayBrowser) throws {
        let address = "http://127.0.0.1:\(gateway.port)/"
        try browser.open(address)
        _ = try browser.value("sessionStorage.setItem('token', '\(token)')")
        for _ in 0..<Self.pageLoads {
            // The gateway's list may be old, or still new enough.
            try pause(nanoseconds: Int64.random(in: 0..<3_000_000_000, using: &random))
            try browser.open(address)
            let rows = min(200, settings.clients + settings.sleepers)
            results.shown.append(
                try browser.number(
                    Self.soon("document.querySelectorAll('#rows tr').length === \(rows)", "performance.now()")
                ))
            results.painted.append(
                try browser.number(
                    Self.soon(
                        "performance.getEntriesByName('first-contentful-paint').length",
                        "performance.getEntriesByName('first-contentful-paint')[0].startTime")))
        }
        runDirectory.progress.say(
            "clients are shown after \(results.shown.map { figure($0, digits: 0) }.joined(separator: ", ")) ms"
        )
        // The list shows those of the latest change.
        try wake(for: 1)
        for _ in 0..<Self.visibleWakes { results.visible.append(try timeUntilVisible(browser)) }
        runDirectory.progress.say("wakes are shown after \(figure(results.visible.max() ?? .nan)) ms")

        guard let id = gateway.id else { throw LoadError.missing("the gateway has ended") }
        let before = (try processorTime(id), try processorTime(supervisor.worker))
        let (began, wakesBefore) = (monotonicNow(), wakes)
        try wake(for: settings.seconds)
        let elapsed = Double(monotonicNow() - began)
        results.wakesPerSecond = Double(wakes - wakesBefore) / elapsed * 1e9
        results.gatewayShare = Double(try processorTime(id) - before.0) / elapsed
        results.supervisorShare = Double(try processorTime(supervisor.worker) - before.1) / elapsed
        runDirectory.progress.say(
            "at \(figure(results.wakesPerSecond, digits: 0)) wakes a second the gateway takes "
                + "\(figure(100 * results.gatewayShare)) % of a processor")
    }

    /// The value of an expression at the first frame for which a condition holds, as text.
    private static func soon(_ condition: String, _ value: String) -> String {
        """
        new Promise((done) => {
            const look = () => { if (\(condition)) done(String(\(value))); else requestAnimationFrame(look); };
            requestAnimationFrame(look);
        })
        """
    }

    /// From a call to the frame in which the client's row shows one more wake, in milliseconds.
    private func timeUntilVisible(_ browser: GatewayBrowser) throws -> Double {
        let index = Int.random(in: population.range, using: &random)
        try population.waitUntilAsleep(index)
        let cell =
            "document.querySelector('tr[data-identifier=\"org.nightbell.load.s\(index)\"] [data-label=wakes]')"
        let count = "Number((\(cell)?.textContent ?? '0').replace(/[^0-9]/g, ''))"
        try wait(for: "the client's row", atMost: .seconds(20), firstPause: 20_000_000) {
            try browser.value("String(\(cell) !== null)") == "true"
        }
        _ = try browser.value(
            "window.before = \(count); window.visible = \(Self.soon("\(count) > window.before", "Date.now()")); ''"
        )
        try pause(nanoseconds: Int64.random(in: 0..<500_000_000, using: &random))
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        try population.callers.call(index)
        return try browser.number("window.visible") - (Double(now.tv_sec) * 1e3 + Double(now.tv_nsec) / 1e6)
    }

    private var wakes: UInt64 {
        population.range.reduce(0) { $0 + population.sharedMemory[$1].pointer.pointee.wakes }
    }

    /// Calls sleepers at the rate of the run. One that is still awake is left out.
    private func wake(for seconds: Int) throws {
        let began = monotonicNow()
        let end = began + Int64(seconds) * 1_000_000_000
        var (sent, next) = (0, 0)
        while monotonicNow() < end {
            let due = Int((monotonicNow() - began) * Int64(settings.rate) / 1_000_000_000)
            var passed = 0
            while sent < due, passed < settings.sleepers {
                (next, passed) = ((next + 1) % settings.sleepers, passed + 1)
                guard population.sharedMemory[next].stage == .waiting else { continue }
                try population.callers.call(next)
                sent += 1
            }
            // All are awake: it is not made up for later.
            sent = max(sent, due - settings.rate / 10)
            try pause(nanoseconds: 1_000_000)
        }
        try population.requireAllAlive()
    }

    // MARK: Attacks

    private func measure(_ phase: inout GatewayResults.Phase, round: Int) throws {
        var others: [ChildProcess] = []
        var streams: [EventReader] = []
        switch phase.kind {
        case .quiet: break
        case .busy:
            others = try (0..<2).map { number in
                try runDirectory.start(
                    .hostile,
                    HostileProcess.arguments(
                        .busy, supervisorSocket: supervisor.socketPath, user: nil, number: number),
                    descriptors: [])
            }
        case .slowBrowsers:
            streams = try (0..<Self.slowBrowsers).map { _ in try EventReader(gateway.port, token) }
        case .garbage:
            others = [
                try runDirectory.start(
                    .strangers,
                    Strangers.arguments(port: gateway.port, rate: settings.garbage, seed: settings.seed),
                    descriptors: [])
            ]
        }
        // The start of a process costs more than what it does then.
        try pause(nanoseconds: 1_000_000_000)
        let began = monotonicNow()
        let end = began + Int64(settings.seconds) * 1_000_000_000
        while monotonicNow() < end {
            let index = Int.random(in: population.range, using: &random)
            phase.note(try population.callAlone(index, patience: Self.patience, &random))
            for other in others { try other.requireRunning() }
        }
        let seconds = Double(monotonicNow() - began) / 1e9
        for other in others { runDirectory.end(other) }
        if phase.kind == .garbage {
            let log = runDirectory.log(of: ProcessRole.strangers.rawValue)
            guard let counts = Strangers.counts(in: log, rounds: round) else {
                throw LoadError.missing("the strangers tell nothing: \(log)")
            }
            results.sentPerSecond = Double(counts.sent) / (seconds + 1)
            results.answersPerSecond = Double(counts.answered) / (seconds + 1)
        }
        withExtendedLifetime(streams) {}
    }

    /// A connection that follows events and reads none.
    private final class EventReader {
        private let socket: OwnedDescriptor

        init(_ port: UInt16, _ token: String) throws {
            socket = try connectToLoopback(port, receiveBuffer: 4_096)
            let request = Array(
                "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \(token)\r\n\r\n".utf8)
            guard send(socket.rawValue, request, request.count, CInt(MSG_NOSIGNAL)) == request.count else {
                throw LoadError(failed: "send")
            }
        }
    }
}
