import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import NightbellSupervisor
import Suspension
import Testing

@Suite("Triggers of memory pressure")
struct TriggerTests {
    private static let threshold = PressureTrigger.Threshold(.some, .milliseconds(50), in: .seconds(2))

    /// Our own cgroup, if we may make one below it.
    private static var ownCgroup: String? {
        guard let path = CgroupMount.find()?.directory(of: getpid()), access(path, W_OK) == 0 else {
            return nil
        }
        return path
    }

    private func unavailable(
        _ path: String, _ threshold: PressureTrigger.Threshold = threshold
    ) -> PressureTrigger.Unavailable? {
        do throws(PressureTrigger.Unavailable) {
            _ = try PressureTrigger.set(path: path, threshold)
            return nil
        } catch {
            return error
        }
    }

    /// Shortage of memory is hard to make without harm to others; shortage of processors is not, and the
    /// kernel reports both in the same way.
    @Test(
        "It fires once a window when its threshold is reached",
        .enabled(if: access("/proc/pressure/cpu", W_OK) == 0, "needs pressure stall information"),
        .enabled(if: ownCgroup != nil, "needs a cgroup that it may write to"))
    func fires() throws {
        let trigger = try PressureTrigger.set(path: "/proc/pressure/cpu", Self.threshold)
        let tree = try #require(Self.ownCgroup)
        let empty = "\(tree)/nightbell-test-\(getpid())-pressure"
        try #require(mkdir(empty, 0o755) == 0)
        defer { rmdir(empty) }
        let unmoved = try PressureTrigger.set(path: empty + "/cpu.pressure", Self.threshold)
        let busy = try (0..<4 * ProcessInfo.processInfo.processorCount).map { _ in
            try Child("/bin/sh", "-c", "while :; do :; done")
        }
        #expect(!Poll.wait(trigger.rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty)
        trigger.clear()
        #expect(Poll.now(trigger.rawValue).isEmpty, "it fires once a window")
        #expect(!Poll.wait(trigger.rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty)
        #expect(Poll.now(unmoved.rawValue).isEmpty, "no process waits there")
        for child in busy { child.end() }
    }

    @Test("Another kind of file is left as it is")
    func anotherFile() throws {
        let directory = try TemporaryDirectory()
        let victim = directory.file("victim")
        let text = "some avg10=0.00, not written by the kernel\n"
        try text.write(toFile: victim, atomically: false, encoding: .utf8)
        let pipe = directory.file("pipe")
        try #require(mkfifo(pipe, 0o600) == 0)
        for path in [victim, pipe, directory.path, "/dev/null", "/proc", "/proc/self/comm", "/proc/uptime"] {
            let error = try #require(unavailable(path), "\(path)")
            #expect(error.reason == .anotherFile && error.description.contains("a pressure file"), "\(path)")
        }
        #expect(try String(contentsOfFile: victim, encoding: .utf8) == text)
        #expect(unavailable(victim + "/memory")?.reason == .missing)
    }

    @Test("Without it, the reason is given")
    func missing() throws {
        #expect(unavailable("/nonexistent/memory")?.reason == .missing)
        #expect(unavailable("/nonexistent/memory")?.description.contains("CONFIG_PSI") == true)
    }

    @Test(
        "A threshold that the kernel refuses is reported",
        .enabled(if: access(PressureTrigger.machineFile, W_OK) == 0, "needs pressure stall information"))
    func threshold() throws {
        let tooShort = PressureTrigger.Threshold(.full, .milliseconds(1), in: .milliseconds(100))
        #expect(unavailable(PressureTrigger.machineFile, tooShort)?.reason == .threshold)
        let tooMuch = PressureTrigger.Threshold(.full, .seconds(3), in: .seconds(2))
        #expect(unavailable(PressureTrigger.machineFile, tooMuch)?.reason == .threshold)
        #expect(unavailable(PressureTrigger.machineFile) == nil)
    }
}
