import Foundation
import Testing

@testable import LoadTester

/// Clients that the supervisor launches are not children of the harness, and may be stopped or frozen.
@Suite("The end of a chaos run", .serialized, .timeLimit(.minutes(40)))
struct ChaosEndTests {
    enum End: String, CaseIterable {
        case byItself, terminated, interrupted, killed, keeperKilled
    }

    private let directory = FileManager.default.temporaryDirectory.appendingPathComponent(
        "load-end-\(UUID().uuidString)"
    ).path

    @Test("Nothing of a run is left, however it ends", arguments: End.allCases)
    func nothingLeft(end: End) throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let harness = try start(kills: end == .byItself ? 4 : 100_000)
        defer {
            // Whatever the result of the test.
            for pid in processes(of: harness) { kill(pid, SIGKILL) }
        }
        if end != .byItself {
            try wait(for: "clients to be launched again", atMost: .seconds(120)) {
                try #require(harness.isRunning)
                return startedClients(of: harness).count > 1
            }
        }
        let cgroups = noted()
        for client in startedClients(of: harness) { if end != .byItself { kill(client, SIGSTOP) } }
        switch end {
        case .byItself: break
        case .terminated: kill(harness.processIdentifier, SIGTERM)
        case .interrupted: kill(harness.processIdentifier, SIGINT)
        case .killed: kill(harness.processIdentifier, SIGKILL)
        case .keeperKilled: kill(try #require(keeper(of: harness)), SIGKILL)
        }
        harness.waitUntilExit()
        #expect((harness.terminationStatus == 0) == (end == .byItself))
        try wait(for: "the end of \(processes(of: harness).map(arguments))", atMost: .seconds(20)) {
            processes(of: harness).isEmpty
        }
        if end == .killed { Leftovers.removeDirectories(in: directory) }
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory) == ["log"])
        #expect(cgroups.filter { FileManager.default.fileExists(atPath: $0) } == [])
        if geteuid() == 0, end != .byItself { #expect(!cgroups.isEmpty) }
    }

    private func start(kills: Int) throws -> Process {
        let program = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        let process = Process()
        process.executableURL = URL(fileURLWithPath: program).deletingLastPathComponent()
            .appendingPathComponent("nightbell-load")
        let method = geteuid() == 0 ? "cgroup" : "signal"
        process.arguments =
            ["chaos", "--clients", "8", "--sockets", "40", "--suspend", method, "--quiet"]
            + ["--kills", "\(kills)"]
        process.environment = ProcessInfo.processInfo.environment.merging(["TMPDIR": directory]) { $1 }
        #expect(FileManager.default.createFile(atPath: "\(directory)/log", contents: nil))
        let log = try #require(FileHandle(forWritingAtPath: "\(directory)/log"))
        process.standardOutput = log
        process.standardError = log
        try process.run()
        return process
    }

    // MARK: Leftovers

    private func arguments(_ pid: pid_t) -> [String] {
        let bytes = FileManager.default.contents(atPath: "/proc/\(pid)/cmdline") ?? Data()
        return bytes.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
    }

    private func all(_ isMeant: ([String]) -> Bool) -> [pid_t] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        return names.compactMap { pid_t($0) }.filter { isMeant(arguments($0)) }
    }

    /// All processes that name the run's directory in their arguments; the harness itself does not.
    private func processes(of harness: Process) -> [pid_t] {
        let sharedMemory = "/proc/\(harness.processIdentifier)/fd/"
        return all { $0.contains { $0.hasPrefix(sharedMemory) || $0.hasPrefix(directory) } }
    }

    /// Clients that have started: an unknown one cannot be stopped.
    private func startedClients(of harness: Process) -> [pid_t] {
        let sharedMemory = "/proc/\(harness.processIdentifier)/fd/"
        return all {
            $0.contains(ProcessRole.relaunchedChaosClient.rawValue)
                && $0.contains { $0.hasPrefix(sharedMemory) }
        }.filter {
            let directory = "/proc/\($0)/fd"
            let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
            return names.contains { name in
                let file = try? FileManager.default.destinationOfSymbolicLink(atPath: "\(directory)/\(name)")
                return file?.contains("nightbell-chaos") ?? false
            }
        }
    }

    private func keeper(of harness: Process) -> pid_t? {
        processes(of: harness).first { pid in
            guard arguments(pid).first?.hasSuffix("/nightbelld") == true else { return false }
            let status = (try? String(contentsOfFile: "/proc/\(pid)/status", encoding: .utf8)) ?? ""
            return status.contains("PPid:\t\(harness.processIdentifier)\n")
        }
    }

    /// The cgroups that the supervisor has listed.
    private func noted() -> [String] {
        let runs = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
        return runs.flatMap { run in
            let path = "\(directory)/\(run)/supervisor/runtime-state"
            let bytes = FileManager.default.contents(atPath: path) ?? Data()
            // Texts lie between bytes that are none.
            return bytes.split { !(0x20..<0x7f).contains($0) }.compactMap { text in
                let text = String(decoding: text, as: UTF8.self)
                return text.range(of: "/sys/fs/cgroup").map { String(text[$0.lowerBound...]) }
            }
        }
    }
}
