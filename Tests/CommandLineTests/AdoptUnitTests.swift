import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport
import Testing

@Suite("nightbell adopt --unit", .enabled(if: geteuid() == 0, "needs root"))
struct AdoptUnitTests {
    private let fixture: Fixture

    init() throws { fixture = try Fixture() }

    private func start(_ systemd: PretendedSystemd, _ arguments: String...) throws -> Program {
        try Program(
            "nightbell",
            ["adopt", "--socket", fixture.socket, "--identifier", "program"] + arguments,
            environment: ["DBUS_SYSTEM_BUS_ADDRESS": systemd.address])
    }

    private func adopt(_ systemd: PretendedSystemd, idle: String = "100ms") throws -> Program {
        let adopter = try start(systemd, "--unit", systemd.unit, "--idle", idle)
        try adopter.wrote("sleeps while it waits, as program")
        return adopter
    }

    /// The supervisor is told first.
    private func sleeps(_ systemd: PretendedSystemd) throws {
        try fixture.reaches("suspended", "program")
        #expect(try eventually { try systemd.isFrozen })
    }

    private func runs(_ systemd: PretendedSystemd) throws -> Bool {
        try eventually(within: 30_000) { try !systemd.isFrozen }
    }

    @Test("A service sleeps between its requests, frozen by systemd in its own cgroup")
    func service() throws {
        let systemd = try PretendedSystemd()
        let connection = try systemd.connect()
        let before = try SmallFile.readText("/proc/\(systemd.server.pid)/cgroup")
        let adopter = try adopt(systemd)
        for round in 1...5 {
            try sleeps(systemd)
            #expect(systemd.count("freeze") >= round)
            let shown = try fixture.shown("program")
            #expect(shown["suspension"] as? String == "systemd" && shown["unmodified"] as? Bool == true)
            let wakes = try fixture.wakes("program")
            #expect(try connection.echoes("request \(round)"), "\(adopter.errors)")
            #expect(try fixture.wakes("program") == wakes + 1)
            #expect(systemd.count("thaw") >= round)
        }
        #expect(try SmallFile.readText("/proc/\(systemd.server.pid)/cgroup") == before)
        try sleeps(systemd)
        adopter.send(signal: SIGINT)
        #expect(try adopter.outcome().code == 0)
        #expect(try !systemd.isFrozen)
        #expect(try connection.echoes("given back"))
        #expect(adopter.errors == "")
    }

