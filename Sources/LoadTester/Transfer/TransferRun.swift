import Crypto
import Glibc
import LinuxSystem
import TransferClient
import TransferWire

/// Downloads files by the transfer process, and checks each.
struct TransferRun {
    struct Settings {
        let files: Int
        let bytes: Int
        let kills: Int
        /// Without kills.
        var rounds = 1
        let sessions: Int
        let parallel: Int
        let seed: UInt64
        /// With kills.
        var suspension = SuspensionMethod.cgroup

        /// The sizes differ by up to a half; their sum is `bytes`, or a little less.
        func size(of index: Int) -> Int {
            let mean = bytes / files
            return mean / 2 + index * mean / max(1, files - 1)
        }
    }

    let settings: Settings
    let runDirectory: RunDirectory

    /// With kills too: a run that takes longer has lost something.
    static let longest: Int64 = 1_800_000_000_000

    func run() throws -> TransferResults {
        var results = TransferResults(settings: settings)
        runDirectory.progress.say("writing \(settings.files) files")
        let server = try TransferServerProcess(runDirectory)
        let digests = try makeFiles(server)
        results.payload = (0..<settings.files).reduce(0) { $0 + settings.size(of: $1) }
        try server.start()
        if settings.kills == 0 {
            for round in 0..<settings.rounds {
                // The machine may give memory to the first more slowly than to the second.
                let isCurlFirst = round % 2 == 1
                let floor = isCurlFirst ? try downloadWithCurl(server, round) : 0
                let own = try measure(server, digests, &results) { results in
                    runDirectory.progress.say("downloading")
                    return try downloadAll(server, round, &results)
                }
                results.rounds.append(
                    .init(
                        nanoseconds: own,
                        floorNanoseconds: isCurlFirst ? floor : try downloadWithCurl(server, round)))
            }
        } else {
            let time = try measure(server, digests, &results) { try downloadAsleep(server, &$0) }
            results.rounds = [.init(nanoseconds: time, floorNanoseconds: nil)]
        }
        results.machine.finish()
        return results
    }

    /// Downloads all files and checks them.
    ///
    /// - Returns: the time of the downloads, in nanoseconds.
    private func measure(
        _ server: TransferServerProcess, _ digests: [String: [UInt8]], _ results: inout TransferResults,
        _ download: (inout TransferResults) throws -> [String: TransferredFile]
    ) throws -> Int64 {
        let sentBefore = server.sentBytes
        // Both sides begin with nothing to be written.
        sync()
        let start = monotonicNow()
        let files = try download(&results)
        let time = monotonicNow() - start
        results.fetched += server.sentBytes - sentBefore
        runDirectory.progress.say("checking the files")
        for (name, file) in files where try digest(file.rawValue) != digests[name] { results.corrupt += 1 }
        results.lost += settings.files - files.count
        return time
    }

    // MARK: Files

    private func makeFiles(_ server: TransferServerProcess) throws -> [String: [UInt8]] {
        var random = SplitMix(state: settings.seed)
        var digests: [String: [UInt8]] = [:]
        for index in 0..<settings.files {
            let size = settings.size(of: index)
            var words = [UInt64](repeating: 0, count: (size + 7) / 8)
            for word in words.indices { words[word] = random.next() }
            try words.withUnsafeBytes { bytes in
                let content = UnsafeRawBufferPointer(rebasing: bytes[..<size])
                digests["f\(index)"] = Array(SHA256.hash(data: content))
                try writeAll(content, to: "\(server.files)/f\(index)")
            }
        }
        return digests
    }

    private func writeAll(_ bytes: UnsafeRawBufferPointer, to path: String) throws {
        let file = try OwnedDescriptor(opening: path, O_WRONLY | O_CREAT | O_TRUNC, mode: 0o644)
        var written = 0
        while written < bytes.count {
            let count = write(file.rawValue, bytes.baseAddress?.advanced(by: written), bytes.count - written)
            guard count > 0 else { throw LoadError(failed: "write \(path)") }
            written += count
        }
    }

