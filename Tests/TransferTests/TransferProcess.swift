import Crypto
import EdgeTestSupport
import Glibc
import LinuxSystem
import SwiftProtobuf
import TransferClient
import TransferWire

/// `nightbell-transfer` with a directory of its own, as another user if the tests run as root.
final class TransferProcess {
    let directory: TemporaryDirectory
    private let options: [String]
    private let environment: [String: String]
    private let namespace: NetworkNamespace?
    private(set) var process: Child

    private(set) var disk: StoreDisk?

    /// - Parameters:
    ///   - user: if the tests run as root.
    ///   - diskBytes: the size of a file system of its own; needs root.
    ///   - namespace: the network that it is in; nil: the test's own.
    init(
        _ options: [String] = [], environment: [String: String] = [:], user: uid_t = 65534,
        diskBytes: Int? = nil, in namespace: NetworkNamespace? = nil
    ) throws {
        self.namespace = namespace
        directory = try TemporaryDirectory()
        chmod(directory.path, 0o755)
        mkdir(directory.path + "/own", 0o700)
        var options =
            [
                "--socket", directory.path + "/own/socket", "--directory", directory.path + "/own/data",
                "--first-delay", "50", "--longest-delay", "400",
            ] + options
        if geteuid() == 0 {
            options += ["--user", "\(user)"]
            chown(directory.path + "/own", user, user)
        }
        self.options = options
        self.environment = environment
        if let diskBytes {
            mkdir(directory.path + "/own/data", 0o700)
            disk = try StoreDisk(at: directory.path + "/own/data", bytes: diskBytes)
        }
        process = try Self.start(options, environment, namespace)
    }

    private static func start(
        _ options: [String], _ environment: [String: String], _ namespace: NetworkNamespace?
    ) throws -> Child {
        let words = (namespace?.entering ?? []) + [try product("nightbell-transfer")] + options
        return try Child(words[0], Array(words.dropFirst()), environment: environment)
    }

    var socket: String { directory.path + "/own/socket" }
    var data: String { directory.path + "/own/data" }

    func start() throws { process = try Self.start(options, environment, namespace) }

    func kill() { process.end() }

    /// Another process with the same directory, and a socket of its own.
    func rival() throws -> Child {
        var options = options
        options[1] = directory.path + "/own/other"
        return try Self.start(options, environment, namespace)
    }

    func restart() throws {
        kill()
        try start()
    }

    /// A connection with this session.
    func open(_ session: String = "s", within milliseconds: Int64 = 60_000) throws -> TransferClient {
        var client: TransferClient?
        guard
            try eventually(
                within: milliseconds,
                { () throws -> Bool in
                    client = try? TransferClient(path: socket)
                    guard let client else { return false }
                    return (try? client.open(client: "test", session)) != nil
                }), let client
        else { throw TimedOut() }
        return client
    }
}

extension TransferredFile {
    func digest() throws -> [UInt8] {
        var hash = SHA256()
        var offset = 0
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        while true {
            let count = try systemCall("pread") { pread(rawValue, &buffer, buffer.count, offset) }
            guard count > 0 else { return Array(hash.finalize()) }
            buffer.withUnsafeBytes {
                hash.update(bufferPointer: UnsafeRawBufferPointer(rebasing: $0[..<count]))
            }
            offset += count
        }
    }
}

func digest(_ bytes: [UInt8]) -> [UInt8] { Array(SHA256.hash(data: bytes)) }

func randomBytes(_ count: Int) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    var random = SystemRandomNumberGenerator()
    for index in stride(from: 0, to: count, by: 8) {
        withUnsafeBytes(of: random.next()) { word in
            for offset in 0..<min(8, count - index) { bytes[index + offset] = word[offset] }
        }
    }
    return bytes
}

extension TransferClient {
    @discardableResult
    func add(
        _ url: String, tag: String = "", body: CInt? = nil,
        _ change: (inout WireTransferTask) -> Void = { _ in }
    ) throws -> Int64 {
        var task = WireTransferTask()
        task.url = url
        task.kind = body == nil ? .download : .upload
        change(&task)
        return try request(descriptors: body.map { [$0] } ?? []) {
            $0.add.tag = tag
            $0.add.task = task
        }.task
    }

    func release(_ task: Int64) throws { try request { $0.release.task = task } }

    /// The next report that is no answer; nil: none within the time.
    func next(within milliseconds: Int64 = 60_000) throws -> (WireTransferReport, TransferredFile?)? {
        try nextEvent(within: milliseconds).map { ($0.report, $0.file) }
    }

    /// The next result, whatever else is reported before.
    func nextResult(within milliseconds: Int64 = 60_000) throws -> (WireTransferFinished, TransferredFile?) {
        while let (report, file) = try next(within: milliseconds) {
            if case .finished(let finished) = report.report { return (finished, file) }
        }
        throw TimedOut()
    }
}
