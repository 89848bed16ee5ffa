import EdgeTestSupport
import Glibc
import LinuxSystem
import SwiftProtobuf
import Testing
import TransferClient
import TransferWire

@Suite("Transfers from servers with faults")
struct FaultyServerTests {
    private struct Outcome {
        let result: WireTransferFinished
        let file: TransferredFile?
    }

    /// Transfers one file, and waits for its end.
    private func fetch(
        _ server: OddServer, _ path: String, options: [String] = [],
        _ change: (inout WireTransferTask) -> Void = { _ in }
    ) throws -> Outcome {
        let process = try TransferProcess(options)
        let client = try process.open()
        try client.add(server.address + path) {
            $0.wantsDigest = true
            change(&$0)
        }
        let (result, file) = try client.nextResult()
        return Outcome(result: result, file: file)
    }

    /// It is whole, and is the server's body.
    private func check(_ outcome: Outcome, _ server: OddServer, seed: String, size: Int) throws {
        #expect(outcome.result.failure == .none, "\(outcome.result)")
        #expect(outcome.result.bytes == size)
        let expected = try server.digest(seed: seed, size: size)
        #expect(hexadecimal(outcome.result.digest) == expected)
        let file = try #require(outcome.file)
        #expect(hexadecimal(try file.digest()) == expected)
    }

    @Test(
        "The file is whole, whatever the server does",
        arguments: [
            ("/good?seed=a&size=300000", "a", 300_000),
            ("/good?seed=a&size=0", "a", 0),
            ("/cut?seed=b&size=1000000&after=150000", "b", 1_000_000),
            ("/weak?seed=c&size=400000&after=100000&times=2", "c", 400_000),
            ("/wrong-range?seed=d&size=300000&after=100000", "d", 300_000),
            ("/changing?seed=e&size=300000&after=100000", "e2", 300_000),
            ("/careless?seed=f&size=300000&after=100000", "f2", 300_000),
            ("/chunked?seed=g&size=300000", "g", 300_000),
            ("/busy?seed=h&size=1000&times=2", "h", 1_000),
            ("/garbage?seed=i&size=1000&times=2", "i", 1_000),
            ("/invalid?how=large&seed=j&size=20000&times=2", "j", 20_000),
            ("/invalid?how=two&seed=j&size=20000&times=2", "j", 20_000),
            ("/invalid?how=space&seed=j&size=20000&times=2", "j", 20_000),
        ])
    func whole(path: String, seed: String, size: Int) throws {
        let server = try OddServer()
        try check(try fetch(server, path), server, seed: seed, size: size)
    }

    @Test("Redirections are followed")
    func redirection() throws {
        let server = try OddServer()
        let outcome = try fetch(server, "/redirect?to=/cut%3Fseed%3Da%26size%3D300000%26after%3D100000")
        try check(outcome, server, seed: "a", size: 300_000)
    }

    @Test("A cut connection is continued: no byte is fetched twice")
    func continues() throws {
        let server = try OddServer()
        let outcome = try fetch(server, "/cut?seed=b&size=1000000&after=150000")
        try check(outcome, server, seed: "b", size: 1_000_000)
        // 150,000 of each connection arrive, as the server waits for none of them to be lost.
        #expect(try server.get("/stats").contains("\"sent\": 1000"))
    }

    @Test("A server that promises more than it has is given up in the end")
    func short() throws {
        let server = try OddServer()
        let outcome = try fetch(server, "/short?seed=a&size=1000", options: ["--lifetime", "2"])
        #expect(outcome.result.failure == .timedOut && outcome.file == nil)
    }

    @Test("A server that contradicts itself each time is given up")
    func contradictions() throws {
        let server = try OddServer()
        let outcome = try fetch(server, "/long?seed=a&size=100000&after=50000")
        #expect(outcome.result.failure == .inconsistent && outcome.file == nil)
    }

    @Test("A status that will not change ends the task")
    func missing() throws {
        let server = try OddServer()
        let outcome = try fetch(server, "/missing")
        #expect(outcome.result.failure == .status && outcome.result.status == 404 && outcome.file == nil)
    }

    @Test("A wrong SHA-256 ends the task, and the file is not handed over")
    func wrongDigest() throws {
        let server = try OddServer()
        let outcome = try fetch(server, "/good?seed=a&size=1000") {
            $0.expectedDigest = .init(repeating: 1, count: 32)
        }
        #expect(outcome.result.failure == .digest && outcome.file == nil)
    }

    @Test("Addresses that are none, and those of other schemes, are refused or fail")
    func addresses() throws {
        let process = try TransferProcess()
        let client = try process.open()
        for address in ["file:///etc/passwd", "ftp://127.0.0.1/", "", "http://", "http://[::1"] {
            #expect(throws: TransferClient.Refused.self) { try client.add(address) }
        }
        let server = try OddServer()
        try client.add(server.address + "/redirect?to=file:///etc/passwd")
        #expect(try client.nextResult().0.failure == .refused)
    }

    @Test("A file that is larger than the user may have is not fetched")
    func tooLarge() throws {
        let server = try OddServer()
        let outcome = try fetch(server, "/good?seed=a&size=300000", options: ["--disk-bytes", "200000"])
        #expect(outcome.result.failure == .tooLarge)
        let unknown = try fetch(server, "/chunked?seed=a&size=600000", options: ["--disk-bytes", "200000"])
        #expect(unknown.result.failure == .tooLarge)
    }