    @Test("It is thawed when the command, the worker, the supervisor or the bus is killed")
    func deaths() throws {
        let systemd = try PretendedSystemd()
        let connection = try systemd.connect()
        for round in 1...3 {
            let adopter = try adopt(systemd)
            try sleeps(systemd)
            let thaws = systemd.count("thaw")
            adopter.send(signal: SIGKILL)
            _ = try adopter.outcome()
            #expect(try runs(systemd))
            #expect(systemd.count("thaw") == thaws + 1)
            #expect(try connection.echoes("without the command \(round)"))
            #expect(try eventually(within: 30_000) { try fixture.nightbell("show", "program").code == 4 })
        }
        let adopter = try adopt(systemd)
        for round in 1...3 {
            try sleeps(systemd)
            let status = try fixture.nightbell("status", "--json").output
            let match = try #require(status.firstMatch(of: #/"process_id":(\d+)/#))
            kill(try #require(pid_t(match.1)), SIGKILL)
            #expect(try connection.echoes("without the worker \(round)"), "\(adopter.errors)")
        }
        try sleeps(systemd)
        fixture.daemon.send(signal: SIGTERM)
        #expect(try fixture.daemon.outcome().code == 0)
        #expect(try runs(systemd))
        #expect(try connection.echoes("without a supervisor"))
        adopter.send(signal: SIGINT)
        #expect(try adopter.outcome().code == 0)
    }

    @Test("The supervisor thaws it when everything else that would is killed at once")
    func deathsTogether() throws {
        let systemd = try PretendedSystemd()
        let connection = try systemd.connect()
        for round in 1...2 {
            let adopter = try adopt(systemd)
            try sleeps(systemd)
            let unitGuard = try #require(ProcFS.children(adopter.pid).first)
            // It would notice the end of the command.
            kill(unitGuard, SIGKILL)
            adopter.send(signal: SIGKILL)
            _ = try adopter.outcome()
            #expect(try runs(systemd))
            #expect(try connection.echoes("without both \(round)"))
            #expect(try eventually(within: 30_000) { try fixture.nightbell("show", "program").code == 4 })
        }
    }

    @Test("The command ends as usual without its guard")
    func withoutGuard() throws {
        let systemd = try PretendedSystemd()
        let adopter = try adopt(systemd)
        try sleeps(systemd)
        kill(try #require(ProcFS.children(adopter.pid).first), SIGKILL)
        adopter.send(signal: SIGINT)
        #expect(try adopter.outcome().code == 0)
        #expect(try !systemd.isFrozen)
    }

    @Test("A freeze that comes after its answer was waited for is undone")
    func lateFreeze() throws {
        let systemd = try PretendedSystemd()
        let connection = try systemd.connect()
        try systemd.freezeLate()
        // No other attempt comes before that freeze.
        let adopter = try adopt(systemd, idle: "1s")
        #expect(eventually(within: 30_000) { systemd.requestsAfterLateFreeze?.isEmpty == false })
        #expect(systemd.requestsAfterLateFreeze?.first == "thaw")
        #expect(try connection.echoes("awake"), "\(adopter.errors)")
    }

    @Test("It is given back awake, even if another program has frozen it")
    func frozenByOthers() throws {
        let systemd = try PretendedSystemd()
        let adopter = try adopt(systemd, idle: "60s")
        try SmallFile.write("1", to: systemd.cgroup + "/cgroup.freeze")
        #expect(try eventually { try systemd.isFrozen })
        adopter.send(signal: SIGINT)
        #expect(try adopter.outcome().code == 0)
        #expect(try !systemd.isFrozen)
    }

    @Test("It is thawed when the bus is gone, and stays awake")
    func bus() throws {
        let systemd = try PretendedSystemd()
        let connection = try systemd.connect()
        let adopter = try adopt(systemd)
        try sleeps(systemd)
        systemd.bus.send(signal: SIGKILL)
        #expect(try runs(systemd))
        #expect(try connection.echoes("without a bus"), "\(adopter.errors)")
        let isExplained = try eventually(within: 30_000) {
            try (fixture.shown("program")["state_detail"] as? String)?.contains("systemd does not freeze it")
                ?? false
        }
        #expect(isExplained)
        #expect(try connection.echoes("still without a bus"), "\(adopter.errors)")
    }

    @Test("A job for it, and a thaw by others, wake it")
    func jobs() throws {
        let systemd = try PretendedSystemd()
        let connection = try systemd.connect()
        let adopter = try adopt(systemd)
        try sleeps(systemd)
        // As `systemctl thaw`.
        let freezes = systemd.count("freeze")
        try SmallFile.write("0", to: systemd.cgroup + "/cgroup.freeze")
        #expect(eventually(within: 30_000) { systemd.count("freeze") > freezes })
        try sleeps(systemd)
        try systemd.beginJob()
        #expect(try runs(systemd))
        let isExplained = try eventually(within: 30_000) {
            try fixture.shown("program")["state_detail"] as? String == "systemd has a job for it"
        }
        #expect(isExplained)
        #expect(try connection.echoes("during the job"), "\(adopter.errors)")
    }

    @Test(
        "A service that systemd starts again is still spoken for, and the command ends with its end",
        arguments: ["activating", "inactive"])
    func restart(_ state: String) throws {
        let systemd = try PretendedSystemd()
        let adopter = try adopt(systemd)
        try sleeps(systemd)
        try systemd.restart(state: state, asked: 1)
        let connection = try systemd.connect()
        let pid = systemd.server.pid
        #expect(
            try eventually(within: 30_000) {
                guard try fixture.nightbell("show", "program").code == 0 else { return false }
                return try fixture.shown("program")["process_id"] as? Int == Int(pid)
            }, "\(adopter.errors)")
        try sleeps(systemd)
        #expect(try connection.echoes("after the restart"))
        try sleeps(systemd)
        systemd.server.send(signal: SIGKILL)
        #expect(try adopter.outcome().code == 0)
        #expect(try !systemd.isFrozen)
    }

    @Test("systemd is asked less and less often whether it has started the service")
    func slowRestart() throws {
        let systemd = try PretendedSystemd()
        let adopter = try adopt(systemd)
        try systemd.restart(state: "activating", asked: 5)
        let times = systemd.asked(for: "activating")
        #expect(times[4] - times[3] >= 0.75, "\(times)")
        try fixture.reaches("suspended", "program")
        adopter.send(signal: SIGINT)
        #expect(try adopter.outcome().code == 0)
    }

    @Test("Units that cannot sleep are refused, with the reason")
    func refusals() throws {
        let watched = try PretendedSystemd(watchdog: 4_000_000)
        let refused = try start(watched, "--unit", watched.unit).outcome()
        #expect(refused.code == 1 && refused.errors.contains("WatchdogSec"), "\(refused)")
        let newer = try PretendedSystemd(version: 258, watchdog: 4_000_000)
        let adopter = try adopt(newer)
        #expect(adopter.errors.contains("refuses to stop or restart \(newer.unit)"))
        try sleeps(newer)
        let other = try start(watched, "--unit", "other").outcome()
        #expect(other.code == 1 && other.errors.contains("systemd has no unit other"), "\(other)")
        let part = try start(watched, "\(watched.server.pid)").outcome()
        #expect(part.code == 1 && part.errors.contains("--unit \(watched.unit)"), "\(part)")
        let both = try start(watched, "--unit", watched.unit, "4711").outcome()
        #expect(both.code == 64, "\(both)")
    }

    @Test("One that systemd does not freeze stays awake")
    func frozenNever() throws {
        let systemd = try PretendedSystemd()
        let connection = try systemd.connect()
        try systemd.refuseToFreeze()
        let adopter = try adopt(systemd)
        let isExplained = try eventually(within: 30_000) {
            try (fixture.shown("program")["state_detail"] as? String)?.contains("not today") ?? false
        }
        #expect(isExplained, "\(adopter.errors)")
        #expect(try !systemd.isFrozen)
        #expect(try connection.echoes("awake"))
    }
}
