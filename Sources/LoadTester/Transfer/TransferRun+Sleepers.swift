import Glibc
import LinuxSystem
import Nightbell
import TransferClient

/// Downloads for clients that sleep or have no process, with a supervisor that wakes and launches them.
extension TransferRun {
    /// Of the clients: root has no transfers.
    static let user: uid_t = geteuid() == 0 ? 65_534 : geteuid()

    private enum Victim: Int, CaseIterable {
        case transferProcess
        case worker
        case client
    }

    /// Clients are killed during this share of the bytes: later ones may have been woken already.
    private static let shareWithKilledClients = 0.7

    /// The files, by their names.
    func downloadAsleep(
        _ server: TransferServerProcess, _ results: inout TransferResults
    ) throws -> [String: TransferredFile] {
        let copies = runDirectory.path + "/copies"
        let lifeline = try Lifeline(runDirectory.path + "/lifeline")
        guard mkdir(copies, 0o755) == 0, geteuid() != 0 || chown(copies, Self.user, Self.user) == 0 else {
            throw LoadError(failed: "mkdir \(copies)")
        }
        let supervisor = try PrivateSupervisor(
            runDirectory,
            .init(
                suspension: settings.suspension, linger: .milliseconds(50),
                extra: [
                    "keeper.crashLimit=1000000", "launches.relaunches=255", "launches.retry=10ms",
                    "launches.retryMaximum=50ms", "memoryPressure.file=", "monitor=off", "logLevel=error",
                    "quotas.observationsPerUser=1000",
                ]))
        defer { supervisor.end() }
        // Nothing is finished before the clients sleep.
        try server.stop()
        runDirectory.progress.say("waiting for \(settings.sessions) clients to sleep or end")
        let starters = try (0..<settings.sessions).map { index in
            try runDirectory.start(
                .transferClient,
                TransferClientMain.arguments(
                    index, settings, address: server.address, supervisorSocket: supervisor.socketPath,
                    copies: copies, lifeline: lifeline.path), descriptors: [])
        }
        try wait(for: "the clients to sleep or end", atMost: .seconds(120)) {
            let states = try supervisor.status().clientsByState
            return states["suspended", default: 0] + states["dormant", default: 0] == settings.sessions
        }
        runDirectory.progress.say("downloading, with \(settings.kills) kills")
        try server.resume()
        try killAndWait(supervisor, server, copies, &results)
        for starter in starters { runDirectory.end(starter) }
        return try collect(copies, &results)
    }

    private func killAndWait(
        _ supervisor: PrivateSupervisor, _ server: TransferServerProcess, _ copies: String,
        _ results: inout TransferResults
    ) throws {
        var random = SystemRandomNumberGenerator()
        let deadline = monotonicNow() + Self.longest
        while monotonicNow() < deadline {
            let done = (0..<settings.sessions).allSatisfy { access("\(copies)/done.\($0)", F_OK) == 0 }
            if done, isWhole(copies) { return }
            let sent = server.sentBytes
            if results.kills < settings.kills, sent >= results.kills * results.payload / settings.kills {
                let mayKillClient =
                    Double(sent) < Self.shareWithKilledClients * Double(results.payload)
                let victims = Victim.allCases.filter { $0 != .client || mayKillClient }
                let victim = victims[results.kills % victims.count]
                if try kill(victim, supervisor, using: &random) { results.note(kill: "\(victim)") }
            }
            try pause(nanoseconds: 10_000_000)
        }
    }

    /// Whether all files are there that have not failed.
    private func isWhole(_ copies: String) -> Bool {
        let failed = count("failed", copies)
        let there = (0..<settings.files).count { access("\(copies)/f\($0)", F_OK) == 0 }
        return there + failed >= settings.files
    }

    /// False: there is none at the moment.
    private func kill(
        _ victim: Victim, _ supervisor: PrivateSupervisor, using random: inout some RandomNumberGenerator
    ) throws -> Bool {
        // Between two workers nothing answers.
        guard let worker = try? supervisor.status().processID else { return false }
        switch victim {
        case .worker:
            Glibc.kill(worker, SIGKILL)
        case .transferProcess:
            guard
                let process = Self.children(of: worker).first(where: {
                    Self.name(of: $0) == "nightbell-trans"
                })
            else { return false }
            Glibc.kill(process, SIGKILL)
        case .client:
            let asleep = ((try? supervisor.clients()) ?? []).filter { $0.state == .suspended }
            guard let client = asleep.randomElement(using: &random) else { return false }
            Glibc.kill(client.processID, SIGKILL)
        }
        return true
    }

    private static func children(of pid: pid_t) -> [pid_t] {
        ProcFS.threadIdentifiers(pid).flatMap { thread in
            let text = (try? SmallFile.readText("/proc/\(pid)/task/\(thread)/children")) ?? ""
            return text.split(separator: " ").compactMap { pid_t($0) }
        }
    }

    private static func name(of pid: pid_t) -> String {
        ((try? SmallFile.readText("/proc/\(pid)/comm")) ?? "").filter { $0 != "\n" }
    }

    private func collect(
        _ copies: String, _ results: inout TransferResults
    ) throws -> [String: TransferredFile] {
        results.wakes = count("wakes", copies)
        results.repeated = count("repeated", copies)
        results.failed = count("failed", copies)
        var files: [String: TransferredFile] = [:]
        for index in 0..<settings.files {
            guard let file = try? OwnedDescriptor(opening: "\(copies)/f\(index)", O_RDONLY) else { continue }
            files["f\(index)"] = TransferredFile(file)
        }
        return files
    }

    /// A count of the clients, over all of them.
    private func count(_ name: String, _ copies: String) -> Int {
        (0..<settings.sessions).reduce(0) { sum, index in
            var status = stat()
            return sum + (stat("\(copies)/\(name).\(index)", &status) == 0 ? Int(status.st_size) : 0)
        }
    }
}

/// A named pipe with one writer, this process: the clients end with it.
private final class Lifeline {
    let path: String
    private let writing: OwnedDescriptor

    init(_ path: String) throws {
        self.path = path
        guard mkfifo(path, 0o644) == 0, chmod(path, 0o644) == 0 else {
            throw LoadError(failed: "mkfifo \(path)")
        }
        writing = try OwnedDescriptor(opening: path, O_RDWR)
    }
}
