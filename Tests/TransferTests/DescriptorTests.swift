import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing
import TransferClient
import TransferWire

/// Descriptors on their way to clients, of which the kernel permits a user only so many.
@Suite("Results that are not read", .timeLimit(.minutes(40)))
struct DescriptorTests {
    /// A user of its own: another test's processes must not lack descriptors.
    private static let user: uid_t = 61_234

    /// Waits until a process uses almost no processor time for half a second.
    private func isQuiet(_ process: TransferProcess) throws -> Bool {
        try eventually(within: 30_000) {
            let before = try processorTime(of: process.process.pid)
            let end = BootClock.now() + 500_000_000
            // Nothing can be waited for: the process is to do nothing.
            _ = eventually(within: 1_000) { BootClock.now() >= end }
            return try processorTime(of: process.process.pid) - before < 0.02
        }
    }

    @Test("Results of many clients that do not read cost nothing, and come when these read")
    func sleepers() throws {
        let server = try Nginx()
        try server.add("a", randomBytes(10))
        let process = try TransferProcess(user: Self.user)
        // More together than the process may have descriptors.
        let (clients, tasks) = (36, 70)
        let sleepers = try (0..<clients).map { try process.open("s\($0)") }
        for sleeper in sleepers {
            let requests = try (0..<tasks).map { _ in
                try sleeper.send {
                    $0.add.task.url = server.address + "/a"
                    $0.add.task.kind = .download
                }
            }
            for request in requests { _ = try sleeper.answer(request) }
        }
        #expect(eventually(within: 60_000) { server.log.count == clients * tasks })
        #expect(try isQuiet(process))
        for sleeper in sleepers {
            for _ in 0..<tasks {
                let (result, file) = try sleeper.nextResult()
                #expect(result.failure == .none && file != nil)
                try sleeper.release(result.task)
            }
        }
    }

    @Test("Results that were released on another connection are no burden to any")
    func releasedTwice() throws {
        let server = try Nginx()
        try server.add("a", randomBytes(10))
        let process = try TransferProcess(user: Self.user)
        let names = (0..<5).map { "s\($0)" }
        let first = try names.map { try process.open($0) }
        let second = try names.map { try process.open($0) }
        for client in first {
            for _ in 0..<60 { try client.add(server.address + "/a") }
        }
        for client in first {
            for _ in 0..<60 { try client.release(try client.nextResult().0.task) }
        }
        for client in second {
            while let (report, _) = try client.next(within: 200) {
                if case .finished(let finished) = report.report { try client.release(finished.task) }
            }
        }
        for client in first { try client.add(server.address + "/a") }
        for client in first + second { #expect(try client.nextResult().0.failure == .none) }
    }

    @Test(
        "While another process of the user has too many descriptors on their way, results wait and cost nothing",
        .enabled(if: geteuid() == 0))
    func shortage() throws {
        let code = """
            import array, socket, sys
            a, b = socket.socketpair()
            one = array.array("i", [0] * 250)
            for _ in range(10):
                a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, one)])
            print("sent", flush=True)
            sys.stdin.read()
            """
        let server = try OddServer()
        let process = try TransferProcess(user: Self.user)
        let client = try process.open()
        let user = "\(Self.user)"
        let other = try Child(
            "/usr/bin/prlimit", "--nofile=4096:4096", "/usr/bin/setpriv", "--reuid", user, "--regid", user,
            "--clear-groups", "/usr/bin/python3", "-c", code)
        #expect(try other.hear(within: 30_000) == "sent\n")
        try client.add(server.address + "/good?seed=a&size=1000")
        #expect(
            try eventually {
                try client.request { $0.list.after = 0 }.tasks.contains { $0.state == .finished }
            })
        #expect(try isQuiet(process))
        #expect(try client.next(within: 0) == nil)
        other.end()
        let (result, file) = try client.nextResult()
        #expect(result.failure == .none && file != nil)
    }
}
