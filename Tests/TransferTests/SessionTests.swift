import EdgeTestSupport
import FoundationEssentials
import Glibc
import LinuxSystem
import SwiftProtobuf
import Testing
import TransferClient
import TransferWire

@Suite("Sessions of transfers")
struct SessionTests {
    @Test("A file is fetched, handed over and removed; a link to it stays")
    func handOver() throws {
        let server = try Nginx()
        let bytes = randomBytes(200_000)
        try server.add("a", bytes)
        let process = try TransferProcess()
        let client = try process.open()
        let task = try client.add(server.address + "/a", tag: "tag") { $0.wantsDigest = true }
        let (result, file) = try client.nextResult()
        let received = try require(file)
        #expect(result.task == task && result.tag == "tag" && result.status == 200)
        let expected = digest(bytes)
        #expect(Array(result.digest) == expected)
        #expect(try received.digest() == expected)
        // The descriptor is for reading only.
        #expect(write(received.rawValue, "x", 1) == -1)
        let link = process.directory.path + "/own/kept"
        #expect(
            linkat(AT_FDCWD, "/proc/self/fd/\(received.rawValue)", AT_FDCWD, link, AT_SYMLINK_FOLLOW) == 0)
        try client.release(task)
        #expect(try SmallFile.names(in: process.data + "/sessions/1").isEmpty)
        let kept = try OwnedDescriptor(opening: link, O_RDONLY)
        #expect(try TransferredFile(kept).digest() == digest(bytes))
        if case .sessionFinished = try require(try client.next()).0.report {} else { Issue.record("no end") }
    }

    @Test("HTTP/2 over TLS with the authority's certificate; without it, the task fails")
    func secure() throws {
        let server = try Nginx()
        let bytes = randomBytes(3_000_000)
        try server.add("a", bytes)
        let process = try TransferProcess(["--authorities", server.authorities])
        let client = try process.open()
        for _ in 0..<6 {
            try client.add(server.secureAddress + "/a") { $0.expectedDigest = .init(digest(bytes)) }
        }
        for _ in 0..<6 { #expect(try client.nextResult().0.failure == .none) }
        #expect(eventually { server.log.count == 6 } && server.log.allSatisfy { $0.version == "HTTP/2.0" })
        let second = try TransferProcess()
        let other = try second.open()
        try other.add(server.secureAddress + "/a")
        #expect(try other.nextResult().0.failure == .refused)
    }

    @Test("A second task with the same tag is the first one, also after a restart")
    func tags() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        let client = try process.open()
        let task = try client.add(server.address + "/slow?seed=a&size=3000000&ms=50", tag: "t")
        #expect(try client.add(server.address + "/good?seed=a&size=1", tag: "t") == task)
        try process.restart()
        let later = try process.open()
        #expect(try later.add(server.address + "/good?seed=a&size=1", tag: "t") == task)
        let other = try process.open("other")
        #expect(try other.add(server.address + "/good?seed=a&size=1", tag: "t") != task)
        #expect(try later.nextResult().0.task == task)
    }

    @Test("Names that are equal in Unicode are the same, also after a restart")
    func equalNames() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        let task = try process.open("caf\u{E9}").add(server.address + "/good?seed=a&size=1", tag: "\u{E9}")
        for _ in 0..<2 {
            let client = try process.open("cafe\u{301}")
            #expect(try client.add(server.address + "/good?seed=a&size=1", tag: "e\u{301}") == task)
            try process.restart()
        }
    }

    @Test("A session with nothing but a connection leaves nothing behind, also if the process is killed")
    func empty() throws {
        let process = try TransferProcess()
        let client = try process.open()
        #expect(try client.request { $0.list.after = 0 }.tasks.isEmpty)
        let sessions = process.data + "/sessions"
        #expect(try SmallFile.names(in: sessions).count == 1)
        try process.restart()
        #expect(eventually { (try? SmallFile.names(in: sessions)) == [] })
    }

    @Test("Results are reported on each connection until they are released, and not to other sessions")
    func again() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        let task = try process.open().add(server.address + "/good?seed=a&size=1000")
        for _ in 0..<2 {
            let client = try process.open()
            #expect(try client.nextResult().0.task == task)
            try process.restart()
        }
        let client = try process.open()
        let listed = try client.request { $0.list.after = 0 }.tasks
        #expect(listed.map(\.task) == [task] && listed[0].state == .finished)
        _ = try client.nextResult()
        let other = try process.open("other")
        try other.release(task)
        try client.release(task)
        try client.release(task)
        #expect(try process.open().request { $0.list.after = 0 }.tasks.isEmpty)
        #expect(try other.next(within: 300) == nil)
    }

    @Test("Cancelled tasks end, and leave no file")
    func cancels() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        let client = try process.open()
        for _ in 0..<3 { try client.add(server.address + "/slow?seed=a&size=30000000") }
        #expect(
            try eventually {
                try client.request { $0.list.after = 0 }.tasks.contains { $0.receivedBytes > 0 }
            })
        try client.request { $0.cancel.task = 0 }
        for _ in 0..<3 {
            let (result, file) = try client.nextResult()
            #expect(result.failure == .cancelled && file == nil)
            try client.release(result.task)
        }
        #expect(try SmallFile.names(in: process.data + "/sessions/1").isEmpty)
    }

    @Test("Progress is told at most once a second, and not to a client that does not read")
    func progress() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        let client = try process.open()
        let sleeper = try process.open()
        try client.add(server.address + "/slow?seed=a&size=6000000&ms=40")
        var last: UInt64 = 0
        var reports = 0
        let start = BootClock.now()
        while let (report, _) = try client.next() {
            if case .progress(let progress) = report.report {
                #expect(progress.receivedBytes > last && progress.total.bytes == 6_000_000)
                last = progress.receivedBytes
                reports += 1
            } else {
                break
            }
        }
        let seconds = (BootClock.now() - start) / 1_000_000_000
        #expect(reports >= 1 && reports <= seconds + 1)
        var unread = 0
        while let (report, _) = try sleeper.next(within: 500) {
            if case .progress = report.report { unread += 1 }
        }
        #expect(unread == 1)
    }

    @Test("The process ends when it is idle, and a task waits for no client")
    func idle() throws {
        let server = try OddServer()
        let process = try TransferProcess(["--idle", "1"])
        let task = try process.open().add(server.address + "/slow?seed=a&size=4000000&ms=30")
        process.process.reap()
        #expect(process.process.status == 0)
        try process.start()
        let (result, _) = try process.open().nextResult(within: 2_000)
        #expect(result.task == task && result.failure == .none)
    }

    @Test("Orphaned sessions are removed after their time, others are not")
    func orphans() throws {
        let server = try OddServer()
        let process = try TransferProcess(["--orphans", "2", "--idle", "600"])
        let kept = try process.open("kept")
        try kept.add(server.address + "/good?seed=a&size=1000")
        _ = try kept.nextResult()
        let task = try transferOnce(process, "orphan", server.address + "/good?seed=a&size=1000")
        #expect(
            eventually(within: 20_000) { (try? SmallFile.names(in: process.data + "/sessions/2")) == nil })
        #expect(try SmallFile.names(in: process.data + "/sessions/1").count == 1)
        #expect(try process.open("orphan").request { $0.list.after = 0 }.tasks.allSatisfy { $0.task != task })
    }

    /// The connection ends with it.
    private func transferOnce(_ process: TransferProcess, _ session: String, _ address: String) throws
        -> Int64
    {
        let client = try process.open(session)
        let task = try client.add(address)
        _ = try client.nextResult()
        return task
    }

    @Test("Other users are not served", .enabled(if: geteuid() == 0))
    func otherUsers() throws {
        let process = try TransferProcess()
        _ = try process.open()
        chmod(process.directory.path + "/own", 0o755)
        chmod(process.socket, 0o777)
        let code = """
            import socket, sys
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            s.connect(sys.argv[1])
            s.settimeout(20)
            print(len(s.recv(10)))
            """
        let child = try Child(
            "/usr/bin/setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "/usr/bin/python3", "-c",
            code,
            process.socket)
        #expect(try child.hear(within: 30_000) == "0\n")
    }

    @Test("A second process with the same directory ends, and nonsense ends only its own connection")
    func misuse() throws {
        let process = try TransferProcess()
        let client = try process.open()
        let other = try TransferClient(path: process.socket)
        #expect(throws: (any Error).self) { try other.request { $0.list.after = 0 } }
        let nameless = try TransferClient(path: process.socket)
        #expect(throws: (any Error).self) { try nameless.open(client: "test", "") }
        #expect(try client.request { $0.list.after = 0 }.tasks.isEmpty)
        let rival = try process.rival()
        rival.reap()
        #expect(rival.status >> 8 == EX_TEMPFAIL)
    }
}
