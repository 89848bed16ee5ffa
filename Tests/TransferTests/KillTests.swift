import EdgeTestSupport
import Glibc
import LinuxSystem
import SwiftProtobuf
import Testing
import TransferClient
import TransferWire

@Suite("Kills of the transfer process")
struct KillTests {
    /// Waits for the results of all files, kills the process now and then, and checks each file.
    private func fetchAll(
        _ process: TransferProcess, _ files: [String: [UInt8]], address: (String) -> String, kills: Int,
        kill: () throws -> Void
    ) throws {
        var client = try process.open()
        for name in files.keys.sorted() { try client.add(address(name), tag: name) { $0.wantsDigest = true } }
        var missing = Set(files.keys)
        var killed = 0
        var nextKill = BootClock.now() + Int64.random(in: 20...200) * 1_000_000
        while !missing.isEmpty {
            if killed < kills, BootClock.now() >= nextKill {
                try kill()
                killed += 1
                client = try process.open()
                nextKill = BootClock.now() + Int64.random(in: 20...200) * 1_000_000
            }
            do {
                guard let (report, file) = try client.next(within: killed < kills ? 10 : 60_000) else {
                    if killed < kills { continue }
                    Issue.record("lost: \(missing.sorted())")
                    return
                }
                guard case .finished(let result) = report.report else { continue }
                let bytes = try #require(files[result.tag])
                #expect(result.failure == .none && result.bytes == bytes.count, "\(result)")
                let expected = digest(bytes)
                #expect(Array(result.digest) == expected)
                #expect(try #require(file).digest() == expected)
                try client.release(result.task)
                missing.remove(result.tag)
            } catch is TransferClient.Ended {
                client = try process.open()
            }
        }
    }

    private static let sizes = [0, 1, 1_000, 65_536, 300_000, 1_000_000, 3_000_000, 6_000_000]

    @Test("Nothing is lost or damaged, and little is fetched twice")
    func process() throws {
        let server = try Nginx(rate: "3m")
        var files: [String: [UInt8]] = [:]
        for index in 0..<24 {
            let bytes = randomBytes(Self.sizes[index % Self.sizes.count])
            files["f\(index)"] = bytes
            try server.add("f\(index)", bytes)
        }
        let process = try TransferProcess(["--parallel", "8"])
        try fetchAll(process, files, address: { server.address + "/" + $0 }, kills: 15) {
            try process.restart()
        }
        let payload = files.values.reduce(0) { $0 + $1.count }
        let fetched = server.log.reduce(0) { $0 + $1.bytes }
        // The server counts bytes that were on their way.
        #expect(Double(fetched) / Double(payload) < 1.5, "\(fetched) of \(payload)")
        #expect(server.log.contains { $0.status == 206 })
        print("kills: fetched \(fetched) of \(payload) bytes, ratio \(Double(fetched) / Double(payload))")
    }

    @Test("A server that is killed costs nothing but time")
    func server() throws {
        let server = try Nginx(rate: "3m")
        var files: [String: [UInt8]] = [:]
        for index in 0..<12 {
            let bytes = randomBytes(Self.sizes[index % Self.sizes.count])
            files["f\(index)"] = bytes
            try server.add("f\(index)", bytes)
        }
        let process = try TransferProcess(["--authorities", server.authorities])
        try fetchAll(process, files, address: { server.secureAddress + "/" + $0 }, kills: 5) {
            try server.restart()
        }
    }

