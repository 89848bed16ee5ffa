import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing
import TransferClient
import TransferWire

/// A supervisor that wakes and launches clients when their transfers are finished.
@Suite("Wakes by transfers", .timeLimit(.minutes(40)))
struct WakeTests {
    private let server: OddServer
    private let supervisor: Supervised

    init() throws {
        server = try OddServer()
        supervisor = try Supervised()
    }

    /// Two downloads that take a while.
    private func download(_ client: SupervisedClient, _ session: String = "s", milliseconds: Int = 60) throws
    {
        try client.command("transfers \(session)")
        for name in ["a", "b"] {
            let address = "\(server.address)/slow?seed=\(session)\(name)&size=1500000&ms=\(milliseconds)"
            try client.command("download \(session) \(name) \(address)")
        }
    }

    /// Both results, each once.
    private func checkResults(_ client: SupervisedClient, _ session: String = "s") throws {
        for name in ["a", "b"] {
            let line = try client.event("transferred \(session) \(name)")
            let digest = try server.digest(seed: session + name, size: 1_500_000)
            #expect(line.contains(" bytes=1500000 sha=\(digest) failure=-"), "\(line)")
        }
        try client.event("session-finished \(session)")
        #expect(client.heard("transferred").isEmpty)
    }

    private func checkStore() throws {
        let sessions = supervisor.store + "/sessions"
        #expect(eventually(within: 30_000) { (try? SmallFile.names(in: sessions)) == [] })
    }

    @Test("A store with sessions has a process from the start; a link in their place is not followed")
    func links() throws {
        let sessions = supervisor.store + "/sessions"
        for path in [supervisor.directory.path + "/state/transfers", supervisor.store] { mkdir(path, 0o755) }
        chown(supervisor.store, Supervised.user, Supervised.user)
        try #require(symlink("/proc", sessions) == 0)
        try supervisor.restart()
        // The first turn has looked at the stores before it answers; the second one would have started a
        // process.
        for _ in 0..<2 { _ = try supervisor.nightbell("status") }
        #expect(supervisor.transferProcess == nil)

        unlink(sessions)
        for path in [sessions, sessions + "/one"] {
            mkdir(path, 0o700)
            chown(path, Supervised.user, Supervised.user)
        }
        try supervisor.restart()
        #expect(eventually(within: 30_000) { supervisor.transferProcess != nil })
    }

    @Test("Others pass through the directories, and cannot list the users")
    func directories() throws {
        let client = try SupervisedClient(supervisor, "org.test.reader")
        try client.command("transfers s")
        for path in ["/run/transfers", "/state/transfers"] {
            var status = stat()
            #expect(stat(supervisor.directory.path + path, &status) == 0)
            #expect(status.st_mode & 0o007 == 0o001, "\(path)")
        }
    }

    @Test("A suspended client is woken once all are finished, and sleeps again")
    func suspended() throws {
        let client = try SupervisedClient(supervisor, "org.test.reader")
        try client.command("keep-transfers \(supervisor.own)")
        try download(client)
        #expect(try client.command("transfer-tasks s").contains("a:"))
        try client.sleep()
        #expect(try client.event("wake").contains("reasons=transfer "))
        try client.event("finished-transfers s")
        try checkResults(client)
        try supervisor.wait(for: client.name, toBe: "suspended")
        #expect(try supervisor.count("wakes_transfer", of: client.name) == 1)
        #expect(try SmallFile.names(in: supervisor.own).filter { $0 == "a" || $0 == "b" }.count == 2)
        try checkStore()
        // The process ends when nothing is left to do: no client has a connection.
        let text = try supervisor.nightbell("show", client.name)
        #expect(text.contains("transfers of session s"), "\(text)")
    }

