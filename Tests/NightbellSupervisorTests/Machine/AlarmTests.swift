import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import Testing

/// The alarm that wakes the machine for keep-alives, as the kernel has it.
@Suite(.serialized, .timeLimit(.minutes(40)))
struct AlarmTests {
    /// The numbers of the kernel's `timerfd` are documented in proc(5).
    private static let bootTimeAlarm = "clockid: 9"

    /// The remaining nanoseconds of each alarm of a process.
    private func alarms(of pid: pid_t) throws -> [Int64] {
        var alarms: [Int64] = []
        for descriptor in try SmallFile.names(in: "/proc/\(pid)/fdinfo") {
            guard let text = try? SmallFile.readText("/proc/\(pid)/fdinfo/\(descriptor)") else { continue }
            let lines = text.split(separator: "\n")
            guard lines.contains(where: { $0 == Self.bootTimeAlarm }) else { continue }
            let value = try #require(lines.first { $0.hasPrefix("it_value: (") })
            let numbers = value.split { !$0.isNumber }.compactMap { Int64($0) }
            alarms.append(numbers[0] * 1_000_000_000 + numbers[1])
        }
        return alarms
    }

    private func sleeper(_ name: String, timeout: Duration, _ daemon: DaemonProcess) throws -> WireClient {
        let client = try WireClient(path: daemon.socketPath)
        try client.hello(name)
        var set = WireSetKeepAliveTimeout()
        set.timeoutMs = UInt64(timeout / .milliseconds(1))
        #expect(try client.ask(.setKeepAliveTimeout(set)) == .done(WireDone()))
        try client.goToSleep()
        try client.wait(for: name, toBe: .suspended, path: daemon.socketPath)
        return client
    }

    private static let mayWakeTheMachine: Bool = {
        do {
            _ = try TimerDescriptor(wakesMachine: true)
            return true
        } catch {
            return false
        }
    }()

    @Test(.enabled(if: mayWakeTheMachine, "needs CAP_WAKE_ALARM"))
    func itIsSetToTheNextKeepAlive() throws {
        let daemon = try DaemonProcess(suspension: "none")
        let observer = try WireClient(path: daemon.socketPath)
        let worker = try daemon.worker()
        #expect(try alarms(of: worker) == [])
        let minutes = try sleeper("org.example.minutes", timeout: .seconds(600), daemon)
        let left = try #require(alarms(of: worker).first)
        #expect(left > 500_000_000_000 && left <= 600_000_000_000)
        // The earlier one counts, and there is one alarm for all.
        let seconds = try sleeper("org.example.seconds", timeout: .seconds(60), daemon)
        let earlier = try alarms(of: worker)
        #expect(earlier.count == 1 && earlier[0] > 1 && earlier[0] <= 60_000_000_000)
        #expect(try observer.status().alarmProblem.isEmpty == TimerDescriptor.canWakeMachine)
        withExtendedLifetime((minutes, seconds)) {}
    }

    /// Its other rights are the same.
    @Test(.enabled(if: geteuid() == 0, "needs root"))
    func withoutTheCapabilityItIsSaid() throws {
        let daemon = try DaemonProcess(
            suspension: "none",
            runner: "/usr/bin/setpriv --inh-caps=-wake_alarm --bounding-set=-wake_alarm")
        let observer = try WireClient(path: daemon.socketPath)
        // Nothing has needed it yet.
        #expect(try observer.status().alarmProblem == "")
        let client = try sleeper("org.example.phone", timeout: .seconds(600), daemon)
        #expect(try alarms(of: daemon.worker()) == [])
        #expect(try observer.status().alarmProblem.contains("needs CAP_WAKE_ALARM"))
        let program = ScriptedClientProcess.program("nightbell")
        let status = try output(of: "'\(program)' status --socket '\(daemon.socketPath)'")
        #expect(status.contains("alarm") && status.contains("the machine does not wake for keep-alives"))
        let doctor = try output(of: "'\(program)' doctor --socket '\(daemon.socketPath)'")
        #expect(doctor.contains("the supervisor may not wake the machine"), "\(doctor)")
        #expect(doctor.contains("AmbientCapabilities=CAP_WAKE_ALARM"))
        withExtendedLifetime(client) {}
    }

    private func output(of command: String) throws -> String {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/bin/sh")
        process.arguments = ["-c", command]
        let pipe = Pipe()
        process.standardOutput = pipe
        try process.run()
        let data = pipe.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        return String(decoding: data, as: UTF8.self)
    }
}
