import CFloors
import Glibc
import LinuxSystem
import Nightbell
import Simulation

/// Sends traffic at every moment while the supervisor's worker is killed, stopped and upgraded, and clients
/// crash.
final class ChaosRun {
    struct Settings {
        var suspension: SuspensionMethod
        var transport: Transport
        var clients: Int
        var sockets: Int
        var kills: Int
        var seed: UInt64
        /// How long an isolated call may stay unread while nothing happens to the worker. No keep-alive makes
        /// up for it, so this exceeds any delay of a busy machine, a relaunch included.
        var patience: Duration = .seconds(10)
        /// For a test: each client that is not relaunched withholds this many sockets from the supervisor,
        /// which therefore cannot watch them.
        var withheldSockets = 0
    }

    /// How long anything else may take before the run is given up.
    private static let patience: Duration = .seconds(20)
    /// Sleepers are called again after at most this rest: some are asleep by then, others are about to be.
    /// The supervisor's linger is a fifth of it.
    private static let longestRest: Int64 = 100_000_000

    private let settings: Settings
    private let runDirectory: RunDirectory
    private let sharedMemory: ChaosSharedMemory
    private let callers: ChaosCallers
    private let supervisor: PrivateSupervisor
    private var random: SplitMix64
    private var results: ChaosResults
    private var calls: IsolatedCalls

    init(settings: Settings, runDirectory: RunDirectory) throws {
        self.settings = settings
        self.runDirectory = runDirectory
        random = SplitMix64(seed: settings.seed)
        results = ChaosResults(settings: settings)
        sharedMemory = try ChaosSharedMemory(
            clients: settings.clients, socketsPerClient: settings.sockets / settings.clients)
        calls = IsolatedCalls(sharedMemory)
        callers = try ChaosCallers(
            settings.transport, sockets: settings.clients * sharedMemory.socketsPerClient,
            directory: runDirectory.path)
        supervisor = try PrivateSupervisor(
            runDirectory,
            .init(
                suspension: settings.suspension, linger: .milliseconds(20), keepAliveMinimum: .seconds(3),
                // Frequent crashes are intended here, so they must not count as a crash loop.
                extra: [
                    "keeper.crashLimit=1000000", "launches.relaunches=255", "launches.retry=10ms",
                    "launches.retryMaximum=50ms", "memoryPressure.file=", "memoryPressure.pause=100ms",
                    "memoryPressure.endsAtOnce=3",
                ]))
    }

    func run() throws -> ChaosResults {
        let pipe = try Pipe()
        for client in 0..<settings.clients { sharedMemory[client, .requestedGeneration] = 1 }
        _ = try runDirectory.start(
            .chaos,
            ChaosZygote.arguments(
                sharedMemory, callers, supervisorSocket: supervisor.socketPath,
                lifelinePath: runDirectory.lifelinePath,
                withheldSockets: settings.withheldSockets),
            descriptors: [sharedMemory.descriptor.rawValue, pipe.reading.rawValue])
        try until("all clients to be there", atMost: .seconds(120)) { areAllConnected }
        while results.kills < settings.kills { try injectFault() }
        try settle()
        withExtendedLifetime(pipe) {}
        return results
    }

    // MARK: What happens

    private func injectFault() throws {
        try sendTraffic(nanoseconds: Int64.random(in: 0..<600_000_000, using: &random))
        try awaitCalls { try sendTraffic(nanoseconds: 500_000) }
        switch Int.random(in: 0..<20, using: &random) {
        case 0: try stopWorker()
        case 1: try upgrade()
        case 2...4: try crashClient()
        case 5, 6: try relieveMemory()
        default: try killWorker()
        }
        runDirectory.progress.show("\(results.kills) of \(settings.kills) workers killed")
    }

    private func killWorker() throws {
        let old = try worker()
        // The request has woken the worker: the moment of the kill must not depend on that.
        try sendTraffic(nanoseconds: Int64.random(in: 0..<3_000_000, using: &random))
        let start = monotonicNow()
        guard kill(old, SIGKILL) == 0 else { throw LoadError(failed: "kill") }
        results.kills += 1
        try recover(from: old, since: start)
    }

