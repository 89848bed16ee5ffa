import CFloors
import CPhone
import Descriptors
import Glibc
import Nightbell
import NightbellWire
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
    }

    static let patience: CInt = 10_000

    let settings: Settings
    let bench: Workbench

    func run() throws -> RelaunchResults {
        let supervisor = try PrivateSupervisor(
            bench, .init(suspension: settings.suspension, extra: ["memoryPressure.file="]))
        let line = try PhoneLine(count: 2 * settings.clients)
        var results = RelaunchResults(settings: settings)
        results.memoryEmpty = try memory(of: supervisor)
        try startPhones(0..<settings.firstClients, supervisor, line)
        results.memoryFirst = try memory(of: supervisor)
        try startPhones(settings.firstClients..<settings.clients, supervisor, line)
        results.memoryAll = try memory(of: supervisor)
        bench.progress.say("\(settings.clients) phones are dormant")

        var ends: [CInt] = [-1, -1]
        guard cfloors_pipe(&ends) == 0 else { throw LoadError(failed: "pipe") }
        defer { for end in ends { close(end) } }
        let phone = "\(bench.programs)/nightbell-phone"
        _ = try bench.start(
            .floorLauncher, ["\(line.port)", "\(settings.clients)", "\(settings.clients)", phone],
            descriptors: [ends[0], ends[0]])
        try line.take(settings.clients)

        var random = SeededRandom(seed: settings.seed)
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
            guard round > 0 else { continue }
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
        _ range: Range<Int>, _ supervisor: PrivateSupervisor, _ line: PhoneLine
    ) throws {
        for start in stride(from: range.lowerBound, to: range.upperBound, by: 16) {
            let part = start..<min(start + 16, range.upperBound)
            let phones = try part.map { try startPhone($0, supervisor, line) }
            try line.take(part.count)
            for phone in phones {
                var status: CInt = 0
                guard waitpid(phone, &status, 0) == phone, status & 0x7F == SIGKILL else {
                    throw LoadError.childEnded("a phone", status: status)
                }
            }
        }
        try waitUntilDormant(range.upperBound, supervisor)
    }

    private func startPhone(
        _ index: Int, _ supervisor: PrivateSupervisor, _ line: PhoneLine
    ) throws -> pid_t {
        let command = ["\(bench.programs)/nightbell-phone", "\(line.port)", "\(index)"]
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
                $0.launch.directory = "/"
            }
        }
        let digits = "0123456789abcdef".map { String($0) }
        let bytes: [UInt8] = try hello.serializedBytes()
        let text = bytes.map { digits[Int($0 >> 4)] + digits[Int($0 & 15)] }.joined()
        var arguments = command.map { strdup($0) } + [nil]
        let variables: [String] = ["PHONE_HELLO=\(text)", "NIGHTBELL_SOCKET=\(supervisor.socketPath)"]
        var environment = variables.map { strdup($0) } + [nil]
        defer { for text in arguments + environment { free(text) } }
        var process: pid_t = 0
        let code = posix_spawn(&process, command[0], nil, nil, &arguments, &environment)
        guard code == 0 else { throw LoadError("start \(command[0])", code: code) }
        return process
    }

    private func waitUntilDormant(_ count: Int, _ supervisor: PrivateSupervisor) throws {
        try wait(for: "\(count) phones to be dormant", atMost: .seconds(60), firstPause: 5_000_000) {
            try bench.requireAllRunning()
            return try supervisor.status().clientsByState["dormant", default: 0] >= count
        }
    }

    /// Of keeper and worker, each with its share of what they share.
    private func memory(of supervisor: PrivateSupervisor) throws -> Int {
        try ProcessFigures(supervisor.process.id).proportionalBytes
            + ProcessFigures(supervisor.worker).proportionalBytes
    }

    // MARK: Calls

    private func call(
        _ index: Int, _ number: UInt64, _ line: PhoneLine, _ measured: inout RelaunchResults.Round,
        _ isOurs: Bool, _ supervisor: PrivateSupervisor
    ) throws {
        let sentAt = try line.call(index, number: number)
        guard let answer = try line.answer(index, number: number, within: Self.patience) else {
            return measured.noteLoss(isOurs: isOurs)
        }
        measured.note(answer.read_at - sentAt, isOurs: isOurs)
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
        _ results: inout RelaunchResults, _ line: PhoneLine, _ supervisor: PrivateSupervisor,
        from first: UInt64
    ) throws {
        let began = monotonicNow()
        for index in 0..<settings.clients { _ = try line.call(index, number: first + UInt64(index)) }
        for index in 0..<settings.clients
        where try line.answer(index, number: first + UInt64(index), within: Self.patience) != nil {
            results.answered += 1
        }
        results.everybodySeconds = Double(monotonicNow() - began) / 1e9
        try waitUntilDormant(settings.clients, supervisor)
    }
}
