import CFloors
import Descriptors
import Glibc
import Nightbell
import Simulation

/// Traffic at every moment while the supervisor's worker is killed, stopped and upgraded, and clients crash.
final class ChaosRun {
    struct Settings {
        var suspension: SuspensionMethod
        var transport: Transport
        var clients: Int
        var sockets: Int
        var kills: Int
        var seed: UInt64
        /// How long a lone call may be unread while nothing happens to the worker. No keep-alive saves it, so that
        /// this is longer than whatever a busy machine takes, a relaunch included.
        var patience: Duration = .seconds(10)
        /// For a test: so many sockets of each client that does not come back are not handed over, so that nobody
        /// watches them.
        var keptBack = 0
    }

    /// How long anything else may take before the run is given up.
    private static let patience: Duration = .seconds(20)
    /// Sleepers are called again after a rest of at most this: some are asleep by then, some are about to be. The
    /// linger of the supervisor is a fifth of it.
    private static let longestRest: Int64 = 100_000_000

    private let settings: Settings
    private let bench: Workbench
    private let area: ChaosArea
    private let callers: ChaosCallers
    private let supervisor: PrivateSupervisor
    private var random: SplitMix64
    private var results: ChaosResults
    private var calls: LoneCalls

    init(settings: Settings, bench: Workbench) throws {
        self.settings = settings
        self.bench = bench
        random = SplitMix64(seed: settings.seed)
        results = ChaosResults(settings: settings)
        area = try ChaosArea(
            clients: settings.clients, socketsPerClient: settings.sockets / settings.clients)
        calls = LoneCalls(area)
        callers = try ChaosCallers(
            settings.transport, sockets: settings.clients * area.socketsPerClient, directory: bench.directory)
        supervisor = try PrivateSupervisor(
            bench,
            .init(
                suspension: settings.suspension, linger: .milliseconds(20), keepAliveMinimum: .seconds(3),
                // What happens here is no loop.
                extra: [
                    "keeper.crashLimit=1000000", "launches.relaunches=255", "launches.retry=10ms",
                    "launches.retryMaximum=50ms", "memoryPressure.file=", "memoryPressure.pause=100ms",
                    "memoryPressure.endsAtOnce=3",
                ]))
    }

    func run() throws -> ChaosResults {
        let pipe = try Pipe()
        for client in 0..<settings.clients { area[client, .wantedLife] = 1 }
        _ = try bench.start(
            .chaos,
            ChaosNest.arguments(
                area, callers, supervisorSocket: supervisor.socketPath, lifelinePath: bench.lifelinePath,
                keptBack: settings.keptBack),
            descriptors: [area.descriptor.rawValue, pipe.reading.rawValue])
        try until("all clients to be there", atMost: .seconds(120)) { isEverybodyThere }
        while results.kills < settings.kills { try act() }
        try settle()
        withExtendedLifetime(pipe) {}
        return results
    }

    // MARK: What happens

    private func act() throws {
        try speakFor(nanoseconds: Int64.random(in: 0..<600_000_000, using: &random))
        try awaitCalls { try speakFor(nanoseconds: 500_000) }
        switch Int.random(in: 0..<20, using: &random) {
        case 0: try stopWorker()
        case 1: try upgrade()
        case 2...4: try crashClient()
        case 5, 6: try relieveMemory()
        default: try killWorker()
        }
        bench.progress.show("\(results.kills) of \(settings.kills) workers killed")
    }

    private func killWorker() throws {
        let old = try worker()
        // Asking has woken it: the moment must not depend on that.
        try speakFor(nanoseconds: Int64.random(in: 0..<3_000_000, using: &random))
        let start = monotonicNow()
        guard kill(old, SIGKILL) == 0 else { throw LoadError(failed: "kill") }
        results.kills += 1
        try recover(from: old, since: start)
    }

    private func recover(from old: pid_t, since start: Int64) throws {
        try until("another worker", atMost: Self.patience) { (try? worker()).map { $0 != old } ?? false }
        results.recovery.record(nanoseconds: monotonicNow() - start)
    }