    private func recover(from old: pid_t, since start: Int64) throws {
        try until("another worker", atMost: Self.patience) { (try? worker()).map { $0 != old } ?? false }
        results.recovery.record(nanoseconds: monotonicNow() - start)
    }

    /// Stops the worker for a while, and then continues or kills it.
    private func stopWorker() throws {
        let old = try worker()
        kill(old, SIGSTOP)
        results.stops += 1
        try sendTraffic(nanoseconds: Int64.random(in: 1_000_000..<100_000_000, using: &random))
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
        kill(supervisor.process.id, SIGUSR2)
        try until("the upgrade", atMost: Self.patience) { (try? worker()).map { $0 != old } ?? false }
        results.upgrades += 1
    }

    /// Kills a client, and starts another in its place with sockets of its own.
    private func crashClient() throws {
        let client = Int.random(in: 0..<settings.clients, using: &random)
        let pid = pid_t(sharedMemory[client, .pid])
        guard pid > 0, isConnected(client) else { return }
        guard !ChaosSharedMemory.isRelaunchable(client) else {
            results.crashes += 1
            return sharedMemory[client, .requestedCrashes] += 1
        }
        let descriptor = cfloors_pidfd(pid)
        // A client that has ended by itself is counted elsewhere.
        guard descriptor >= 0 else { return }
        let process = OwnedDescriptor(adopting: descriptor)
        sharedMemory[client, .pid] = 0
        callers.disconnect(client, sharedMemory)
        calls.cancel(client)
        kill(pid, SIGKILL)
        results.crashes += 1
        var ending = pollfd(fd: process.rawValue, events: Int16(POLLIN), revents: 0)
        try until("client \(client) to be gone", atMost: Self.patience) { poll(&ending, 1, 0) > 0 }
        callers.resetCounters(client, sharedMemory)
        sharedMemory[client, .requestedGeneration] += 1
    }

    /// Has the supervisor end its largest sleepers that it can relaunch.
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

    private func sendTraffic(nanoseconds: Int64) throws {
        let end = monotonicNow() + nanoseconds
        repeat {
            for _ in 0..<4 { sendBytes(anySocket, Int.random(in: 1...1_500, using: &random)) }
            callers.checkForEnd(anySocket)
            try callers.acceptConnections(sharedMemory)
            try pause(nanoseconds: 200_000)
        } while monotonicNow() < end
    }

    private var anySocket: Int {
        Int.random(in: 0..<settings.clients * sharedMemory.socketsPerClient, using: &random)
    }

    private func sendBytes(_ socket: Int, _ length: Int) {
        let client = socket / sharedMemory.socketsPerClient
        guard ChaosSharedMemory.isIsolated(client) else { return callers.sendBytes(socket, length) }
        let now = monotonicNow()
        let rest = Int64.random(in: 0..<Self.longestRest, using: &random)
        guard calls.isFree(client, callers, sharedMemory, at: now, rest: rest) else { return }
        calls.call(socket, length, callers, at: now)
    }

    /// Waits until all isolated calls so far are read, before anything else happens to the worker: the next
    /// worker would hide what this one forgot. Other calls are still in flight then.
    private func awaitCalls(_ meanwhile: () throws -> Void) throws {
        let start = monotonicNow()
        let deadline = start + settings.patience.wholeNanoseconds
        while calls.isAnyUnread(from: start, callers, sharedMemory), monotonicNow() < deadline {
            try runDirectory.requireAllRunning()
            try meanwhile()
        }
        calls.giveUp(from: start, callers, sharedMemory)
    }

    /// Sends traffic until a condition holds.
    private func until(_ what: String, atMost limit: Duration, _ condition: () throws -> Bool) throws {
        let deadline = monotonicNow() + limit.wholeNanoseconds
        while try !condition() {
            guard monotonicNow() < deadline else { throw LoadError.timedOut(what) }
            try runDirectory.requireAllRunning()
            try sendTraffic(nanoseconds: 500_000)
        }
    }