    @Test("A client is not suspended while it waits for the transfer process")
    func waiting() throws {
        let client = try SupervisedClient(supervisor, "org.test.reader")
        try client.command("transfers s")
        try client.command("download s a \(server.address)/slow?seed=sa&size=1500000&ms=600")
        try client.command("begin mine")
        try client.tell("background")
        try client.event("did-enter-background")
        let process = try require(supervisor.transferProcess)
        kill(process, SIGSTOP)
        defer { kill(process, SIGCONT) }
        try client.tell("download s b \(server.address)/slow?seed=sb&size=1500000&ms=60")
        #expect(
            try eventually(within: 30_000) { try supervisor.show(client.name).contains("transfers s\"]") })
        kill(process, SIGCONT)
        #expect(
            try eventually(within: 30_000) { try !supervisor.show(client.name).contains("transfers s\"]") })
        try client.tell("end mine")
        try checkResults(client)
    }

    @Test("A session of a client that there cannot be harms no other")
    func impossibleName() throws {
        let client = try SupervisedClient(supervisor, "org.test.reader")
        try download(client, milliseconds: 60)
        let process = try require(supervisor.transferProcess)
        let path = "\(supervisor.directory.path)/run/transfers/\(Supervised.user)"
        let hostile = try TransferClient(path: path)
        try hostile.open(client: "not an identifier!", "s")
        try hostile.add("\(server.address)/good?seed=x&size=10")
        #expect(try hostile.nextResult().0.failure == .none)
        try checkResults(client)
        #expect(supervisor.transferProcess == process)
    }

    @Test("A process that hangs when a client calls it is replaced")
    func hanging() throws {
        let client = try SupervisedClient(supervisor, "org.test.reader")
        try download(client, milliseconds: 400)
        let process = try require(supervisor.transferProcess)
        kill(process, SIGSTOP)
        #expect(throws: Unexpected.self) { try client.command("transfer-tasks s") }
        #expect(
            eventually(within: 90_000) { supervisor.transferProcess.map { $0 != process } ?? false })
        try checkResults(client)
    }

    @Test("A result is kept on another file system, whole and under its name only")
    func otherFileSystem() throws {
        var template = Array("/dev/shm/nightbell-test-XXXXXX".utf8CString)
        let directory = String(cString: try require(mkdtemp(&template)))
        defer { _ = try? output("/bin/rm", "-r", directory) }
        chown(directory, Supervised.user, Supervised.user)
        let client = try SupervisedClient(supervisor, "org.test.reader")
        try client.command("keep-transfers \(directory)")
        try download(client)
        try checkResults(client)
        #expect(Set(try SmallFile.names(in: directory)) == ["a", "b"])
        let digest = try output("/usr/bin/sha256sum", directory + "/a").text.prefix(64)
        #expect(try digest == server.digest(seed: "sa", size: 1_500_000))
        var status = stat()
        #expect(stat(directory + "/a", &status) == 0 && status.st_mode & 0o777 == 0o600)
    }

    @Test("Each batch of a session wakes, also after all of the one before was released")
    func batches() throws {
        let client = try SupervisedClient(supervisor, "org.test.reader")
        try client.command("transfers s")
        for batch in 1...2 {
            let name = "batch\(batch)"
            let address = "\(server.address)/slow?seed=\(name)&size=1500000&ms=120"
            try client.command("download s \(name) \(address)")
            try client.sleep()
            #expect(try client.event("wake").contains("reasons=transfer "))
            #expect(try client.event("transferred s").contains(" \(name) status=200 bytes=1500000 "))
            try client.event("session-finished s")
            try checkStore()
            try supervisor.wait(for: client.name, toBe: "suspended")
            try client.tell("foreground")
            _ = try supervisor.nightbell("wake", client.name)
            try client.event("wake")
            try client.event("ok")
        }
        #expect(try supervisor.count("wakes_transfer", of: client.name) == 2)
    }

    @Test(
        "A client that was ended by the system is launched, and receives the results",
        arguments: [false, true])
    func launched(crashes: Bool) throws {
        let client = try SupervisedClient(supervisor, "org.test.reader", isLaunchable: true)
        try download(client, milliseconds: 120)
        if crashes {
            kill(try client.pid(), SIGKILL)
        } else {
            try client.command("hibernate")
            try client.tell("background")
        }
        try supervisor.wait(for: client.name, toBe: "dormant")
        try client.accept()
        try client.hello()
        #expect(try client.event("wake").contains("transfer "))
        try client.event("finished-transfers s")
        // It may be suspended before it answers: the results are handled by another thread.
        try client.tell("transfers s")
        try checkResults(client)
        try checkStore()
        #expect(try supervisor.count("wakes_transfer", of: client.name) == 1)
    }

    @Test("A client that was launched by another name than it gives receives its results")
    func otherName() throws {
        let client = try SupervisedClient(supervisor, "org.test.reader", isLaunchable: true)
        try download(client, milliseconds: 120)
        kill(try client.pid(), SIGKILL)
        try client.accept()
        try client.hello(as: "org.test.other")
        try client.event("finished-transfers s")
        try client.tell("transfers s")
        try checkResults(client)
    }

    @Test("A client that ends before it has handled a result is given it again")
    func interrupted() throws {
        let client = try SupervisedClient(supervisor, "org.test.reader", isLaunchable: true)
        try client.command("hang-transfer")
        try download(client, milliseconds: 20)
        try client.event("transferred s")
        kill(try client.pid(), SIGKILL)
        try client.accept()
        try client.hello()
        try client.tell("transfers s")
        try checkResults(client)
        try checkStore()
    }

    @Test(
        "Results of which the release is lost with the transfer process do not wake their client again",
        arguments: [false, true])
    func lostRelease(isSent: Bool) throws {
        let client = try SupervisedClient(supervisor, "org.test.reader")
        try client.command("transfers s")
        try client.command("download s a \(server.address)/slow?seed=sa&size=1500000&ms=60")
        try client.command("hang-transfer")
        // The result and the end of the session are there when it wakes.
        try client.sleep()
        try client.event("finished-transfers s")
        try client.event("transferred s a")
        let process = try require(supervisor.transferProcess)
        kill(process, isSent ? SIGSTOP : SIGKILL)
        try client.tell("unhang")
        try client.event("session-finished s")
        kill(process, SIGKILL)
        try checkStore()
        #expect(client.heard("transferred").isEmpty)
        #expect(try supervisor.count("wakes_transfer", of: client.name) == 1)
    }

    @Test("A client that cannot be launched finds its results when it returns")
    func returning() throws {
        let client = try SupervisedClient(supervisor, "org.test.reader")
        try download(client)
        kill(try client.pid(), SIGKILL)
        #expect(eventually(within: 30_000) { supervisor.transferProcess != nil })
        // Long enough for the transfers to be finished, or not: either way nothing is lost.
        try client.start(isLaunchable: false)
        try client.accept()
        try client.hello()
        try client.command("transfers s")
        try checkResults(client)
        try checkStore()
    }

    @Test("The transfers of a client that its user quits are cancelled, also if the process is killed then")
    func quit() throws {
        for isKilled in [false, true] {
            let client = try SupervisedClient(supervisor, "org.test.quit\(isKilled)", isLaunchable: true)
            try download(client, milliseconds: 2_000)
            if isKilled { kill(try require(supervisor.transferProcess), SIGKILL) }
            _ = try supervisor.nightbell("quit", client.name)
            try checkStore()
        }
    }

    @Test("A session is woken for once, whatever is killed meanwhile")
    func kills() throws {
        var random = SystemRandomNumberGenerator()
        for round in 0..<6 {
            let client = try SupervisedClient(
                supervisor, "org.test.round\(round)", isLaunchable: round % 2 == 1)
            try download(client, milliseconds: 100)
            if round % 2 == 1 {
                try client.command("hibernate")
                try client.tell("background")
                try supervisor.wait(for: client.name, toBe: "dormant")
            } else {
                try client.sleep()
            }
            for _ in 0..<3 {
                if Bool.random(using: &random) {
                    if let pid = supervisor.transferProcess { kill(pid, SIGKILL) }
                } else {
                    try supervisor.killWorker()
                }
            }
            if round % 2 == 1 {
                try client.accept()
                try client.hello()
                #expect(try client.event("wake").contains("transfer "))
                try client.tell("transfers s")
            } else {
                #expect(try client.event("wake").contains("reasons=transfer "))
            }
            try checkResults(client)
            #expect(client.heard("finished-transfers").count <= 1)
            #expect(try supervisor.count("wakes_transfer", of: client.name) >= 1)
        }
        try checkStore()
    }

    @Test("After a restart of the whole supervisor a client still receives its results")
    func restart() throws {
        let client = try SupervisedClient(supervisor, "org.test.reader")
        try download(client, milliseconds: 120)
        try client.sleep()
        try supervisor.restart()
        try client.event("reconnected")
        try checkResults(client)
        try checkStore()
    }

    /// A supervisor with a manifest, and the client that it declares, which runs.
    private func declared(_ settings: [String] = []) throws -> (Supervised, SupervisedClient) {
        let name = "org.test.reader"
        let supervisor = try Supervised(
            settings,
            manifest: { directory in
                """
                identifier: \(name)
                modes: []
                user: "\(Supervised.user)"
                directory: /
                command: [\(try product("scripted-client"))]
                environment:
                    CLIENT_CONTROL: \(directory)/own/\(name).control
                """
            })
        let client = try SupervisedClient(awaiting: name, of: supervisor)
        _ = try supervisor.nightbell("launch", name)
        try client.accept()
        try client.command("hello \(name)")
        return (supervisor, client)
    }

    @Test("A declared client that ended with the machine is launched, and receives the results")
    func startOfTheMachine() throws {
        let (supervisor, client) = try declared()
        try download(client, milliseconds: 120)
        kill(try client.pid(), SIGKILL)
        try supervisor.wait(for: client.name, toBe: "dormant")
        try supervisor.restart()
        try client.accept()
        try client.command("hello \(client.name)")
        #expect(try client.event("wake").contains("transfer "))
        try client.event("finished-transfers s")
        try client.tell("transfers s")
        try checkResults(client)
        #expect(try supervisor.count("wakes_transfer", of: client.name) == 1)
    }

    @Test("A declared client with a process that reconnects is not launched for its results")
    func reconnects() throws {
        let (supervisor, client) = try declared()
        let process = try client.pid()
        try download(client, milliseconds: 10)
        // The end of the session is told before the process has reconnected, if that takes a moment.
        kill(process, SIGSTOP)
        try supervisor.restart()
        _ = eventually(within: 1_500) { (try? supervisor.show(client.name))?.contains("dormant") == true }
        kill(process, SIGCONT)
        try client.event("reconnected")
        try checkResults(client)
        #expect(!client.isCalled)
    }

    @Test(
        "A client is woken, or launched, when a task needs credentials, and continues it",
        arguments: [false, true])
    func credentials(isDormant: Bool) throws {
        let client = try SupervisedClient(supervisor, "org.test.reader", isLaunchable: true)
        try client.command("transfers s")
        if isDormant {
            kill(try client.pid(), SIGKILL)
            try supervisor.wait(for: client.name, toBe: "dormant")
        } else {
            try client.sleep()
        }
        try addSecret(for: client)
        if isDormant {
            try client.accept()
            try client.hello()
        }
        #expect(try client.event("wake").contains("transfer "))
        if isDormant { try client.tell("transfers s") }
        try client.event("needs-credentials s a")
        try client.command("authorize s a Bearer open")
        #expect(try client.event("transferred s a").contains("status=200"))
        try checkStore()
    }

    /// Adds a task for a client: the server might answer its own request before it sleeps.
    private func addSecret(for client: SupervisedClient) throws {
        let path = "\(supervisor.directory.path)/run/transfers/\(Supervised.user)"
        let transfers = try TransferClient(path: path)
        try transfers.open(client: client.name, "s")
        try transfers.add(server.address + "/secret?seed=sa&size=1500000", tag: "a")
    }

    @Test("An upload goes on while its client sleeps")
    func upload() throws {
        let client = try SupervisedClient(supervisor, "org.test.writer")
        let path = supervisor.own + "/body"
        let bytes = randomBytes(300_000)
        try bytes.withUnsafeBytes { body in
            let file = try OwnedDescriptor(opening: path, O_WRONLY | O_CREAT, mode: 0o644)
            let descriptor = file.rawValue
            _ = try systemCall("write") { write(descriptor, body.baseAddress, body.count) }
        }
        try client.command("transfers s")
        try client.command("open \(path) body")
        try client.command("upload s up body \(server.address)/put?name=x")
        try client.sleep()
        #expect(try client.event("transferred s up").contains("status=201"))
        try checkStore()
    }

    @Test("The limits of transfers are those of the configuration")
    func limits() throws {
        let supervisor = try Supervised(["transfer.diskBytes=350000", "transfer.orphans=1500ms"])
        let client = try SupervisedClient(supervisor, "org.test.reader")
        for session in ["one", "two"] { try client.command("transfers \(session)") }
        try client.command("download one a \(server.address)/good?seed=a&size=400000")
        #expect(try client.event("transferred one a").contains("failure=tooLarge"))
        // Its handler has returned, and does not hang.
        try client.event("session-finished one")
        try client.command("hang-transfer")
        try client.command("download one b \(server.address)/good?seed=b&size=300000")
        try client.event("transferred one b")
        // There is no room for it, until the results of a client that does not come are removed.
        try client.command("download two c \(server.address)/good?seed=c&size=300000")
        #expect(eventually(within: 30_000) { (try? server.requests().count) == 3 })
        kill(try client.pid(), SIGKILL)
        let sessions = supervisor.store + "/sessions"
        #expect(eventually(within: 25_000) { (try? SmallFile.names(in: sessions)) == [] })
        #expect(try server.requests().count == 4)
    }

    @Test("Root has no transfers", .enabled(if: geteuid() == 0))
    func root() throws {
        let client = try Child(product("scripted-client"))
        try client.send("hello org.test.root socket=\(supervisor.socket)\ntransfers s\n")
        var text = ""
        while !text.contains("error"), let piece = try client.hear(within: 30_000), !piece.isEmpty {
            text += piece
        }
        #expect(text.contains("error transfersUnavailable"), "\(text)")
    }
}