    @Test("After a start of the machine only bytes count that were written to the disk")
    func machineStart() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        let client = try process.open()
        try client.add(server.address + "/slow?seed=a&size=6000000&ms=20") { $0.wantsDigest = true }
        #expect(
            try eventually {
                try client.request { $0.list.after = 0 }.tasks.contains { $0.receivedBytes > 300_000 }
            })
        process.kill()
        try losePower(process)
        try process.start()
        try expectWhole(process, server)
        // A result that is not released is fetched again as well.
        process.kill()
        try losePower(process)
        try process.start()
        try expectWhole(process, server)
    }

    @Test("A start that fails after a loss of power leaves all to be checked by the next one")
    func failedStart() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        try process.open().add(server.address + "/good?seed=a&size=6000000") { $0.wantsDigest = true }
        try expectWhole(process, server)
        process.kill()
        try losePower(process)
        try change(
            process,
            "INSERT INTO task (id, session, tag, request, state, created) VALUES (99, 1, 'x', x'FF', 0, 0)")
        try process.start()
        process.process.reap()
        #expect(process.process.status >> 8 == EX_IOERR)
        try change(process, "DELETE FROM task WHERE id = 99")
        try process.start()
        try expectWhole(process, server)
    }

    @Test("A result of a process that was killed at once is written to the disk by the next one")
    func flushedLater() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        let client = try process.open()
        try client.add(server.address + "/good?seed=a&size=6000000")
        #expect(try client.nextResult().0.failure == .none)
        try process.restart()
        let code =
            "import sqlite3, sys; print(sqlite3.connect(sys.argv[1] + '/transfers.sqlite', 20).execute('SELECT durable FROM task').fetchall())"
        #expect(
            try eventually(within: 30_000) {
                try output("/usr/bin/python3", "-c", code, process.data).text == "[(6000000,)]\n"
            })
    }

    @Test("No byte of a part is there before its validator, which a process that is killed then would need")
    func validatorFirst() throws {
        let server = try Nginx()
        try server.add("large", [UInt8](repeating: 7, count: 64 << 20))
        let code =
            "import sqlite3, sys; print(sqlite3.connect(sys.argv[1] + '/transfers.sqlite').execute('SELECT entity_tag IS NOT NULL FROM task').fetchall())"
        for _ in 0..<5 {
            let process = try TransferProcess()
            try process.open().add(server.address + "/large")
            var status = stat()
            #expect(
                eventually { stat(process.data + "/sessions/1/1.data", &status) == 0 && status.st_size > 0 })
            try #require(stop(process.process.pid))
            #expect(try output("/usr/bin/python3", "-c", code, process.data).text == "[(1,)]\n")
        }
    }

    @Test("A process goes on, and starts, while another one has locked its store for a moment")
    func lockedStore() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        let client = try process.open()
        let code = """
            import sqlite3, sys, time
            store = sqlite3.connect(sys.argv[1] + "/transfers.sqlite", isolation_level=None)
            if sys.argv[2] == "all": store.execute("PRAGMA locking_mode = EXCLUSIVE")
            store.execute("BEGIN IMMEDIATE")
            store.execute("UPDATE boot SET id = id")
            print("locked", flush=True)
            time.sleep(0.5)
            store.execute("COMMIT")
            """
        func lock(_ part: String) throws -> Child {
            let other = try Child("/usr/bin/python3", ["-c", code, process.data, part])
            #expect(try other.hear() == "locked\n")
            return other
        }
        let writer = try lock("writes")
        try client.add(server.address + "/good?seed=a&size=6000000") { $0.wantsDigest = true }
        writer.reap()
        #expect(try client.nextResult().0.failure == .none)
        process.kill()
        let owner = try lock("all")
        try process.start()
        try expectWhole(process, server)
        owner.reap()
        #expect(writer.status == 0 && owner.status == 0)
    }

    @Test("A file that a client has kept stays whole, if the store has lost that it was finished")
    func keptAfterLossOfPower() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        let client = try process.open()
        try client.add(server.address + "/good?seed=a&size=6000000") { $0.wantsDigest = true }
        let (result, file) = try client.nextResult()
        #expect(result.failure == .none)
        let received = try #require(file).rawValue
        let link = process.directory.path + "/own/kept"
        #expect(linkat(AT_FDCWD, "/proc/self/fd/\(received)", AT_FDCWD, link, AT_SYMLINK_FOLLOW) == 0)
        process.kill()
        // Changes that are not promises are written to the disk later.
        try change(process, "UPDATE boot SET id = 'another'")
        try change(
            process,
            "UPDATE task SET state = 0, outcome = NULL, durable = 0, entity_tag = NULL, last_modified = NULL")
        try process.start()
        try expectWhole(process, server)
        let expected = try server.digest(seed: "a", size: 6_000_000)
        let kept = try OwnedDescriptor(opening: link, O_RDONLY)
        #expect(hexadecimal(try TransferredFile(kept).digest()) == expected)
        // The second result is another file: this one was not written to.
        var status = stat()
        #expect(lstat(link, &status) == 0 && status.st_nlink == 1)
    }

    /// Changes the store of a process that has ended.
    private func change(_ process: TransferProcess, _ statement: String) throws {
        let code =
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1] + '/transfers.sqlite'); c.execute(sys.argv[2]); c.commit()"
        #expect(try output("/usr/bin/python3", "-c", code, process.data, statement).code == 0)
    }

    /// As after a loss of power: the lengths are there, and the bytes are not.
    private func losePower(_ process: TransferProcess) throws {
        let code = """
            import glob, os, sqlite3, sys
            database = sqlite3.connect(sys.argv[1] + "/transfers.sqlite")
            database.execute("UPDATE boot SET id = 'another'")
            database.execute("UPDATE task SET durable = 0")
            database.commit()
            database.close()
            for path in glob.glob(sys.argv[1] + "/sessions/*/*.data"):
                size = os.path.getsize(path)
                open(path, "r+b").write(bytes(size))
                print(size)
            """
        let child = try Child("/usr/bin/python3", "-c", code, process.data)
        #expect(Int(try require(try child.hear(within: 30_000)).dropLast()) ?? 0 > 300_000)
        child.reap()
    }

    private func expectWhole(_ process: TransferProcess, _ server: OddServer) throws {
        let (result, file) = try process.open().nextResult()
        #expect(result.failure == .none && result.bytes == 6_000_000)
        let expected = try server.digest(seed: "a", size: 6_000_000)
        #expect(hexadecimal(result.digest) == expected)
        #expect(hexadecimal(try #require(file).digest()) == expected)
    }

    @Test("SIGTERM in the middle of transfers ends the process in order")
    func terminated() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        let client = try process.open()
        for _ in 0..<4 {
            try client.add(server.address + "/slow?seed=a&size=4000000&ms=20") { $0.wantsDigest = true }
        }
        #expect(
            try eventually {
                try client.request { $0.list.after = 0 }.tasks.contains { $0.receivedBytes > 300_000 }
            })
        #expect(Glibc.kill(process.process.pid, SIGTERM) == 0)
        process.process.reap()
        #expect(process.process.status == 0)
        try process.start()
        let later = try process.open()
        for _ in 0..<4 { #expect(try later.nextResult().0.failure == .none) }
    }

    @Test("After SIGTERM and a start of the machine nothing is fetched twice")
    func machineEnd() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        try terminate(process, server)
        let sizes = try output(
            "/bin/sh", "-c", "stat -c %s \(process.data)/sessions/1/*.data"
        ).text.split(separator: "\n").compactMap { Int($0) }.sorted()
        #expect(sizes.count == 2 && sizes[0] > 300_000 && sizes[1] == 6_000_000, "\(sizes)")
        let before = try server.requests().count
        try change(process, "UPDATE boot SET id = 'another'")
        try process.start()
        let client = try process.open()
        for _ in 0..<2 { #expect(try client.nextResult().0.failure == .none) }
        let requests = try server.requests().dropFirst(before)
        #expect(requests.count == 1 && requests.first?.contains("bytes=\(sizes[0])-") == true, "\(requests)")
    }

    /// Ends the process in the middle of one transfer, with the result of another.
    private func terminate(_ process: TransferProcess, _ server: OddServer) throws {
        let client = try process.open()
        try client.add(server.address + "/good?seed=b&size=6000000")
        #expect(try client.nextResult().0.failure == .none)
        try client.add(server.address + "/slow?seed=a&size=6000000&ms=20")
        #expect(
            try eventually {
                try client.request { $0.list.after = 0 }.tasks.contains {
                    $0.state == .running && $0.receivedBytes > 300_000
                }
            })
        #expect(Glibc.kill(process.process.pid, SIGTERM) == 0)
        process.process.reap()
        #expect(process.process.status == 0)
    }

    @Test("The orderly end of a supervisor is one of its transfers")
    func supervisorEnd() throws {
        let server = try OddServer()
        let supervisor = try Supervised()
        let client = try SupervisedClient(supervisor, "org.test.reader")
        try client.command("transfers s")
        try client.command("download s a \(server.address)/slow?seed=a&size=6000000&ms=100")
        var (path, status) = ("", stat())
        #expect(
            eventually(within: 30_000) {
                let session = (try? SmallFile.names(in: supervisor.store + "/sessions"))?.first ?? ""
                path = "\(supervisor.store)/sessions/\(session)/1.data"
                return stat(path, &status) == 0 && status.st_size > 100_000
            })
        let daemon = try supervisor.daemon.handle()
        #expect(kill(supervisor.daemon.pid, SIGTERM) == 0)
        #expect(!Poll.wait(daemon.rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty)
        #expect(stat(path, &status) == 0)
        let code =
            "import sqlite3, sys; print(sqlite3.connect(sys.argv[1] + '/transfers.sqlite', 20).execute('SELECT durable FROM task').fetchall())"
        let durable = try output("/usr/bin/python3", "-c", code, supervisor.store).text
        #expect(durable == "[(\(status.st_size),)]\n")
    }

    @Test("Uploads that were accepted arrive, also if the process is killed")
    func uploads() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        var tags: Set<String> = []
        var sent: [[UInt8]] = []
        for index in 0..<8 {
            let bytes = randomBytes(2_000_000)
            sent.append(digest(bytes))
            let client = try process.open()
            let path = process.directory.path + "/source\(index)"
            try Nginx.write(bytes, to: path)
            let source = try OwnedDescriptor(opening: path, O_RDONLY)
            try client.add(server.address + "/put?name=u\(index)", tag: "u\(index)", body: source.rawValue)
            unlink(path)
            tags.insert("u\(index)")
            try process.restart()
        }
        let client = try process.open()
        while !tags.isEmpty {
            let (result, _) = try client.nextResult()
            #expect(result.failure == .none)
            tags.remove(result.tag)
        }
        for index in 0..<8 {
            let digests = Set(try server.get("/uploaded?name=u\(index)").split { "[], ".contains($0) })
            #expect(digests == ["\"\(hexadecimal(sent[index]))\""])
        }
    }

    @Test("An upload that was done before a loss of power is not sent again without its file")
    func uploadAfterLossOfPower() throws {
        let server = try OddServer()
        let process = try TransferProcess()
        var client = try process.open()
        let path = process.directory.path + "/source"
        try Nginx.write(randomBytes(1_000), to: path)
        let source = try OwnedDescriptor(opening: path, O_RDONLY)
        try client.add(server.address + "/put?name=n", body: source.rawValue)
        #expect(try client.nextResult().0.failure == .none)
        process.kill()
        // The last record is lost, and the file is not there any more.
        let code = """
            import sqlite3, sys
            database = sqlite3.connect(sys.argv[1] + "/transfers.sqlite")
            database.execute("UPDATE task SET state = 0, outcome = NULL")
            database.commit()
            print("done")
            """
        let child = try Child("/usr/bin/python3", "-c", code, process.data)
        #expect(try child.hear(within: 30_000) != nil)
        child.reap()
        try process.start()
        client = try process.open()
        #expect(try client.nextResult().0.failure == .storage)
        #expect(try server.get("/uploaded?name=n").split(separator: ",").count == 1)
    }
}
