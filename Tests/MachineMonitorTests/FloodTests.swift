import EdgeTestSupport
import Glibc
import LinuxSystem
import NightbellWire
import Testing

/// Signals to the monitor's own name on the system's bus, which no rule keeps away, faster than it may handle them.
@Suite("A flood", .serialized, .disabled(if: isSanitized, "a sanitizer changes the costs")) struct FloodTests
{
    private static let name = "org.freedesktop.UPower"

    private func isOverloaded(_ fact: MonitorProcess.Fact, _ source: WireMonitorSource) -> Bool {
        if case .source(let state) = fact { state.source == source && state.isOverloaded } else { false }
    }

    private func isOnBattery(_ fact: MonitorProcess.Fact, _ answer: WireMonitorAnswer) -> Bool {
        if case .power(let power) = fact { power.onBattery == answer } else { false }
    }

    @Test(
        "Facts are unknown at worst while a flood lasts, and true again soon after its end",
        arguments: [HostilePeer.Attack.forgery, .chase])
    func flood(attack: HostilePeer.Attack) throws {
        let bus = try PrivateBus()
        let power = try MockService(
            bus, template: "upower", name: Self.name, path: "/org/freedesktop/UPower")
        let logind = try MockService(
            bus, template: "logind", name: "org.freedesktop.login1", path: "/org/freedesktop/login1")
        let monitor = try MonitorProcess(environment: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        try monitor.demand([.power, .users, .sleep]) { $0.delaysSleep = true }
        _ = try monitor.first { isOnBattery($0, .no) ? true : nil }
        while try monitor.next(within: 1_000) != nil {}
        let target = try #require(try bus.uniqueName(of: monitor.pid))
        let memory = try writtenMemory(of: monitor.pid)
        let time = try processorTime(of: monitor.pid)
        let start = BootClock.now()
        func seconds(since instant: Int64) -> Double { Double(BootClock.now() - instant) / 1_000_000_000 }

        let peers = try (0..<2).map { _ in try HostilePeer(bus, attack, target: target, seconds: 6) }
        for source in [WireMonitorSource.power, .users, .sleep] {
            _ = try monitor.first { isOverloaded($0, source) ? true : nil }
        }
        _ = try monitor.first { isOnBattery($0, .no) ? true : nil }
        let known = seconds(since: start)
        let sent = try peers.map { try $0.finish() }.reduce(0, +)
        let lasted = seconds(since: start)
        let end = BootClock.now()
        let share = (try processorTime(of: monitor.pid) - time) / lasted
        #expect(known < lasted, "while it lasted, nothing was known again")
        // A tenth is meant; what the kernel does for it comes on top, and more on a busy machine.
        #expect(share < 0.3, "\(attack) took \(share) of the time")

        try power.update(Self.name, "{'OnBattery': <true>}")
        _ = try monitor.first(within: 60_000) { isOnBattery($0, .yes) ? true : nil }
        let delay = seconds(since: end)
        print("\(attack): \(sent) messages in \(lasted) s; a change after that was reported in \(delay) s")
        #expect(delay < 3)
        // The latest word on each subject, once all is quiet.
        while try monitor.next(within: 2_000) != nil {}
        let lastSleep = monitor.received.last { if case .sleep = $0 { true } else { false } }
        guard case .sleep(let sleep) = lastSleep else { throw SupportError(text: "sleep is not known") }
        #expect(sleep.isDelayed)
        let states: [WireMonitorReport.SourceState] = monitor.received.compactMap {
            if case .source(let state) = $0 { state } else { nil }
        }
        for source in [WireMonitorSource.power, .users, .sleep] {
            #expect(states.last { $0.source == source }?.isAvailable == true)
        }
        if attack == .forgery { #expect(states.count { $0.source == .power && $0.isOverloaded } == 1) }
        let isBounded = try eventually { try writtenMemory(of: monitor.pid) < memory + 1_048_576 }
        #expect(isBounded, "the memory of messages is kept")
        logind.end()
        power.end()
    }
}