    /// It stands still for a while, and then goes on or is killed.
    private func stopWorker() throws {
        let old = try worker()
        kill(old, SIGSTOP)
        results.stops += 1
        try speakFor(nanoseconds: Int64.random(in: 1_000_000..<100_000_000, using: &random))
        if Bool.random(using: &random) {
            kill(old, SIGCONT)
        } else {
            let start = monotonicNow()
            kill(old, SIGKILL)
            results.kills += 1
            try recover(from: old, since: start)
        }
    }

    private func upgrade() throws {
        let old = try worker()
        kill(supervisor.process.id, SIGHUP)
        try until("the upgrade", atMost: Self.patience) { (try? worker()).map { $0 != old } ?? false }
        results.upgrades += 1
    }

    /// A client ends without a word, and another begins in its place with sockets of its own.
    private func crashClient() throws {
        let client = Int.random(in: 0..<settings.clients, using: &random)
        let pid = pid_t(area[client, .pid])
        guard pid > 0, isThere(client) else { return }
        guard !ChaosArea.comesBack(client) else {
            results.crashes += 1
            return area[client, .wantedCrashes] += 1
        }
        let descriptor = cfloors_pidfd(pid)
        // It has ended by itself, which is noticed.
        guard descriptor >= 0 else { return }
        let process = OwnedDescriptor(adopting: descriptor)
        area[client, .pid] = 0
        callers.letGo(client, area)
        calls.forget(client)
        kill(pid, SIGKILL)
        results.crashes += 1
        var ending = pollfd(fd: process.rawValue, events: Int16(POLLIN), revents: 0)
        try until("client \(client) to be gone", atMost: Self.patience) { poll(&ending, 1, 0) > 0 }
        callers.forget(client, area)
        area[client, .wantedLife] += 1
    }

    /// The largest sleepers that can come back are ended.
    private func relieveMemory() throws {
        var administration = try Administration(socketPath: supervisor.socketPath)
        do throws(NightbellError) {
            try administration.relieveMemory()
        } catch {
            // Its worker may just have been replaced.
            guard error.code == .connectionLost else { throw error }
        }
    }

    // MARK: Traffic

    private func speakFor(nanoseconds: Int64) throws {
        let end = monotonicNow() + nanoseconds
        repeat {
            for _ in 0..<4 { speak(anySocket, Int.random(in: 1...1_500, using: &random)) }
            callers.look(anySocket)
            try callers.takeIn(area)
            try pause(nanoseconds: 200_000)
        } while monotonicNow() < end
    }

    private var anySocket: Int {
        Int.random(in: 0..<settings.clients * area.socketsPerClient, using: &random)
    }

    private func speak(_ socket: Int, _ length: Int) {
        let client = socket / area.socketsPerClient
        guard ChaosArea.isLone(client) else { return callers.speak(socket, length) }
        let now = monotonicNow()
        let rest = Int64.random(in: 0..<Self.longestRest, using: &random)
        guard calls.isFree(client, callers, area, at: now, rest: rest) else { return }
        calls.call(socket, length, callers, at: now)
    }

    /// All lone calls until now must have been read before anything else happens to the worker: the next one would
    /// make up for what this one forgot. There are others under way when that happens.
    private func awaitCalls(_ meanwhile: () throws -> Void) throws {
        let start = monotonicNow()
        let deadline = start + settings.patience.wholeNanoseconds
        while calls.isAnyUnread(from: start, callers, area), monotonicNow() < deadline {
            try bench.requireAllRunning()
            try meanwhile()
        }
        calls.giveUp(from: start, callers, area)
    }

    /// Goes on speaking until something is so.
    private func until(_ what: String, atMost limit: Duration, _ condition: () throws -> Bool) throws {
        let deadline = monotonicNow() + limit.wholeNanoseconds
        while try !condition() {
            guard monotonicNow() < deadline else { throw LoadError.timedOut(what) }
            try bench.requireAllRunning()
            try speakFor(nanoseconds: 500_000)
        }
    }

