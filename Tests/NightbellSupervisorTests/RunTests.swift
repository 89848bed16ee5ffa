import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import Testing

/// Programs started by `nightbell run`, and what it does for them afterwards.
@Suite(.serialized, .timeLimit(.minutes(40))) struct RunTests {
    private let name = "org.example.phone"
    private let nightbell = ScriptedClientProcess.program("nightbell")

    @Test func aProgramThatDoesNotSpeakIsNamed() throws {
        let daemon = try DaemonProcess(suspension: "none", "--set launches.budget=400ms")
        let said = daemon.directory + "/said"
        let shell = try Child(
            "/bin/sh", "-c",
            "exec '\(nightbell)' run --socket '\(daemon.socketPath)' -- /bin/sleep 1000 2>'\(said)'")
        #expect(
            eventually(within: 20_000) {
                let text = (try? String(contentsOfFile: said, encoding: .utf8)) ?? ""
                return text.contains("/bin/sleep, pid \(shell.pid),") && text.contains("does not speak")
            })
        // It has replaced `run` in its process, and was left alone.
        #expect(ProcFS.name(shell.pid) == "sleep")
        #expect(try WireClient(path: daemon.socketPath).status().launchBudgetMs == 400)
    }

    @Test func aProgramThatSpeaksIsNot() throws {
        let daemon = try DaemonProcess(suspension: "none", "--set launches.budget=1s")
        let said = daemon.directory + "/said"
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let process = try actor.run([], saying: said)
        try process.command("hello \(name) voip")
        // The watcher ends once it has checked.
        #expect(eventually(within: 20_000) { Self.watchers(of: daemon).isEmpty })
        #expect(try String(contentsOfFile: said, encoding: .utf8) == "")
    }

    /// In a script the process group is the script's.
    @Test func anotherClientOfItsProcessGroupDoesNotHideThatItIsSilent() throws {
        let daemon = try DaemonProcess(suspension: "none", "--set launches.budget=400ms")
        let said = daemon.directory + "/said"
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let other = try actor.start()
        let shell = try Child(
            "/bin/sh", "-c",
            "exec '\(nightbell)' run --socket '\(daemon.socketPath)' -- /bin/sleep 1000 2>'\(said)'")
        #expect(getpgid(other.pid) == getpgid(shell.pid))
        #expect(
            eventually(within: 20_000) {
                let text = (try? String(contentsOfFile: said, encoding: .utf8)) ?? ""
                return text.contains("/bin/sleep, pid \(shell.pid),") && text.contains("does not speak")
            })
    }

    @Test func aProgramThatDoesNotTakeTheChosenIdentifierIsNamed() throws {
        let daemon = try DaemonProcess(suspension: "none", "--set launches.budget=1s")
        let said = daemon.directory + "/said"
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let process = try actor.run(
            ["--identifier", "org.example.chosen"], saying: said,
            wrapper: ["/usr/bin/env", "-u", "NIGHTBELL_LAUNCH"])
        try process.command("hello \(name) voip")
        #expect(eventually(within: 20_000) { Self.watchers(of: daemon).isEmpty })
        let text = try String(contentsOfFile: said, encoding: .utf8)
        #expect(text.contains("is the client \(name), and not org.example.chosen as --identifier asks"))
    }

    @Test(arguments: FaultTests.ways) func aSleeperHearsOfCtrlC(way: String) throws {
        guard way != "cgroup" || geteuid() == 0 else { return }
        let daemon = try DaemonProcess(suspension: way, "--set launches.budget=300ms")
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let terminal = try OwnedDescriptor(opening: "/dev/ptmx", O_RDWR | O_NOCTTY)
        // TIOCSPTLCK and TIOCGPTN of the kernel's asm-generic/ioctls.h.
        var (lock, number): (CInt, CInt) = (0, -1)
        #expect(ioctl(terminal.rawValue, 0x4004_5431, &lock) == 0)
        #expect(ioctl(terminal.rawValue, 0x8004_5430, &number) == 0)
        let process = try actor.run([], terminal: "/dev/pts/\(number)")
        try process.command("hello \(name) voip")
        try process.say("background")
        try WireClient(path: daemon.socketPath).wait(for: name, toBe: .suspended, path: daemon.socketPath)
        // Also after it has checked whether the program speaks.
        let looks = BootClock.now() + 1_000_000_000
        while BootClock.now() < looks { _ = Poll.wait(terminal.rawValue, for: [], timeoutMilliseconds: 100) }
        let handle = try ProcessHandle(opening: process.pid)
        let sign: [UInt8] = [3]
        #expect(write(terminal.rawValue, sign, 1) == 1)
        #expect(!Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 20_000).isEmpty)
        #expect(eventually(within: 20_000) { Self.watchers(of: daemon).isEmpty })
    }

    /// The processes that watch over programs that `run` has started with this supervisor.
    private static func watchers(of daemon: DaemonProcess) -> [pid_t] {
        let all = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        return all.compactMap { pid_t($0) }.filter { pid in
            let line = (try? SmallFile.readText("/proc/\(pid)/cmdline")) ?? ""
            return line.contains("nightbell\0run\0") && line.contains(daemon.socketPath)
        }
    }
}
