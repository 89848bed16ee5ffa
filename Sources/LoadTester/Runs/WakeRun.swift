import CFloors
import Glibc
import Nightbell
import Simulation

/// Sleepers are called one at a time, at random moments, each when everybody is asleep: first one of ours, then
/// one of the floor's, or the other way round.
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
    let bench: Workbench

    func run() throws -> WakeResults {
        let supervisor = try PrivateSupervisor(bench, .init(suspension: settings.suspension))
        let clients = settings.clients
        let area = try SharedArea(slots: 2 * clients)
        let callers = try Callers(settings.transport, slots: 2 * clients, bench)
        bench.progress.say("starting \(clients) sleepers, and as many for the floor")
        let floor = try FloorPopulation(
            bench, method: settings.suspension, range: clients..<2 * clients, area: area, callers: callers)
        let ours = try SupervisedPopulation(
            bench, supervisor, method: settings.suspension, range: 0..<clients, area: area, callers: callers)
        bench.progress.say("all asleep by \(try supervisor.status().suspension)")

        var results = WakeResults(settings: settings)
        var random = SplitMix64(seed: settings.seed)
        // Whoever wakes for the first time pays for pages that were never touched.
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
                    bench.progress.show(
                        "round \(round) of \(settings.rounds): \(call) of \(settings.calls) calls")
                }
            }
            results.rounds.append(measured)
            bench.progress.say(measured.line(round))
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
        let slot = population.area[index]
        let before = slot.received
        try population.callers.call(index)
        guard try hasArrived(slot, before) else {
            try population.requireAlive(index)
            measured.noteLoss(isOurs: population is SupervisedPopulation)
            return
        }
        let sample = WakeResults.Sample(at: slot.pointer.pointee.sent_at, latency: slot.latency)
        measured.note(sample, isOurs: population is SupervisedPopulation)
        // What follows a wake must not be in the way of the next call.
        try population.waitUntilAsleep(index)
        if population is SupervisedPopulation {
            measured.asleep.record(nanoseconds: monotonicNow() - slot.pointer.pointee.received_at)
        }
    }

    /// The first look comes when the packet has long arrived, so that nobody is disturbed by looking.
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
            guard try hasArrived(population.area[index], 0) else {
                try population.requireAlive(index)
                throw LoadError.timedOut("the first packet of sleeper \(index)")
            }
            try population.waitUntilAsleep(index)
        }
    }
}
