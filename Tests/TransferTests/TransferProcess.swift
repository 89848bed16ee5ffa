import Crypto
import EdgeTestSupport
import Glibc
import LinuxSystem
import SwiftProtobuf
import TransferWire

/// `nightbell-transfer` with a directory of its own, as another user if the tests run as root.
final class TransferProcess {
    let directory: TemporaryDirectory
    private let options: [String]
    private(set) var process: Child

    init(_ options: [String] = []) throws {
        directory = try TemporaryDirectory()
        chmod(directory.path, 0o755)
        mkdir(directory.path + "/own", 0o700)
        var options =
            [
                "--socket", directory.path + "/own/socket", "--directory", directory.path + "/own/data",
                "--first-delay", "50", "--longest-delay", "400",
            ] + options
        if geteuid() == 0 {
            options += ["--user", "65534"]
            chown(directory.path + "/own", 65534, 65534)
        }
        self.options = options
        process = try Self.start(options)
    }

    private static func start(_ options: [String]) throws -> Child {
        let tests = try readLink("/proc/self/exe")
        let program = tests[..<(tests.lastIndex(of: "/") ?? tests.startIndex)] + "/nightbell-transfer"
        return try Child(String(program), options)
    }

    var socket: String { directory.path + "/own/socket" }
    var data: String { directory.path + "/own/data" }

    func start() throws { process = try Self.start(options) }

    func kill() { process.end() }

    /// Another process with the same directory, and a socket of its own.
    func rival() throws -> Child {
        var options = options
        options[1] = directory.path + "/own/other"
        return try Self.start(options)
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
                    client = try? TransferClient(socket)
                    guard let client else { return false }
                    return (try? client.open(session)) != nil
                }), let client
        else { throw TimedOut() }
        return client
    }
}

/// A result that a client has received.
final class ReceivedFile {
    private let descriptor: OwnedDescriptor

    init(_ descriptor: consuming OwnedDescriptor) { self.descriptor = descriptor }

    var rawValue: CInt { descriptor.rawValue }

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

/// A connection, driven step by step.
final class TransferClient {
    struct Ended: Error {}
    struct Refused: Error { let reason: String }

    private let socket: SeqPacketSocket
    private var buffer = PacketBuffer(capacity: TransferPacket.maximumBytes)
    private var number: UInt64 = 0
    private var reports: [(WireTransferReport, ReceivedFile?)] = []
    private var answers: [UInt64: WireTransferAnswer] = [:]

    init(_ path: String) throws { socket = try SeqPacketSocket.connect(path: path) }

    func open(_ session: String) throws {
        try request {
            $0.open.client = "test"
            $0.open.identifier = session
        }
    }

    func send(descriptors: [CInt] = [], _ change: (inout WireTransferRequest) -> Void) throws -> UInt64 {
        number += 1
        var request = WireTransferRequest()
        request.number = number
        change(&request)
        let bytes: [UInt8] = try request.serializedBytes()
        while try !socket.send(bytes, descriptors: descriptors) {
            _ = Poll.wait(socket.rawValue, for: .writable, timeoutMilliseconds: 10_000)
        }
        return number
    }

    @discardableResult
    func request(
        descriptors: [CInt] = [], _ change: (inout WireTransferRequest) -> Void
    ) throws -> WireTransferAnswer {
        try answer(try send(descriptors: descriptors, change))
    }

    func answer(_ number: UInt64) throws -> WireTransferAnswer {
        while answers[number] == nil { try receive(within: 30_000) }
        let answer = try require(answers.removeValue(forKey: number))
        guard answer.refusal.isEmpty else { throw Refused(reason: answer.refusal) }
        return answer
    }

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
    func next(within milliseconds: Int64 = 60_000) throws -> (WireTransferReport, ReceivedFile?)? {
        let deadline = BootClock.now() + milliseconds * 1_000_000
        while reports.isEmpty {
            guard BootClock.now() < deadline else { return nil }
            try receive(within: CInt(max(1, (deadline - BootClock.now()) / 1_000_000)))
        }
        return reports.removeFirst()
    }

    /// The next result, whatever else is reported before.
    func nextResult(within milliseconds: Int64 = 60_000) throws -> (WireTransferFinished, ReceivedFile?) {
        while let (report, file) = try next(within: milliseconds) {
            if case .finished(let finished) = report.report { return (finished, file) }
        }
        throw TimedOut()
    }

    private func receive(within milliseconds: CInt) throws {
        switch try socket.receive(into: &buffer) {
        case .wouldBlock: _ = Poll.wait(socket.rawValue, for: .readable, timeoutMilliseconds: milliseconds)
        case .end: throw Ended()
        case .packet:
            let report = try WireTransferReport(serializedBytes: buffer.bytes)
            if case .answer(let answer) = report.report {
                answers[answer.number] = answer
            } else if let descriptor = buffer.takeDescriptor() {
                reports.append((report, ReceivedFile(descriptor)))
            } else {
                reports.append((report, nil))
            }
        }
    }
}