    private func worker() throws(NightbellError) -> pid_t { try supervisor.status().processID }

    private func isConnected(_ client: Int) -> Bool {
        let first = client * sharedMemory.socketsPerClient
        return sharedMemory[client, .pid] != 0
            && (first..<first + sharedMemory.socketsPerClient).allSatisfy { callers.isConnected($0) }
    }

    private var areAllConnected: Bool { (0..<settings.clients).allSatisfy(isConnected) }

    // MARK: The end

    /// Calls each isolated client on each of its sockets, one after the other, when it is asleep or has no
    /// process.
    private func callIsolatedClients() throws {
        let tree = try settings.suspension.tree()
        for place in 0..<sharedMemory.socketsPerClient {
            for client in 0..<settings.clients
            where ChaosSharedMemory.isIsolated(client) && !calls.hasLostAny(client) {
                let deadline = monotonicNow() + Self.longestRest * 20
                while !isAsleep(client, tree), monotonicNow() < deadline {
                    try pause(nanoseconds: 1_000_000)
                }
                calls.call(client * sharedMemory.socketsPerClient + place, 1, callers, at: monotonicNow())
            }
            try awaitCalls { try pause(nanoseconds: 1_000_000) }
        }
    }

    private func isAsleep(_ client: Int, _ tree: CgroupTree?) -> Bool {
        let pid = pid_t(sharedMemory[client, .pid])
        // A process that has ended stays a zombie until its parent waits for it.
        guard pid > 0, let state = ProcFS.state(pid), state != "Z" else { return true }
        return StoppedProcess(pid, settings.suspension, tree).isStopped
    }

    /// Calls all clients once more; they must have received everything.
    private func settle() throws {
        try until("all clients to be back", atMost: .seconds(60)) { areAllConnected || callers.lost > 0 }
        try awaitCalls { try pause(nanoseconds: 1_000_000) }
        try callIsolatedClients()
        let sockets = 0..<settings.clients * sharedMemory.socketsPerClient
        for socket in sockets {
            callers.checkForEnd(socket)
            callers.sendBytes(socket, 1)
        }
        let deadline = monotonicNow() + settings.patience.wholeNanoseconds
        while monotonicNow() < deadline, sockets.contains(where: hasUnheard) {
            try pause(nanoseconds: 5_000_000)
        }
        results.isolatedCalls = calls.count
        results.wakesLost = calls.lost + sockets.count { hasUnheard($0) && !calls.hasLost($0) }
        results.wrongBytes = Int(callers.wrongBytes(sharedMemory))
        results.bytes = callers.bytes
        results.connectionsLost =
            callers.lost + (0..<settings.clients).reduce(0) { $0 + Int(sharedMemory[$1, .connectionsLost]) }
        for client in 0..<settings.clients {
            results.wakes += sharedMemory[client, .wakes]
            results.wakesRepeated += sharedMemory[client, .repeated]
            results.keepAliveRuns += sharedMemory[client, .keepAliveRuns]
            results.handlersLate += sharedMemory[client, .keepAliveLate]
            // A handler that never ran records nothing itself.
            if sharedMemory.isKeepAliveOverdue(client, at: monotonicNow()) { results.handlersLate += 1 }
        }
        let counters = try supervisor.status().counters
        results.countedLate = counters["keep_alive_late"]
        results.endedUnderPressure = counters["ended_under_pressure"]
        for client in 0..<settings.clients { results.returns += sharedMemory[client, .returns] }
        results.memory = try ProcessFigures(worker()).proportionalBytes
        results.keeperMemory = try ProcessFigures(supervisor.process.id).proportionalBytes
        let pids = (0..<settings.clients).map { pid_t(sharedMemory[$0, .pid]) }.filter { $0 > 0 }
        supervisor.end()
        let tree = try settings.suspension.tree()
        results.stuckFrozen = pids.count { StoppedProcess($0, settings.suspension, tree).isStopped }
        results.machine.finish()
    }

    private func hasUnheard(_ socket: Int) -> Bool {
        callers.isConnected(socket) && sharedMemory[socket: socket, .received] < callers.sent[socket]
    }
}
