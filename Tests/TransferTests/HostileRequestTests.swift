import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing
import TransferClient
import TransferWire

/// Clients and servers that ask for too much: the other transfers of the user go on.
@Suite("Requests and responses that would do harm", .timeLimit(.minutes(40)))
struct HostileRequestTests {
    /// A download by another client still works, by the same process.
    private func checkOthers(_ process: TransferProcess, _ server: OddServer) throws {
        let client = try process.open("others")
        try client.add(server.address + "/good?seed=a&size=1000")
        #expect(try client.nextResult().0.failure == .none)
        #expect(waitpid(process.process.pid, nil, WNOHANG) == 0)
    }

    @Test(
        "A connection with an empty name, or one with control characters, ends",
        arguments: [
            ("", "s"), ("a\u{0}b", "s"), ("test", "a\u{0}b"), ("test", ""),
        ])
    func names(client: String, session: String) throws {
        let server = try OddServer()
        let process = try TransferProcess()
        _ = try process.open()
        let hostile = try TransferClient(path: process.socket)
        #expect(throws: TransferClient.Ended.self) { try hostile.open(client: client, session) }
        try checkOthers(process, server)
    }

    @Test("A tag with control characters is refused")
    func tags() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        let client = try process.open()
        #expect(throws: TransferClient.Refused.self) {
            try client.add(server.address + "/good?seed=a&size=1", tag: "t\u{0}one")
        }
        try checkOthers(process, server)
    }

    @Test("A response of any promised length to an upload ends the task")
    func endlessResponse() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        let client = try process.open()
        try Nginx.write(randomBytes(1_000), to: process.directory.path + "/source")
        let source = try OwnedDescriptor(opening: process.directory.path + "/source", O_RDONLY)
        try client.add(server.address + "/endless", body: source.rawValue)
        #expect(try client.nextResult().0.failure == .tooLarge)
        try checkOthers(process, server)
    }

    @Test("A file of any size is refused if there is no room for it, also while others are copied")
    func endlessFile() throws {
        let server = try OddServer()
        let process = try TransferProcess(["--disk-bytes", "10000000"])
        let client = try process.open()
        let path = process.directory.path + "/source"
        try Nginx.write([1], to: path)
        for size in [9_000_000, 1 << 43] {
            try #require(truncate(path, size) == 0)
            let source = try OwnedDescriptor(opening: path, O_RDONLY)
            // Without waiting, so that the copies run at the same time.
            let requests = try (0..<4).map { _ in
                try client.send(descriptors: [source.rawValue]) {
                    $0.add.task.kind = .upload
                    $0.add.task.url = server.address + "/put?name=n"
                }
            }
            let added = try requests.count { request in
                do {
                    _ = try client.answer(request)
                    return true
                } catch is TransferClient.Refused {
                    return false
                }
            }
            #expect(added == (size == 9_000_000 ? 1 : 0))
            if added > 0 { try client.release(client.nextResult().0.task) }
        }
        try checkOthers(process, server)
    }

    @Test("The size of a file overflows no sum")
    func hugeFile() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        let client = try process.open()
        let path = process.directory.path + "/source"
        try Nginx.write([1], to: path)
        try #require(truncate(path, 64 << 20) == 0)
        let copied = try OwnedDescriptor(opening: path, O_RDONLY)
        // In memory: other file systems permit less.
        let name = "/dev/shm/nightbell-huge-\(getpid())"
        let huge = try OwnedDescriptor(opening: name, O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        unlink(name)
        try #require(ftruncate(huge.rawValue, Int.max) == 0)
        // Without waiting, so that the first one is being copied.
        let requests = try [copied.rawValue, huge.rawValue].map { descriptor in
            try client.send(descriptors: [descriptor]) {
                $0.add.task.kind = .upload
                $0.add.task.url = server.address + "/put?name=n"
            }
        }
        _ = try client.answer(requests[0])
        #expect(throws: TransferClient.Refused.self) { try client.answer(requests[1]) }
        try checkOthers(process, server)
    }

    @Test(
        "Files that do not fit on the disk together are refused before they are copied",
        .enabled(if: geteuid() == 0))
    func fullDisk() throws {
        let process = try TransferProcess(diskBytes: 64 << 20)
        let client = try process.open()
        let path = process.directory.path + "/source"
        try Nginx.write([1], to: path)
        try #require(truncate(path, 24 << 20) == 0)
        let source = try OwnedDescriptor(opening: path, O_RDONLY)
        let requests = try (0..<4).map { _ in
            try client.send(descriptors: [source.rawValue]) {
                $0.add.task.kind = .upload
                // Nothing listens there, so each file stays.
                $0.add.task.url = "http://127.0.0.1:1/"
            }
        }
        var reasons: [String] = []
        for request in requests {
            do {
                _ = try client.answer(request)
            } catch let refusal as TransferClient.Refused {
                reasons.append(refusal.reason)
            }
        }
        #expect(reasons == .init(repeating: "there is no room for the file", count: 2))
        try checkOthers(process, try OddServer())
    }

    @Test("The connections of one process do not lock out others")
    func connections() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        _ = try process.open()
        let code = """
            import socket, sys, time
            connections = []
            for _ in range(600):
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                connection.connect(sys.argv[1])
                connections.append(connection)
            print("all", flush=True)
            time.sleep(3600)
            """
        let greedy = try Child("/usr/bin/python3", "-c", code, process.socket)
        #expect(try greedy.hear(within: 60_000) == "all\n")
        try checkOthers(process, server)
    }

    @Test("Nothing but issues is in the session of issues")
    func newsstand() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        let client = try process.open("newsstand")
        #expect(throws: TransferClient.Refused.self) {
            try client.add(server.address + "/good?seed=a&size=1", tag: "issue")
        }
        try checkOthers(process, server)
    }
}