    private func worker() throws(NightbellError) -> pid_t { try supervisor.status().processID }

    private func isThere(_ client: Int) -> Bool {
        let first = client * area.socketsPerClient
        return area[client, .pid] != 0
            && (first..<first + area.socketsPerClient).allSatisfy { callers.isConnected($0) }
    }

    private var isEverybodyThere: Bool { (0..<settings.clients).allSatisfy(isThere) }

    // MARK: The end

    /// Each lone client is called on each of its sockets, one after the other, when it is asleep or has no process.
    private func callEach() throws {
        let tree = try settings.suspension.tree()
        for place in 0..<area.socketsPerClient {
            for client in 0..<settings.clients where ChaosArea.isLone(client) && !calls.hasLostAny(client) {
                let deadline = monotonicNow() + Self.longestRest * 20
                while !isAsleep(client, tree), monotonicNow() < deadline {
                    try pause(nanoseconds: 1_000_000)
                }
                calls.call(client * area.socketsPerClient + place, 1, callers, at: monotonicNow())
            }
            try awaitCalls { try pause(nanoseconds: 1_000_000) }
        }
    }

    private func isAsleep(_ client: Int, _ tree: CgroupTree?) -> Bool {
        let pid = pid_t(area[client, .pid])
        // One that has ended may be a zombie until somebody asks.
        guard pid > 0, let state = ProcFS.state(pid), state != "Z" else { return true }
        return StoppedProcess(pid, settings.suspension, tree).isStopped
    }

    /// Everybody is called once more, and must have heard everything.
    private func settle() throws {
        try until("all clients to be back", atMost: .seconds(60)) { isEverybodyThere || callers.lost > 0 }
        try awaitCalls { try pause(nanoseconds: 1_000_000) }
        try callEach()
        let sockets = 0..<settings.clients * area.socketsPerClient
        for socket in sockets {
            callers.look(socket)
            callers.speak(socket, 1)
        }
        let deadline = monotonicNow() + settings.patience.wholeNanoseconds
        while monotonicNow() < deadline, sockets.contains(where: hasUnheard) {
            try pause(nanoseconds: 5_000_000)
        }
        results.loneCalls = calls.count
        results.wakesLost = calls.lost + sockets.count { hasUnheard($0) && !calls.hasLost($0) }
        results.wrongBytes = Int(callers.wrongBytes(area))
        results.bytes = callers.bytes
        results.connectionsLost =
            callers.lost + (0..<settings.clients).reduce(0) { $0 + Int(area[$1, .connectionsLost]) }
        for client in 0..<settings.clients {
            results.wakes += area[client, .wakes]
            results.wakesRepeated += area[client, .repeated]
            results.keepAliveRuns += area[client, .keepAliveRuns]
            results.handlersLate += area[client, .keepAliveLate]
            // A handler that never ran says nothing itself.
            if area.isKeepAliveOverdue(client, at: monotonicNow()) { results.handlersLate += 1 }
        }
        let counters = try supervisor.status().counters
        results.countedLate = counters.keepAliveLate
        results.endedUnderPressure = counters.endedUnderPressure
        for client in 0..<settings.clients { results.returns += area[client, .returns] }
        results.memory = try ProcessFigures(worker()).proportionalBytes
        results.keeperMemory = try ProcessFigures(supervisor.process.id).proportionalBytes
        let pids = (0..<settings.clients).map { pid_t(area[$0, .pid]) }.filter { $0 > 0 }
        supervisor.end()
        let tree = try settings.suspension.tree()
        results.stuckFrozen = pids.count { StoppedProcess($0, settings.suspension, tree).isStopped }
        results.machine.finish()
    }

    private func hasUnheard(_ socket: Int) -> Bool {
        callers.isConnected(socket) && area[socket: socket, .received] < callers.sent[socket]
    }
}
