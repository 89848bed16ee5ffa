import CFloors
import Glibc
import LinuxSystem
import Nightbell
import Simulation

/// Calls phones without a process: the supervisor starts each, and ends it again when it has answered.
struct RelaunchRun {
    struct Settings {
        var suspension: SuspensionMethod
        var clients: Int
        /// A first population, to separate growth from the base.
        var firstClients: Int
        var calls: Int
        var rounds: Int
        var seed: UInt64
        /// Each phone is launched with an environment of its own.
        var hasOwnEnvironments = false
    }

    /// How long an answer may take before the call counts as lost, in milliseconds.
    private static let patience: CInt = 10_000

    let settings: Settings
    let runDirectory: RunDirectory

    func run() throws -> RelaunchResults {
        let phone = PhoneProgram.path(runDirectory)
        if try PhoneProgram.needsLoader(phone) {
            runDirectory.progress.say(
                "\(phone) loads shared libraries, which takes longer than what is measured: see scripts/build-phone"
            )
        }
        let supervisor = try PrivateSupervisor(
            runDirectory, .init(suspension: settings.suspension, extra: ["memoryPressure.file="]))
        let callers = try Callers(.tcp, slots: 2 * settings.clients, runDirectory)
        let phones = DormantPhones(
            runDirectory: runDirectory, supervisor: supervisor, callers: callers,
            haveOwnEnvironments: settings.hasOwnEnvironments)
        var results = RelaunchResults(settings: settings)
        results.memory.empty = try memory(of: supervisor)
        try phones.start(0..<settings.firstClients)
        results.memory.first = try memory(of: supervisor)
        try phones.start(settings.firstClients..<settings.clients)
        results.memory.all = try memory(of: supervisor)
        runDirectory.progress.say("\(settings.clients) phones are dormant")

        var ends: [CInt] = [-1, -1]
        guard cfloors_pipe(&ends) == 0 else { throw LoadError(failed: "pipe") }
        defer { for end in ends { close(end) } }
        _ = try runDirectory.start(
            .floorLauncher, [callers.callPlan.argument, "\(settings.clients)", "\(settings.clients)", phone],
            descriptors: [ends[0], ends[0]])
        try phones.waitUntilRegistered(2 * settings.clients)

        var random = SplitMix64(seed: settings.seed)
        var number: UInt64 = 0
        for round in 0...settings.rounds {
            var measured = RelaunchResults.Round()
            for _ in 1...settings.calls {
                let oursFirst = Bool.random(using: &random)
                for isOurs in [oursFirst, !oursFirst] {
                    number += 1
                    let index = Int.random(in: 0..<settings.clients, using: &random)
                    try call(
                        isOurs ? index : settings.clients + index, number, callers, &measured, isOurs,
                        supervisor
                    )
                }
            }
            // The first round touches pages that were never touched.
            guard round > 0 else {
                results.warmingUp = measured
                continue
            }
            results.rounds.append(measured)
            runDirectory.progress.say(measured.line(round))
        }
        try callAllAtOnce(&results, callers, phones, from: number + 1)
        results.machine.finish()
        return results
    }

    /// Measures once the supervisor has nothing left to do.
    private func memory(of supervisor: PrivateSupervisor) throws(LoadError) -> RelaunchResults.Memory {
        try pause(nanoseconds: 200_000_000)
        return .init(
            worker: try ProcessFigures(supervisor.worker).writtenBytes,
            keeper: try ProcessFigures(supervisor.process.id).writtenBytes)
    }

    // MARK: Calls

    private func call(
        _ index: Int, _ number: UInt64, _ callers: Callers, _ measured: inout RelaunchResults.Round,
        _ isOurs: Bool, _ supervisor: PrivateSupervisor
    ) throws {
        try callers.callPhone(index, number: number)
        guard let latency = try callers.answer(index, number: number, within: Self.patience) else {
            try runDirectory.requireAllRunning()
            return measured.recordLoss(isOurs: isOurs)
        }
        measured.note(latency, isOurs: isOurs)
        // The end of a relaunch must not delay the next call.
        if isOurs {
            var administration = try Administration(socketPath: supervisor.socketPath)
            let identifier = DormantPhones.identifier(index)
            try wait(for: "phone \(index) to be dormant", atMost: .seconds(10), firstPause: 3_000_000) {
                try administration.show(identifier).state == .dormant
            }
        } else {
            try pause(nanoseconds: 3_000_000)
        }
    }

    /// Calls each phone once, all at the same time.
    private func callAllAtOnce(
        _ results: inout RelaunchResults, _ callers: Callers, _ phones: DormantPhones, from first: UInt64
    ) throws {
        let began = monotonicNow()
        for index in 0..<settings.clients { try callers.callPhone(index, number: first + UInt64(index)) }
        for index in 0..<settings.clients
        where try callers.answer(index, number: first + UInt64(index), within: Self.patience) != nil {
            results.answered += 1
        }
        results.allAtOnceSeconds = Double(monotonicNow() - began) / 1e9
        try phones.waitUntilDormant(settings.clients)
    }
}
