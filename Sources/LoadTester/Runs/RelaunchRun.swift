import CFloors
import Descriptors
import Glibc
import Nightbell
import NightbellWire
import Simulation
import SwiftProtobuf

/// Phones without a process are called: the supervisor starts each, and ends it again when it has answered.
struct RelaunchRun {
    struct Settings {
        var suspension: SuspensionMethod
        var clients: Int
        /// A first population, to tell growth from what is there anyway.
        var firstClients: Int
        var calls: Int
        var rounds: Int
        var seed: UInt64
        /// No two phones are launched with the same environment.
        var hasOwnEnvironments = false
    }

    /// How long an answer may take before the call counts as lost, in milliseconds.
    private static let patience: CInt = 10_000
    /// Phones that have a process at the same time, when all are called: the supervisor launches 32 at a time, and
    /// those that have answered are ended soon.
    static let mostAtOnce = 256

    let settings: Settings
    let bench: Workbench

    func run() throws -> RelaunchResults {
        let supervisor = try PrivateSupervisor(
            bench, .init(suspension: settings.suspension, extra: ["memoryPressure.file="]))
        let line = try Callers(.tcp, slots: 2 * settings.clients, bench)
        var results = RelaunchResults(settings: settings)
        results.memory.empty = try memory(of: supervisor)
        try startPhones(0..<settings.firstClients, supervisor, line)
        results.memory.first = try memory(of: supervisor)
        try startPhones(settings.firstClients..<settings.clients, supervisor, line)
        results.memory.all = try memory(of: supervisor)
        bench.progress.say("\(settings.clients) phones are dormant")

        var ends: [CInt] = [-1, -1]
        guard cfloors_pipe(&ends) == 0 else { throw LoadError(failed: "pipe") }
        defer { for end in ends { close(end) } }
        let phone = "\(bench.programs)/nightbell-phone"
        _ = try bench.start(
            .floorLauncher, [line.places.argument, "\(settings.clients)", "\(settings.clients)", phone],
            descriptors: [ends[0], ends[0]])
        try waitUntilRegistered(2 * settings.clients, line)

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
                        isOurs ? index : settings.clients + index, number, line, &measured, isOurs, supervisor
                    )
                }
            }
            // Whoever is first pays for pages that were never touched.
            guard round > 0 else {
                results.warmingUp = measured
                continue
            }
            results.rounds.append(measured)
            bench.progress.say(measured.line(round))
        }
        try callEverybody(&results, line, supervisor, from: number + 1)
        results.machine.finish()
        return results
    }

    // MARK: Phones

    /// Starts phones, which register, ask to be ended instead of being suspended, and are.
    private func startPhones(
        _ range: Range<Int>, _ supervisor: PrivateSupervisor, _ line: Callers
    ) throws {
        for start in stride(from: range.lowerBound, to: range.upperBound, by: 16) {
            let part = start..<min(start + 16, range.upperBound)
            let phones = try part.map { try startPhone($0, supervisor, line) }
            try waitUntilRegistered(part.upperBound, line)
            for phone in phones { try Self.waitUntilEnded(phone, bench) }
        }
        try waitUntilDormant(range.upperBound, supervisor)
    }

    private func startPhone(
        _ index: Int, _ supervisor: PrivateSupervisor, _ line: Callers
    ) throws -> ChildProcess {
        let command = ["\(bench.programs)/nightbell-phone", line.places[index], "\(index)"]
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
            "nightbell-phone", command, log: "\(bench.directory)/nightbell-phone.log",
            environment: [
                "PHONE_HELLO": text, "PHONE_PARENT": "\(getpid())",
                "NIGHTBELL_SOCKET": supervisor.socketPath,
            ])
    }

    private func waitUntilRegistered(_ count: Int, _ line: Callers) throws {
        try wait(for: "phones to register", atMost: .seconds(30)) {
            try bench.requireAllRunning()
            try line.takeIn()
            return line.connected == count
        }
    }

    /// By the supervisor, as it has asked for.
    static func waitUntilEnded(
        _ phone: ChildProcess, _ bench: Workbench, atMost limit: Duration = .seconds(30)
    ) throws {
        try wait(for: "phones to be ended", atMost: limit) {
            try bench.requireAllRunning()
            return !phone.isRunning
        }
        guard phone.exitStatus == 128 + SIGKILL else { throw bench.end(of: phone) }
    }

    private func waitUntilDormant(_ count: Int, _ supervisor: PrivateSupervisor) throws {
        try wait(for: "\(count) phones to be dormant", atMost: .seconds(60), firstPause: 5_000_000) {
            try bench.requireAllRunning()
            return try supervisor.status().clientsByState["dormant", default: 0] >= count
        }
    }

    /// Once the supervisor has nothing left to do.
    private func memory(of supervisor: PrivateSupervisor) throws(LoadError) -> RelaunchResults.Memory {
        try pause(nanoseconds: 200_000_000)
        return .init(
            worker: try ProcessFigures(supervisor.worker).writtenBytes,
            keeper: try ProcessFigures(supervisor.process.id).writtenBytes)
    }

    // MARK: Calls

    private func call(
        _ index: Int, _ number: UInt64, _ line: Callers, _ measured: inout RelaunchResults.Round,
        _ isOurs: Bool, _ supervisor: PrivateSupervisor
    ) throws {
        try line.ring(index, number: number)
        guard let latency = try line.answer(index, number: number, within: Self.patience) else {
            try bench.requireAllRunning()
            return measured.noteLoss(isOurs: isOurs)
        }
        measured.note(latency, isOurs: isOurs)
        // What follows must not be in the way of the next call.
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

    /// Each phone once, all at the same time.
    private func callEverybody(
        _ results: inout RelaunchResults, _ line: Callers, _ supervisor: PrivateSupervisor,
        from first: UInt64
    ) throws {
        let began = monotonicNow()
        for index in 0..<settings.clients { try line.ring(index, number: first + UInt64(index)) }
        for index in 0..<settings.clients
        where try line.answer(index, number: first + UInt64(index), within: Self.patience) != nil {
            results.answered += 1
        }
        results.everybodySeconds = Double(monotonicNow() - began) / 1e9
        try waitUntilDormant(settings.clients, supervisor)
    }
}
