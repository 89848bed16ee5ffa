import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing
import TransferClient
import TransferWire

/// Supervised transfers in a store, or of a client, with difficulties.
@Suite("Stores of supervised transfers", .timeLimit(.minutes(40)))
struct StoreTests {
    private let server: OddServer
    private let supervisor: Supervised

    init() throws {
        server = try OddServer()
        supervisor = try Supervised(["budgets.termination=10s"])
    }

    private var address: String { "\(server.address)/slow?seed=sa&size=1500000&ms=120" }

    @Test(
        "A process that cannot write its store comes back by itself once there is room, and nothing is lost",
        .enabled(if: geteuid() == 0))
    func fullDisk() throws {
        for path in [supervisor.directory.path + "/state/transfers", supervisor.store] { mkdir(path, 0o711) }
        let disk = try StoreDisk(at: supervisor.store, bytes: 8 << 20)
        let client = try SupervisedClient(supervisor, "org.test.reader")
        try client.command("transfers s")
        try client.command("download s a \(address)")
        var process = try require(supervisor.transferProcess)
        // It would give back its part.
        kill(process, SIGSTOP)
        try disk.fill()
        kill(process, SIGKILL)
        // Two others end as well.
        for _ in 0..<3 {
            #expect(
                eventually(within: 60_000) {
                    guard let other = supervisor.transferProcess, other != process else { return false }
                    process = other
                    return true
                })
        }
        disk.free()
        let line = try client.event("transferred s a")
        let digest = try server.digest(seed: "sa", size: 1_500_000)
        #expect(line.contains(" bytes=1500000 sha=\(digest) failure=-"), "\(line)")
        #expect(eventually(within: 30_000) { sessions == [] })
    }

    /// Their directories.
    private var sessions: [String]? { try? SmallFile.names(in: supervisor.store + "/sessions") }

    @Test("Transfers that are added after a client was quit, and before it has ended, are cancelled, too")
    func addedLate() throws {
        let client = try SupervisedClient(awaiting: "org.test.reader", of: supervisor)
        try client.start(isLaunchable: false, ignoresTermination: true)
        try client.accept()
        try client.hello()
        try client.command("transfers s")
        try client.command("download s a \(address)")
        let process = try require(pid_t(try client.command("pid")))
        let path = "\(supervisor.directory.path)/run/transfers/\(Supervised.user)"
        let early = try TransferClient(path: path)
        try early.open(client: client.name, "s")
        let quit = try Child(
            product("nightbell"), ["quit", client.name], environment: ["NIGHTBELL_SOCKET": supervisor.socket])
        #expect(throws: TransferClient.Ended.self) {
            while try early.next(within: 30_000) != nil {}
        }
        // The session is gone. The client may make it again at once, as it runs on.
        let late = try TransferClient(path: path)
        try late.open(client: client.name, "late")
        try late.add(address)
        #expect(try late.request { $0.list.after = 0 }.tasks.count == 1 && kill(process, 0) == 0)
        #expect(eventually(within: 30_000) { sessions == [] })
        quit.end()
    }

    @Test(
        "A result that is kept is on the disk before it has its name, and the name before the handler returns",
        .enabled(if: access("/usr/bin/strace", X_OK) == 0))
    func durability() throws {
        let client = try SupervisedClient(supervisor, "org.test.reader")
        try client.command("keep-transfers \(supervisor.own)")
        try client.command("transfers s")
        let process = try require(pid_t(try client.command("pid")))
        let log = supervisor.directory.path + "/calls"
        let tracer = try Child(
            "/usr/bin/strace", "-q", "-f", "-e", "trace=fdatasync,linkat,fsync", "-o", log, "-p", "\(process)"
        )
        #expect(
            eventually(within: 30_000) {
                ProcFS.threadIdentifiers(process).allSatisfy { thread in
                    let status = try? SmallFile.readText("/proc/\(process)/task/\(thread)/status")
                    return status?.contains("TracerPid:\t\(tracer.pid)\n") ?? false
                }
            })
        try client.command("download s a \(server.address)/good?seed=sa&size=1000")
        try client.event("transferred s a")
        kill(tracer.pid, SIGINT)
        tracer.reap()
        let calls = try SmallFile.readText(log).split(separator: "\n").compactMap { line in
            ["fdatasync", "linkat", "fsync"].first { line.contains(" \($0)(") }
        }
        #expect(calls == ["fdatasync", "linkat", "fsync"])
    }
}
