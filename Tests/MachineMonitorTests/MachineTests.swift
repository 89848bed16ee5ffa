import EdgeTestSupport
import Glibc
import LinuxSystem
import NightbellWire
import Testing

@Suite("Power, sleep and users") struct MachineTests {
    private func environment(_ bus: PrivateBus) -> [String: String] {
        ["DBUS_SYSTEM_BUS_ADDRESS": bus.address]
    }

    private func logind(_ bus: PrivateBus) throws -> MockService {
        try MockService(
            bus, template: "logind", name: "org.freedesktop.login1", path: "/org/freedesktop/login1")
    }

    // MARK: Power

    private func power(_ fact: MonitorProcess.Fact) -> WireMonitorReport.Power? {
        if case .power(let power) = fact { power } else { nil }
    }

    private func answer(_ fact: MonitorProcess.Fact) -> WireMonitorAnswer? { power(fact)?.onBattery }

    @Test("UPower tells whether the machine runs on battery, also after it was started again")
    func power() throws {
        let bus = try PrivateBus()
        let monitor = try MonitorProcess(environment: environment(bus))
        try monitor.demand([.power])
        #expect(try monitor.availability(of: .power, is: false).contains("org.freedesktop.UPower"))
        for _ in 0..<2 {
            let mock = try MockService(
                bus, template: "upower", name: "org.freedesktop.UPower", path: "/org/freedesktop/UPower")
            #expect(try monitor.first { answer($0) } == .no)
            try mock.update("org.freedesktop.UPower", "{'OnBattery': <true>}")
            #expect(try monitor.first { answer($0) } == .yes)
            mock.end()
            _ = try monitor.availability(of: .power, is: false)
        }
    }

    @Test("UPower tells whether the batteries together are low")
    func batteryLow() throws {
        let bus = try PrivateBus()
        let monitor = try MonitorProcess(environment: environment(bus))
        try monitor.demand([.power])
        let mock = try MockService(
            bus, template: "upower", name: "org.freedesktop.UPower", path: "/org/freedesktop/UPower")
        // Both are in the first report.
        let first = try monitor.first { power($0) }
        #expect(first.onBattery == .no && first.batteryLow == .no)
        // Low, critical, discharging (of a power supply that is not the machine's), about to act, none.
        let cases: [(level: String, WireMonitorAnswer)] = [
            ("uint32 3", .yes), ("uint32 2", .no), ("uint32 4", .yes), ("uint32 1", .no), ("uint32 5", .yes),
            ("'low'", .unspecified),
        ]
        for (level, answer) in cases {
            try mock.update(
                "org.freedesktop.UPower.Device", at: "/org/freedesktop/UPower/devices/DisplayDevice",
                "{'WarningLevel': <\(level)>}")
            #expect(try monitor.first { power($0) }.batteryLow == answer, "\(level)")
        }
        mock.end()
        _ = try monitor.availability(of: .power, is: false)
    }

    @Test("A UPower without batteries tells whether the machine runs on one")
    func noBattery() throws {
        let bus = try PrivateBus()
        let monitor = try MonitorProcess(environment: environment(bus))
        try monitor.demand([.power])
        let name = "org.freedesktop.UPower"
        let mock = try MockService(bus, name: name, path: "/org/freedesktop/UPower", interface: name)
        try mock.tell("AddProperty", name, "OnBattery", "<true>")
        try mock.update(name, "{'OnBattery': <false>}")
        let known = try monitor.first { fact in
            power(fact).flatMap { $0.onBattery == .no ? $0 : nil }
        }
        #expect(known.batteryLow == .unspecified)
        mock.end()
    }

    @Test(
        "A monitor without rights observes as well",
        .enabled(if: geteuid() == 0, "only root can become another user"))
    func unprivileged() throws {
        let bus = try PrivateBus()
        let mock = try MockService(
            bus, template: "upower", name: "org.freedesktop.UPower", path: "/org/freedesktop/UPower")
        let monitor = try MonitorProcess(["--user", "nobody"], environment: environment(bus))
        try monitor.demand([.power])
        #expect(try monitor.first { answer($0) } == .no)
        mock.end()
    }

    @Test("A value of another type is unknown, never no")
    func nonsensePower() throws {
        let bus = try PrivateBus()
        let monitor = try MonitorProcess(environment: environment(bus))
        let mock = try MockService(
            bus, template: "upower", name: "org.freedesktop.UPower", path: "/org/freedesktop/UPower")
        try monitor.demand([.power])
        #expect(try monitor.first { answer($0) } == .no)
        try mock.update("org.freedesktop.UPower", "{'OnBattery': <'maybe'>}")
        #expect(try monitor.first { answer($0) } == .unspecified)
    }

    // MARK: Sleep

    private func sleep(_ fact: MonitorProcess.Fact) -> WireMonitorReport.Sleep? {
        if case .sleep(let sleep) = fact { sleep } else { nil }
    }

