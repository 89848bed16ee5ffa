import CFloors
import Glibc
import LinuxSystem
import Nightbell
import NightbellWire
import Simulation
import SwiftProtobuf

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
    /// The most phones that have a process at a time when all are called: the supervisor launches 32 at a
    /// time, and phones that have answered are ended soon.
    static let mostAtOnce = 256

    let settings: Settings
    let runDirectory: RunDirectory

    func run() throws -> RelaunchResults {
        let phone = "\(runDirectory.programs)/nightbell-phone"
        if try PhoneProgram.needsLoader(phone) {
            runDirectory.progress.say(
                "\(phone) loads shared libraries, which takes longer than what is measured: see scripts/build-phone"
            )
        }
        let supervisor = try PrivateSupervisor(
            runDirectory, .init(suspension: settings.suspension, extra: ["memoryPressure.file="]))
        let callers = try Callers(.tcp, slots: 2 * settings.clients, runDirectory)
        var results = RelaunchResults(settings: settings)
        results.memory.empty = try memory(of: supervisor)
        try startPhones(0..<settings.firstClients, supervisor, callers)
        results.memory.first = try memory(of: supervisor)
        try startPhones(settings.firstClients..<settings.clients, supervisor, callers)
        results.memory.all = try memory(of: supervisor)
        runDirectory.progress.say("\(settings.clients) phones are dormant")

        var ends: [CInt] = [-1, -1]
        guard cfloors_pipe(&ends) == 0 else { throw LoadError(failed: "pipe") }
        defer { for end in ends { close(end) } }
        _ = try runDirectory.start(
            .floorLauncher, [callers.callPlan.argument, "\(settings.clients)", "\(settings.clients)", phone],
            descriptors: [ends[0], ends[0]])
        try waitUntilRegistered(2 * settings.clients, callers)

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
        try callAllAtOnce(&results, callers, supervisor, from: number + 1)
        results.machine.finish()
        return results
    }

    // MARK: Phones

    /// Starts phones, which register and ask to be ended instead of being suspended, and waits until the
    /// supervisor has ended them.
    private func startPhones(
        _ range: Range<Int>, _ supervisor: PrivateSupervisor, _ callers: Callers
    ) throws {
        for start in stride(from: range.lowerBound, to: range.upperBound, by: 16) {
            let part = start..<min(start + 16, range.upperBound)
            let phones = try part.map { try startPhone($0, supervisor, callers) }
            try waitUntilRegistered(part.upperBound, callers)
            for phone in phones { try Self.waitUntilEnded(phone, runDirectory) }
        }
        try waitUntilDormant(range.upperBound, supervisor)
    }

    private func startPhone(
        _ index: Int, _ supervisor: PrivateSupervisor, _ callers: Callers
    ) throws -> ChildProcess {
        let command = ["\(runDirectory.programs)/nightbell-phone", callers.callPlan[index], "\(index)"]
        let hello = WireClientMessage.with {
            $0.request = 1
            $0.hello = .with {
                $0.version = 1
                $0.identifier = "org.nightbell.load.phone.\(index)"
                $0.modes = [.voip]
                $0.launch.arguments = command
                // As `nightbell run` records it.
                $0.launch.environment = [
                    "HOME": "/", "LANG": "C.UTF-8", "LOGNAME": "alice",
                    "PATH": "/usr/local/bin:/usr/bin:/bin",
                    "SHELL": "/bin/bash", "USER": "alice",
                ]
                if settings.hasOwnEnvironments {
                    $0.launch.environment["HOME"] = "/home/alice/phone\(index)"
                    $0.launch.environment["PHONE_NUMBER"] = "\(index)"
                }
                $0.launch.directory = "/"
            }
        }
        let digits = "0123456789abcdef".map { String($0) }
        let bytes: [UInt8] = try hello.serializedBytes()
        let text = bytes.map { digits[Int($0 >> 4)] + digits[Int($0 & 15)] }.joined()
        return try ChildProcess(
            "nightbell-phone", command, log: "\(runDirectory.path)/nightbell-phone.log",
            environment: [
                "PHONE_HELLO": text, "PHONE_PARENT": "\(getpid())",
                "NIGHTBELL_SOCKET": supervisor.socketPath,
            ])
    }

    private func waitUntilRegistered(_ count: Int, _ callers: Callers) throws {
        try wait(for: "phones to register", atMost: .seconds(30)) {
            try runDirectory.requireAllRunning()
            try callers.acceptConnections()
            return callers.connected == count
        }
    }

    /// Waits until the supervisor has ended a phone, as the phone asked for.
    static func waitUntilEnded(
        _ phone: ChildProcess, _ runDirectory: RunDirectory, atMost limit: Duration = .seconds(30)
    ) throws {
        try wait(for: "phones to be ended", atMost: limit) {
            try runDirectory.requireAllRunning()
            return !phone.isRunning
        }
        guard phone.exitStatus == 128 + SIGKILL else { throw runDirectory.end(of: phone) }
    }

    private func waitUntilDormant(_ count: Int, _ supervisor: PrivateSupervisor) throws {
        try wait(for: "\(count) phones to be dormant", atMost: .seconds(60), firstPause: 5_000_000) {
            try runDirectory.requireAllRunning()
            return try supervisor.status().clientsByState["dormant", default: 0] >= count
        }
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
            let identifier = "org.nightbell.load.phone.\(index)"
            try wait(for: "phone \(index) to be dormant", atMost: .seconds(10), firstPause: 3_000_000) {
                try administration.show(identifier).state == .dormant
            }
        } else {
            try pause(nanoseconds: 3_000_000)
        }
    }

    /// Calls each phone once, all at the same time.
    private func callAllAtOnce(
        _ results: inout RelaunchResults, _ callers: Callers, _ supervisor: PrivateSupervisor,
        from first: UInt64
    ) throws {
        let began = monotonicNow()
        for index in 0..<settings.clients { try callers.callPhone(index, number: first + UInt64(index)) }
        for index in 0..<settings.clients
        where try callers.answer(index, number: first + UInt64(index), within: Self.patience) != nil {
            results.answered += 1
        }
        results.allAtOnceSeconds = Double(monotonicNow() - began) / 1e9
        try waitUntilDormant(settings.clients, supervisor)
    }
}
