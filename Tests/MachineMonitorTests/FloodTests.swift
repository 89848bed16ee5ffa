import EdgeTestSupport
import Glibc
import LinuxSystem
import NightbellWire
import Testing

/// Signals to the monitor's own name on the system's bus, which no rule keeps away.
@Suite("A flood", .serialized, .disabled(if: isSanitized, "a sanitizer changes the costs")) struct FloodTests
{
    private static let name = "org.freedesktop.UPower"

    private func isOverloaded(_ fact: MonitorProcess.Fact, _ source: WireMonitorSource) -> Bool {
        if case .source(let state) = fact { state.source == source && state.isTemporary } else { false }
    }

    private func isOnBattery(_ fact: MonitorProcess.Fact, _ answer: WireMonitorAnswer) -> Bool {
        if case .power(let power) = fact { power.onBattery == answer } else { false }
    }

    private static let sources: [WireMonitorSource] = [.power, .users, .sleep]

    /// A monitor that knows its facts, and the services that tell of them.
    private func monitor() throws -> (MonitorProcess, PrivateBus, power: MockService, logind: MockService) {
        let bus = try PrivateBus()
        let power = try MockService(
            bus, template: "upower", name: Self.name, path: "/org/freedesktop/UPower")
        let logind = try MockService(
            bus, template: "logind", name: "org.freedesktop.login1", path: "/org/freedesktop/login1")
        let monitor = try MonitorProcess(environment: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        try monitor.demand(Self.sources) { $0.delaysSleep = true }
        _ = try monitor.first { isOnBattery($0, .no) ? true : nil }
        while try monitor.next(within: 1_000) != nil {}
        return (monitor, bus, power, logind)
    }

    private func seconds(since instant: Int64) -> Double { Double(BootClock.now() - instant) / 1_000_000_000 }

    /// The latest word on each source, once all is quiet: it is available, and sleep is delayed.
    private func allIsKnown(_ monitor: MonitorProcess) throws {
        while try monitor.next(within: 2_000) != nil {}
        let states: [WireMonitorReport.SourceState] = monitor.received.compactMap {
            if case .source(let state) = $0 { state } else { nil }
        }
        for source in Self.sources {
            #expect(states.last { $0.source == source }?.isAvailable == true, "\(source)")
        }
        let sleep = monitor.received.last { if case .sleep = $0 { true } else { false } }
        guard case .sleep(let sleep)? = sleep else { throw SupportError(text: "sleep is not known") }
        #expect(sleep.isDelayed)
    }

    @Test("Facts behind more messages than it may handle are unknown, and known again without those")
    func backlog() throws {
        let (monitor, bus, power, logind) = try monitor()
        let target = try #require(try bus.uniqueName(of: monitor.pid))
        let memory = try writtenMemory(of: monitor.pid)
        kill(monitor.pid, SIGSTOP)
        // Several seconds of its share, however slow this machine is now.
        var sent = 0
        while sent < 80_000 { sent += try HostilePeer(bus, .direct, target: target, seconds: 4).finish() }
        try power.update(Self.name, "{'OnBattery': <true>}")
        let start = BootClock.now()
        kill(monitor.pid, SIGCONT)
        for source in Self.sources { _ = try monitor.first { isOverloaded($0, source) ? true : nil } }
        #expect(monitor.received.allSatisfy { !isOnBattery($0, .yes) })
        _ = try monitor.first { isOnBattery($0, .yes) ? true : nil }
        print("\(sent) messages were left behind in \(seconds(since: start)) s")
        try allIsKnown(monitor)
        #expect(monitor.received.count { isOverloaded($0, .power) } == 1)
        let isBounded = try eventually { try writtenMemory(of: monitor.pid) < memory + 1_048_576 }
        #expect(isBounded, "the memory of messages is kept")
        logind.end()
        power.end()
    }

    @Test(
        "After a flood a change is reported soon, also if the flood follows the monitor from name to name",
        arguments: [HostilePeer.Attack.direct, .forgery, .chase])
    func flood(attack: HostilePeer.Attack) throws {
        let (monitor, bus, power, logind) = try monitor()
        let target = try #require(try bus.uniqueName(of: monitor.pid))
        let time = try processorTime(of: monitor.pid)
        let start = BootClock.now()
        let peers = try (0..<2).map { _ in try HostilePeer(bus, attack, target: target, seconds: 6) }
        let sent = try peers.map { try $0.finish() }.reduce(0, +)
        let lasted = seconds(since: start)
        let end = BootClock.now()
        let share = (try processorTime(of: monitor.pid) - time) / lasted
        // A tenth is meant; what the kernel does for it comes on top, and more on a busy machine.
        #expect(share < 0.3, "\(attack) took \(share) of the time")
        try power.update(Self.name, "{'OnBattery': <true>}")
        _ = try monitor.first(within: 60_000) { isOnBattery($0, .yes) ? true : nil }
        let delay = seconds(since: end)
        #expect(delay < 3.5, "\(attack)")
        try allIsKnown(monitor)
        let overloads = monitor.received.count { isOverloaded($0, .power) }
        print(
            "\(attack): \(sent) messages in \(lasted) s, \(overloads) connections given up, \(share) of the time;",
            "a change was reported after \(delay) s")
        logind.end()
        power.end()
    }
}