    @Test("logind announces sleep, which is delayed as long as the demand says so")
    func sleep() throws {
        let bus = try PrivateBus()
        let mock = try logind(bus)
        let monitor = try MonitorProcess(environment: environment(bus))
        try monitor.demand([.sleep])
        let awake = try monitor.first { sleep($0) }
        #expect(!awake.isImminent && !awake.isDelayed)
        try monitor.demand([.sleep]) { $0.delaysSleep = true }
        #expect(try monitor.first { sleep($0) }.isDelayed)
        #expect(try inhibitors(bus).contains("Nightbell"))

        try mock.emit("org.freedesktop.login1.Manager", "PrepareForSleep", "b", "[<true>]")
        let imminent = try monitor.first { sleep($0) }
        #expect(imminent.isImminent && imminent.isDelayed)
        try monitor.demand([.sleep])
        let released = try monitor.first { sleep($0) }
        #expect(released.isImminent && !released.isDelayed)
        #expect(try eventually { try !inhibitors(bus).contains("Nightbell") })
        try mock.emit("org.freedesktop.login1.Manager", "PrepareForSleep", "b", "[<false>]")
        #expect(try !monitor.first { sleep($0) }.isImminent)
    }

    @Test("A monitor that is killed delays nothing")
    func killedInhibitor() throws {
        let bus = try PrivateBus()
        let mock = try logind(bus)
        let monitor = try MonitorProcess(environment: environment(bus))
        try monitor.demand([.sleep]) { $0.delaysSleep = true }
        _ = try monitor.first { sleep($0).flatMap { $0.isDelayed ? true : nil } }
        monitor.kill()
        #expect(try eventually { try !inhibitors(bus).contains("Nightbell") })
        mock.end()
    }

    private func inhibitors(_ bus: PrivateBus) throws -> String {
        try bus.answer(
            "org.freedesktop.login1", "/org/freedesktop/login1",
            "org.freedesktop.login1.Manager.ListInhibitors")
    }

    @Test("A sleep that any peer announces to the monitor directly is not believed")
    func forgedSleep() throws {
        let bus = try PrivateBus()
        let mock = try logind(bus)
        let monitor = try MonitorProcess(environment: environment(bus))
        try monitor.demand([.sleep])
        _ = try monitor.first { sleep($0) }
        let address = try #require(try bus.uniqueName(of: monitor.pid))
        for _ in 0..<10 {
            try run([
                "/usr/bin/dbus-send", "--bus=\(bus.address)", "--type=signal", "--dest=\(address)",
                "/org/freedesktop/login1", "org.freedesktop.login1.Manager.PrepareForSleep", "boolean:true",
            ])
        }
        // The answer comes by the same bus, after them.
        try monitor.demand([.sleep]) { $0.delaysSleep = true }
        _ = try monitor.first { sleep($0).flatMap { $0.isDelayed ? true : nil } }
        #expect(monitor.received.compactMap { sleep($0) }.allSatisfy { !$0.isImminent })
        mock.end()
    }

    // MARK: Users

    private func users(_ fact: MonitorProcess.Fact) -> [UInt32]? {
        if case .users(let users) = fact { users.unlocked } else { nil }
    }

    @Test("Users with sessions and lingering ones are unlocked; one that is opening or offline is not")
    func users() throws {
        let bus = try PrivateBus()
        let mock = try logind(bus)
        try mock.tell("AddSession", "c1", "seat0", "1000", "alice", "true")
        let monitor = try MonitorProcess(environment: environment(bus))
        try monitor.demand([.users])
        #expect(try monitor.first { users($0) } == [1000])
        try mock.tell("AddUser", "1001", "bob", "true")
        let bob = "/org/freedesktop/login1/user/1001"
        for (state, isUnlocked) in [
            ("opening", false), ("lingering", true), ("offline", false), ("closing", true),
        ] {
            try mock.update("org.freedesktop.login1.User", at: bob, "{'State': <'\(state)'>}")
            try mock.emit(
                "org.freedesktop.login1.Manager", "UserNew", "uo", "[<uint32 1001>, <objectpath '\(bob)'>]")
            let expected: [UInt32] = isUnlocked ? [1000, 1001] : [1000]
            if monitor.received.last.flatMap({ users($0) }) != expected {
                _ = try monitor.first { users($0) == expected ? true : nil }
            }
        }
        mock.end()
        _ = try monitor.availability(of: .users, is: false)
    }

    private func isLost(_ fact: MonitorProcess.Fact, isTemporary: Bool) -> Bool? {
        guard case .source(let state) = fact, state.source == .users, !state.isAvailable else { return nil }
        return state.isTemporary == isTemporary ? true : nil
    }

    @Test("Users are unknown while the bus or logind is restarted, and unavailable if they stay away")
    func restarts() throws {
        let bus = try PrivateBus()
        var mock = try logind(bus)
        let monitor = try MonitorProcess(environment: environment(bus))
        try monitor.demand([.users])
        _ = try monitor.first { users($0) }
        let lost = BootClock.now()
        bus.stop()
        mock.end()
        _ = try monitor.first { isLost($0, isTemporary: true) }
        try bus.start()
        mock = try logind(bus)
        _ = try monitor.first { users($0) }
        // On a busy machine that may take longer than is waited for.
        let isQuick = BootClock.now() - lost < 10_000_000_000
        #expect(!isQuick || !monitor.received.contains { isLost($0, isTemporary: false) == true })
        mock.end()
        _ = try monitor.first { isLost($0, isTemporary: true) }
        _ = try monitor.first { isLost($0, isTemporary: false) }
    }

    @Test("Without logind from the start they are unavailable at once")
    func absence() throws {
        let bus = try PrivateBus()
        let monitor = try MonitorProcess(environment: environment(bus))
        try monitor.demand([.users])
        _ = try monitor.first { isLost($0, isTemporary: false) }
        #expect(!monitor.received.contains { isLost($0, isTemporary: true) == true })
    }
}