    @Test("A task waits for room until another is released")
    func room() throws {
        let server = try OddServer()
        let process = try TransferProcess(["--disk-bytes", "350000"])
        let client = try process.open()
        try client.add(server.address + "/good?seed=a&size=200000")
        try client.add(server.address + "/good?seed=b&size=200000")
        let first = try client.nextResult().0
        #expect(first.failure == .none)
        #expect(try client.next(within: 1_000) == nil)
        try client.release(first.task)
        #expect(try client.nextResult().0.failure == .none)
    }

    @Test("A task that waits for room has a lifetime, too, and so has one with a slow server")
    func lifetimes() throws {
        let server = try OddServer()
        let process = try TransferProcess(["--disk-bytes", "350000", "--lifetime", "4"])
        let client = try process.open()
        try client.add(server.address + "/good?seed=a&size=200000")
        #expect(try client.nextResult().0.failure == .none)
        try client.add(server.address + "/good?seed=b&size=200000")
        try client.add(server.address + "/slow?seed=c&size=100000&ms=20000")
        for _ in 0..<2 { #expect(try client.nextResult().0.failure == .timedOut) }
    }

    @Test("A task without credentials waits for them, and goes on with them")
    func credentials() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        var client = try process.open()
        let task = try client.add(server.address + "/secret?seed=a&size=1000", tag: "t")
        let challenge = try require(try client.next()).0
        #expect(challenge.challenge.task == task && challenge.challenge.tag == "t")
        if case .sessionFinished = try require(try client.next()).0.report {} else { Issue.record("no end") }
        // It is told again after a restart.
        try process.restart()
        client = try process.open()
        #expect(try require(try client.next()).0.challenge.task == task)
        try client.request {
            $0.authorize.task = task
            $0.authorize.fields = [
                .with {
                    $0.name = "Authorization"
                    $0.value = "Bearer open"
                }
            ]
        }
        #expect(try client.nextResult().0.failure == .none)
    }

    // MARK: Uploads

    private func upload(
        _ server: OddServer, _ path: String, _ bytes: [UInt8], method: String = ""
    ) throws -> WireTransferFinished {
        let process = try TransferProcess()
        let client = try process.open()
        try Nginx.write(bytes, to: process.directory.path + "/source")
        let source = try OwnedDescriptor(opening: process.directory.path + "/source", O_RDONLY)
        try client.add(server.address + path, body: source.rawValue) { $0.method = method }
        // The copy is the process's.
        truncate(process.directory.path + "/source", 0)
        let (result, file) = try client.nextResult()
        if result.failure == .none {
            #expect(result.status == 201 && file != nil && result.bytes == 64)
            let received = try server.get("/uploaded?name=n")
            #expect(received == "[\"\(hexadecimal(digest(bytes)))\"]")
        }
        return result
    }

    @Test("Files are sent whole, by PUT and by POST", arguments: ["PUT", "POST"])
    func uploads(method: String) throws {
        let server = try OddServer()
        for size in [0, 10, 3_000_000] {
            let server = size == 0 ? server : try OddServer()
            #expect(try upload(server, "/put?name=n", randomBytes(size), method: method).failure == .none)
        }
    }

    @Test("PUT is repeated after a cut connection, POST is not")
    func repeats() throws {
        let server = try OddServer()
        let path = "/drop?name=n&times=2&after=100000"
        #expect(try upload(server, path, randomBytes(2_000_000), method: "PUT").failure == .none)
        let other = try OddServer()
        #expect(try upload(other, path, randomBytes(2_000_000), method: "POST").failure == .interrupted)
        #expect(try other.get("/uploaded?name=n") == "[]")
    }

    @Test("POST is not repeated on a connection that was used before")
    func repeatsOnUsedConnection() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        let client = try process.open()
        try client.add(server.address + "/good?seed=a&size=1000")
        #expect(try client.nextResult().0.failure == .none)
        let path = process.directory.path + "/source"
        try Nginx.write(randomBytes(1_000), to: path)
        let source = try OwnedDescriptor(opening: path, O_RDONLY)
        // The server has it, and ends without an answer.
        try client.add(server.address + "/drop?name=n&times=1&after=1000", body: source.rawValue) {
            $0.method = "POST"
        }
        #expect(try client.nextResult().0.failure == .interrupted)
        #expect(try server.get("/uploaded?name=n") == "[]")
    }

    @Test("POST is not repeated if its response does not fit")
    func unfitResponse() throws {
        let server = try OddServer()
        let process = try TransferProcess(["--disk-bytes", "350000"])
        let client = try process.open()
        // It has the room.
        try client.add(server.address + "/good?seed=a&size=340000")
        #expect(try client.nextResult().0.failure == .none)
        let path = process.directory.path + "/source"
        try Nginx.write(randomBytes(1_000), to: path)
        let source = try OwnedDescriptor(opening: path, O_RDONLY)
        try client.add(server.address + "/put?name=n&pad=20000", body: source.rawValue) { $0.method = "POST" }
        let result = try client.nextResult().0
        #expect(result.failure == .storage && result.status == 201)
        let digests = try server.get("/uploaded?name=n")
        #expect(digests.split(separator: ",").count == 1, "\(digests)")
    }
}