    private func digest(_ file: CInt) throws -> [UInt8] {
        var hash = SHA256()
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        var offset = 0
        while true {
            let count = pread(file, &buffer, buffer.count, offset)
            guard count >= 0 else { throw LoadError(failed: "pread") }
            if count == 0 { return Array(hash.finalize()) }
            buffer.withUnsafeBytes {
                hash.update(bufferPointer: UnsafeRawBufferPointer(rebasing: $0[..<count]))
            }
            offset += count
        }
    }

    private struct SplitMix: RandomNumberGenerator {
        var state: UInt64

        mutating func next() -> UInt64 {
            state &+= 0x9E37_79B9_7F4A_7C15
            var value = state
            value = (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
            value = (value ^ (value >> 27)) &* 0x94D0_49BB_1331_11EB
            return value ^ (value >> 31)
        }
    }

    // MARK: Downloads

    private func downloadAll(
        _ server: TransferServerProcess, _ round: Int, _ results: inout TransferResults
    ) throws -> [String: TransferredFile] {
        let failedBefore = results.failed
        let process = TransferProcess(runDirectory, round, parallel: settings.parallel)
        try process.start()
        var clients: [Int: TransferClient] = [:]
        for session in 0..<settings.sessions {
            let client = try process.open(session)
            try addAll(to: client, session, server)
            clients[session] = client
        }
        var files: [String: TransferredFile] = [:]
        let deadline = monotonicNow() + Self.longest
        while files.count + results.failed - failedBefore < settings.files, monotonicNow() < deadline {
            try pause(nanoseconds: 0)
            for session in 0..<settings.sessions {
                guard let client = clients[session] else { continue }
                try collect(client, &files, &results)
            }
        }
        process.end()
        return files
    }

    /// All requests first, and then all answers.
    private func addAll(to client: TransferClient, _ session: Int, _ server: TransferServerProcess) throws {
        let numbers = try stride(from: session, to: settings.files, by: settings.sessions).map { index in
            try client.send {
                $0.add.tag = "f\(index)"
                $0.add.task.url = "\(server.address)/f\(index)"
            }
        }
        for number in numbers { _ = try client.answer(number) }
    }

    private func collect(
        _ client: TransferClient, _ files: inout [String: TransferredFile], _ results: inout TransferResults
    ) throws {
        while let event = try client.nextEvent(within: 2) {
            guard case .finished(let finished) = event.report.report else { continue }
            if let file = event.file, finished.failure == .none {
                if files.updateValue(file, forKey: finished.tag) != nil { results.repeated += 1 }
            } else {
                results.failed += 1
            }
            _ = try client.send { $0.release.task = finished.task }
        }
    }

    private func downloadWithCurl(_ server: TransferServerProcess, _ round: Int) throws -> Int64 {
        runDirectory.progress.say("downloading with curl")
        let copies = "\(runDirectory.path)/copies.\(round)"
        guard mkdir(copies, 0o755) == 0 else { throw LoadError(failed: "mkdir \(copies)") }
        let list = (0..<settings.files).map {
            "url=\(server.address)/f\($0)\noutput=\(copies)/f\($0)\n"
        }.joined()
        let path = runDirectory.path + "/curl.list"
        try Array(list.utf8).withUnsafeBytes { try writeAll($0, to: path) }
        sync()
        let start = monotonicNow()
        let child = try ChildProcess(
            "curl",
            ["/usr/bin/curl", "-s", "--parallel", "--parallel-max", "\(settings.parallel)", "-K", path],
            log: runDirectory.path + "/curl.log")
        try wait(for: "curl", atMost: .seconds(1_800)) { !child.isRunning }
        guard child.exitStatus == 0 else { throw LoadError.childEnded("curl", status: child.exitStatus ?? 0) }
        let time = monotonicNow() - start
        for index in 0..<settings.files { unlink("\(copies)/f\(index)") }
        return time
    }
}

/// nginx, with the files.
final class TransferServerProcess {
    let files: String
    private let runDirectory: RunDirectory
    private let directory: String
    private var process: ChildProcess?
    private let port: UInt16

    private static let program = "/usr/sbin/nginx"

