import CTestSupport
import EdgeTestSupport
import Foundation
import Glibc
import Launching
import LinuxSystem
import Testing

@Suite("Exit statuses")
struct ExitStatusTests {
    @Test("Our own children report theirs, and are reaped", arguments: [0, 3, 255])
    func exits(_ code: Int32) throws {
        let report = try Launched.shell("exit \(code)")
        #expect(report.status == .exited(code))
        #expect(kill(report.pid, 0) == -1 && errno == ESRCH, "nothing is left of it")
    }

    @Test("A signal is told apart from an exit", arguments: [SIGKILL, SIGTERM, SIGSEGV])
    func signals(_ number: CInt) throws {
        #expect(try Launched.shell("ulimit -c 0; kill -\(number) $$").status == .signalled(number))
    }

    /// Its parent is not ours, and it may not be inspected: the kernel reports 0 for everything.
    @Test(
        "Without permission to inspect, a crash is no success", .enabled(if: geteuid() == 0, "needs root")
    )
    func hidden() throws {
        // The program that the shell executes does not know of the child, and waits for none; the child ends
        // after the exec.
        var pair = try Pair()
        var order = LaunchOrder(
            LaunchSpecification(
                arguments: [
                    "/bin/sh", "-c",
                    "(while [ $(cat /proc/$$/comm) = sh ]; do :; done; exit 7) & echo $! >&3; exec head -n 1 <&3",
                ]),
            as: try .own())
        order.sockets = [.init(pair.theirs, name: "")]
        var launch = try Launch.begin(order)
        #expect(try Launched.outcome(of: &launch) == .runs)
        var buffer = [UInt8](repeating: 0, count: 32)
        let ours = pair.ours
        let count = try systemCall("read") { read(ours, &buffer, buffer.count) }
        let pid = try #require(pid_t(String(decoding: buffer.prefix(count - 1), as: UTF8.self)))
        #expect(eventually(within: 30_000) { ProcFS.state(pid) == "Z" })
        let seen = Monitored<CInt?>(nil)
        let thread = Thread { seen.finish(ctest_become(4_711) == 0 ? ProcFS.exitCode(pid) : CInt(-1)) }
        thread.start()
        #expect(seen.wait() == nil && ProcFS.exitCode(pid) == 7 << 8)
        try pair.say("\n")
        #expect(try Launched.exitStatus(of: launch.process) != nil)
        pair.close()
    }

    @Test("A running process has none")
    func running() throws {
        let child = try Child.echo()
        #expect(try child.handle().exitStatus() == nil)
    }

    @Test("Another process's child has one too, reaped or not", arguments: [false, true])
    func grandchild(_ isWaitedFor: Bool) throws {
        // The shell reports the pid of its child, ends it on command, and reaps it then, or only later.
        var pair = try Pair()
        let wait = isWaitedFor ? "wait $child; " : ""
        var order = LaunchOrder(
            LaunchSpecification(
                arguments: [
                    "/bin/sh", "-c",
                    "(read x; exit 7) <&3 & child=$!; echo $child >&3; \(wait)read y <&4",
                ]), as: try .own())
        var end = try Pair()
        order.sockets = [.init(pair.theirs, name: ""), .init(end.theirs, name: "")]
        var launch = try Launch.begin(order)
        #expect(try Launched.outcome(of: &launch) == .runs)
        var buffer = [UInt8](repeating: 0, count: 32)
        let ours = pair.ours
        let count = try systemCall("read") { read(ours, &buffer, buffer.count) }
        let pid = try #require(pid_t(String(decoding: buffer.prefix(count - 1), as: UTF8.self)))
        let grandchild = try ProcessHandle(opening: pid)
        try pair.say("\n")
        #expect(!Poll.wait(grandchild.rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty)
        if isWaitedFor { #expect(eventually(within: 30_000) { ProcFS.state(pid) == nil }) }
        // Kernels before 6.15 keep no exit status of reaped processes.
        let status = try grandchild.exitStatus()
        #expect(status == .exited(7) || (isWaitedFor && status == .unknown))
        try end.say("\n")
        #expect(try Launched.exitStatus(of: launch.process) == .exited(0))
        pair.close()
        end.close()
    }
}
