import CFloors
import Glibc
import Nightbell
import Simulation

/// Calls sleepers one at a time, at random moments, each while all are asleep: first a client of the
/// supervisor, then one of the floor, or the other way round.
struct WakeRun {
    struct Settings {
        var suspension: SuspensionMethod
        var transport: Transport
        var clients: Int
        /// Calls to each population in a round.
        var calls: Int
        var rounds: Int
        var seed: UInt64
        /// The mean pause before a call.
        var meanPause: Duration = .milliseconds(1)
    }

    /// How long a packet may take before it counts as lost.
    static let patience = Duration.seconds(5)

    let settings: Settings
    let runDirectory: RunDirectory

    func run() throws -> WakeResults {
        let supervisor = try PrivateSupervisor(runDirectory, .init(suspension: settings.suspension))
        let clients = settings.clients
        let sharedMemory = try SharedMemory(slots: 2 * clients)
        let callers = try Callers(settings.transport, slots: 2 * clients, runDirectory)
        runDirectory.progress.say("starting \(clients) sleepers, and as many for the floor")
        let floor = try FloorPopulation(
            runDirectory, method: settings.suspension, range: clients..<2 * clients,
            sharedMemory: sharedMemory, callers: callers)
        let ours = try SupervisedPopulation(
            runDirectory, supervisor, method: settings.suspension, range: 0..<clients,
            sharedMemory: sharedMemory, callers: callers)
        runDirectory.progress.say("all asleep by \(try supervisor.status().suspension)")

        var results = WakeResults(settings: settings)
        var random = SplitMix64(seed: settings.seed)
        // The first wake of each sleeper touches pages that were never touched; the first round does not
        // count.
        try callAll(ours)
        try callAll(floor)
        results.began = monotonicNow()
        for round in 1...settings.rounds {
            var measured = WakeResults.Round()
            for call in 1...settings.calls {
                let oursFirst = Bool.random(using: &random)
                for isOurs in [oursFirst, !oursFirst] {
                    let index = Int.random(in: 0..<clients, using: &random)
                    try self.call(isOurs ? index : clients + index, isOurs ? ours : floor, &measured, &random)
                }
                if call % 50 == 0 {
                    runDirectory.progress.show(
                        "round \(round) of \(settings.rounds): \(call) of \(settings.calls) calls")
                }
            }
            results.rounds.append(measured)
            runDirectory.progress.say(measured.line(round))
        }
        try ours.requireAllAlive()
        try floor.requireAllAlive()
        results.finish(ours, floor)
        return results
    }

    private func call(
        _ index: Int, _ population: any Population, _ measured: inout WakeResults.Round,
        _ random: inout SplitMix64
    ) throws {
        try population.waitUntilAsleep(index)
        let pause = random.exponential(perSecond: 1 / settings.meanPause.inSeconds)
        try LoadTester.pause(nanoseconds: 200_000 + Int64(min(pause, 0.1) * 1e9))
        let slot = population.sharedMemory[index]
        let before = slot.received
        try population.callers.call(index)
        guard try hasArrived(slot, before) else {
            try population.requireAlive(index)
            measured.recordLoss(isOurs: population is SupervisedPopulation)
            return
        }
        let sample = WakeResults.Sample(at: slot.pointer.pointee.sent_at, latency: slot.latency)
        measured.note(sample, isOurs: population is SupervisedPopulation)
        // The end of a wake must not delay the next call.
        try population.waitUntilAsleep(index)
        if population is SupervisedPopulation {
            measured.asleep.record(nanoseconds: monotonicNow() - slot.pointer.pointee.received_at)
        }
    }

    /// Looks first when the packet has long arrived: looking earlier would disturb the wake.
    private func hasArrived(_ slot: Slot, _ before: UInt64) throws -> Bool {
        do {
            try wait(for: "a packet", atMost: Self.patience, firstPause: 1_000_000) { slot.received > before }
            return true
        } catch LoadError.timedOut {
            return false
        }
    }

    private func callAll(_ population: any Population) throws {
        for index in population.range {
            try population.waitUntilAsleep(index)
            try population.callers.call(index)
        }
        for index in population.range {
            guard try hasArrived(population.sharedMemory[index], 0) else {
                try population.requireAlive(index)
                throw LoadError.timedOut("the first packet of sleeper \(index)")
            }
            try population.waitUntilAsleep(index)
        }
    }
}