    init(_ runDirectory: RunDirectory) throws {
        guard access(Self.program, X_OK) == 0 else { throw LoadError.missing("nginx is not installed") }
        self.runDirectory = runDirectory
        directory = runDirectory.path + "/server"
        files = directory + "/files"
        port = UInt16.random(in: 20_000...30_000)
        for path in [directory, files] where mkdir(path, 0o755) != 0 {
            throw LoadError(failed: "mkdir \(path)")
        }
    }

    var address: String { "http://127.0.0.1:\(port)" }

    func start() throws {
        // A small send buffer: bytes in it are lost when a process is killed, and are not the process's
        // fault.
        let text = """
            daemon off;
            master_process off;
            pid \(directory)/pid;
            error_log \(directory)/error.log;
            events { worker_connections 1024; }
            http {
                log_format bytes '$body_bytes_sent';
                access_log \(directory)/access.log bytes;
                client_body_temp_path \(directory)/t1;
                proxy_temp_path \(directory)/t2;
                fastcgi_temp_path \(directory)/t3;
                uwsgi_temp_path \(directory)/t4;
                scgi_temp_path \(directory)/t5;
                sendfile on;
                server {
                    listen 127.0.0.1:\(port) sndbuf=64k;
                    root \(files);
                }
            }
            """
        try writeAll(text, to: directory + "/nginx.conf")
        process = try ChildProcess(
            "nginx",
            [Self.program, "-c", directory + "/nginx.conf", "-p", directory, "-e", directory + "/error.log"],
            log: directory + "/log", guardian: runDirectory.loadTester)
        let pid = directory + "/pid"
        try wait(for: "nginx", atMost: .seconds(30)) { access(pid, F_OK) == 0 }
        try process?.requireRunning()
    }

    private func writeAll(_ text: String, to path: String) throws {
        let file = try OwnedDescriptor(opening: path, O_WRONLY | O_CREAT | O_TRUNC, mode: 0o644)
        let bytes = Array(text.utf8)
        guard write(file.rawValue, bytes, bytes.count) == bytes.count else {
            throw LoadError(failed: "write \(path)")
        }
    }

    /// It answers nothing until `resume`; connections are accepted by the kernel.
    func stop() throws {
        guard let process else { return }
        kill(process.id, SIGSTOP)
    }

    func resume() throws {
        guard let process else { return }
        kill(process.id, SIGCONT)
    }

    /// Bytes of all bodies.
    var sentBytes: Int {
        let text = (try? SmallFile.readText(directory + "/access.log")) ?? ""
        return text.split(separator: "\n").reduce(0) { $0 + (Int($1) ?? 0) }
    }
}

/// nightbell-transfer, without a supervisor.
private final class TransferProcess {
    private let runDirectory: RunDirectory
    private let directory: String
    private let parallel: Int
    private var process: ChildProcess?

    init(_ runDirectory: RunDirectory, _ round: Int, parallel: Int) {
        self.runDirectory = runDirectory
        self.parallel = parallel
        directory = "\(runDirectory.path)/transfer.\(round)"
    }

    func start() throws {
        _ = mkdir(directory, 0o700)
        var options = [
            "--socket", directory + "/socket", "--directory", directory + "/data", "--parallel",
            "\(parallel)",
            "--parallel-per-host", "\(parallel)", "--disk-bytes", "\(1 << 42)", "--first-delay", "50",
            "--longest-delay", "500",
        ]
        if geteuid() == 0 {
            options += ["--user", "65534"]
            chown(directory, 65534, 65534)
        }
        process = try runDirectory.start("nightbell-transfer", options)
    }

    func end() {
        if let process { runDirectory.end(process) }
    }

    func open(_ session: Int) throws -> TransferClient {
        var client: TransferClient?
        try wait(for: "nightbell-transfer", atMost: .seconds(60)) {
            try process?.requireRunning()
            client = try? TransferClient(path: directory + "/socket")
            guard let client else { return false }
            return (try? client.open(client: "load", "s\(session)")) != nil
        }
        guard let client else { throw LoadError.timedOut("nightbell-transfer") }
        return client
    }
}
