import Glibc
import LinuxSystem
import Nightbell
import Simulation

/// Leaves messages at the push service for clients that sleep, while the gateway, the worker and clients are
/// killed.
final class PushRun {
    struct Settings {
        var suspension: SuspensionMethod
        var clients: Int
        var pushes: Int
        var rate: Int
        var kills: Int
        var seed: UInt64
    }

    private enum Victim: Int, CaseIterable {
        case gateway, worker, client
    }

    private let settings: Settings
    private let runDirectory: RunDirectory
    private let sharedMemory: PushSharedMemory
    private let supervisor: PrivateSupervisor
    private let senders: PushSenders
    private let gateway: GatewayProcess
    private var random: SplitMix64
    private var results: PushResults
    /// When each was answered with 201.
    private var acceptedAt: [Int64?]
    /// Drawn, sent, and not to be sent again: the next number.
    private var next = 0

    private static let connections = 32
    /// Nothing was handled for so long: the rest is lost.
    private static let patience: Int64 = 30_000_000_000

    init(settings: Settings, runDirectory: RunDirectory) throws {
        self.settings = settings
        self.runDirectory = runDirectory
        random = SplitMix64(seed: settings.seed)
        results = PushResults(settings: settings)
        acceptedAt = Array(repeating: nil, count: settings.pushes)
        sharedMemory = try PushSharedMemory(clients: settings.clients, pushes: settings.pushes)
        gateway = GatewayProcess(runDirectory)
        senders = PushSenders(port: gateway.port, count: Self.connections)
        supervisor = try PrivateSupervisor(
            runDirectory,
            .init(
                suspension: settings.suspension, linger: .milliseconds(20),
                extra: [
                    "keeper.crashLimit=1000000", "launches.relaunches=255", "launches.retry=10ms",
                    "launches.retryMaximum=50ms", "memoryPressure.file=", "monitor=off", "logLevel=error",
                    "quotas.observationsPerUser=100000", "gateway.pushSocket=\(gateway.pushSocket)",
                    // Each message is to be told at once.
                    "push.perHour=3600", "push.retry=100ms",
                ]))
    }

    func run() throws -> PushResults {
        let pipe = try Pipe()
        try gateway.start(supervisor)
        runDirectory.progress.say("waiting for \(settings.clients) clients to sleep")
        let starter = try PushClients.start(sharedMemory, supervisor, pipe, runDirectory)
        try supervisor.waitUntilAsleep(settings.clients, atMost: .seconds(120))
        let start = monotonicNow()
        try sendAll(since: start)
        try settle()
        results.nanoseconds = monotonicNow() - start
        judge()
        runDirectory.end(starter)
        gateway.end()
        supervisor.end()
        results.merging = try PushMergingRun(settings, runDirectory: runDirectory).run()
        results.machine.finish()
        withExtendedLifetime(pipe) {}
        return results
    }

    // MARK: Sending

    private func sendAll(since start: Int64) throws {
        while next < settings.pushes {
            let due = Int((monotonicNow() - start) * Int64(settings.rate) / 1_000_000_000)
            var isRefused = false
            while next < min(due, nextKill), !isRefused {
                let client = Int.random(in: 0..<settings.clients, using: &random)
                if senders.send(next, to: sharedMemory[address: client]) {
                    next += 1
                } else {
                    isRefused = true
                }
            }
            collect(milliseconds: 1)
            try killIfDue()
            if next % 100 == 0 { runDirectory.progress.show("\(next) of \(settings.pushes) messages") }
            try pause(nanoseconds: 0)
        }
    }

    private func collect(milliseconds: CInt) {
        senders.collect(milliseconds: milliseconds) { push, outcome in
            switch outcome {
            case .accepted:
                acceptedAt[push] = monotonicNow()
                results.accepted += 1
            case .refused: results.refused += 1
            case .unanswered: results.unanswered += 1
            }
        }
    }

    private func settle() throws {
        var (handled, since) = (0, monotonicNow())
        while monotonicNow() - since < Self.patience {
            collect(milliseconds: 10)
            let count = (0..<settings.pushes).count { sharedMemory[push: $0, .handledAt] != 0 }
            if count > handled { (handled, since) = (count, monotonicNow()) }
            let isComplete = (0..<settings.pushes).allSatisfy {
                acceptedAt[$0] == nil || sharedMemory[push: $0, .handledAt] != 0
            }
            if senders.underWay == 0, isComplete { return }
            try pause(nanoseconds: 5_000_000)
        }
    }

    // MARK: Kills

    /// Of so many messages sent, the next kill is due; none is sent before it.
    private var nextKill: Int {
        results.kills < settings.kills ? results.kills * settings.pushes / settings.kills : settings.pushes
    }

    private func killIfDue() throws {
        guard results.kills < settings.kills, next >= nextKill else { return }
        let victim = Victim.allCases[results.kills % Victim.allCases.count]
        if try kill(victim) { return results.note(kill: "\(victim)") }
        // All clients that can be launched again may be waiting for a message.
        if victim == .client, try kill(.worker) { results.note(kill: "\(Victim.worker)") }
    }

    /// - Returns: false: there is none at the moment.
    private func kill(_ victim: Victim) throws -> Bool {
        switch victim {
        case .gateway:
            gateway.kill()
            try gateway.start(supervisor)
        case .worker:
            guard let worker = try? supervisor.status().processID else { return false }
            Glibc.kill(worker, SIGKILL)
        case .client:
            let launchable = ((try? supervisor.clients()) ?? []).filter { client in
                client.processID > 0
                    && client.identifier.split(separator: ".").last.flatMap { Int($0) }
                        .map(PushSharedMemory.isLaunchable) == true
            }
            guard let client = launchable.randomElement(using: &random) else { return false }
            Glibc.kill(client.processID, SIGKILL)
        }
        return true
    }

    // MARK: Results

    private func judge() {
        for push in 0..<settings.pushes {
            results.repeated += Int(sharedMemory[push: push, .repeated])
            results.duplicate += Int(sharedMemory[push: push, .duplicate])
            guard let accepted = acceptedAt[push] else { continue }
            let handled = sharedMemory[push: push, .handledAt]
            if handled == 0 {
                results.lost += 1
            } else {
                results.latencies.record(nanoseconds: Int64(handled) - accepted)
            }
        }
        results.wakes = (0..<settings.clients).reduce(0) { $0 + Int(sharedMemory[$1, .wakes]) }
        results.foreign = (0..<settings.clients).reduce(0) { $0 + Int(sharedMemory[$1, .failures]) }
    }
}
