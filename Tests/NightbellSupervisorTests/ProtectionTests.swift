import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import NightbellWire
import Testing

/// The supervisor's privileges from a service manager are not passed to the programs that it launches.
@Suite struct ProtectionTests {
    @Test(.enabled(if: geteuid() == 0, "needs root"))
    func aLaunchedProcessIsNotProtectedAsTheSupervisorIs() throws {
        let daemon = try DaemonProcess(
            suspension: "none",
            before: "renice -n -30 $$ >/dev/null; (echo -300 > /proc/$$/oom_score_adj) 2>/dev/null",
            "--set launches.retry=10ms")
        let worker = try daemon.worker()
        // In a container, root may lack the right to either.
        let isProtected = try number("/proc/\(worker)/oom_score_adj") == -300
        let isFirst = nice(of: worker) < 0
        let actor = try TestClient("org.example.phone", socketPath: daemon.socketPath)
        let first = try actor.start()
        kill(first.pid, SIGKILL)
        let second = try actor.returns()
        #expect(!isFirst || nice(of: second.pid) == 0 && nice(of: worker) < 0)
        if isProtected {
            #expect(eventually { (try? self.number("/proc/\(second.pid)/oom_score_adj")) == 0 })
            #expect(try number("/proc/\(worker)/oom_score_adj") == -300, "it keeps its own")
        }
        try second.say("exit 0")
    }

    /// The user that starts a program with more privileges controls its environment.
    @Test(.enabled(if: geteuid() == 0, "needs root"))
    func theEnvironmentOfAPrivilegedProgramIsNotTrusted() throws {
        let daemon = try DaemonProcess(suspension: "none")
        let actor = try TestClient("org.example.phone", socketPath: daemon.socketPath)
        let process = try actor.start(startedBy: 4_711)
        let info = try WireClient(path: daemon.socketPath).show("org.example.phone")
        #expect(!info.hasLaunch && !info.canLaunch)
        kill(process.pid, SIGKILL)
        #expect(actor.staysAway(milliseconds: 600))
    }

    private func number(_ path: String) throws -> Int? {
        Int(try SmallFile.readText(path).split(separator: "\n").first ?? "")
    }

    private func nice(of pid: pid_t) -> CInt {
        getpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(pid))
    }
}