/// Transfer processes that misbehave: only transfers suffer.
@Suite("Transfer processes that misbehave", .timeLimit(.minutes(40)))
struct MisbehavingTests {
    @Test(
        "One that sends nonsense or much, or ends, wakes no client, and delays no wake",
        arguments: [
            "s.send(b'\\xff' * 100)", "s.send(b'')",
            "n = b'\\n\\x0forg.test.sleeper\\x12\\x01s\\x18'\nfor i in range(1, 127): s.send(n + bytes([i]))",
            "sys.exit(3)",
        ])
    func misbehaves(act: String) throws {
        let directory = try TemporaryDirectory()
        chmod(directory.path, 0o755)
        let program = directory.path + "/transfer"
        let text = """
            #!/usr/bin/python3
            import socket, sys, time
            s = socket.socket(fileno=3)
            open("\(directory.path)/starts", "a").write("x")
            time.sleep(0.2)
            \(act)
            s.recv(100000)
            time.sleep(3600)
            """
        try Array(text.utf8).withUnsafeBytes { bytes in
            let file = try OwnedDescriptor(opening: program, O_WRONLY | O_CREAT, mode: 0o755)
            let descriptor = file.rawValue
            _ = try systemCall("write") { write(descriptor, bytes.baseAddress, bytes.count) }
        }
        let supervisor = try Supervised(["transferProgram=\(program)"])
        let client = try SupervisedClient(supervisor, "org.test.client")
        // The program answers no client.
        try client.tell("transfers s")
        let sleeper = try SupervisedClient(supervisor, "org.test.sleeper")
        try sleeper.sleep()
        #expect(
            eventually(within: 30_000) {
                (try? SmallFile.readText(directory.path + "/starts"))?.isEmpty == false
            })
        for _ in 0..<20 {
            _ = try supervisor.nightbell("wake", sleeper.name)
            #expect(try sleeper.event("wake", within: 5_000).contains("reasons=request "))
            try supervisor.wait(for: sleeper.name, toBe: "suspended")
        }
        #expect(sleeper.heard("wake").isEmpty)
    }
}
