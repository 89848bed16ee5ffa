import EdgeTestSupport
import Foundation
import Launching
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// A supervisor and its monitor, which the test speaks for.
@Suite(.timeLimit(.minutes(40))) struct MonitorTests {
    private let monitor: FakeMonitor
    private let supervisor: TestSupervisor

    init() throws {
        let monitor = try FakeMonitor()
        self.monitor = monitor
        supervisor = try TestSupervisor { $0.monitor = monitor.program }
    }

    /// A client that sleeps and wants to be told of other networks, and a first network that is known.
    private func sleeper(_ name: String = "org.example.phone") throws -> WireClient {
        let client = try WireClient(supervisor)
        try client.hello(name, wantsNetworkChanges: true)
        try client.goToSleep()
        try monitor.start()
        #expect(try monitor.demand().sources == [.network])
        try monitor.report(network: [192, 0, 2, 1])
        try waitForNetwork()
        return client
    }

    private func waitForNetwork() throws {
        let observer = try WireClient(supervisor)
        let isKnown = try eventually {
            try observer.status().sources.first { $0.name == "network" }?.isAvailable == true
        }
        guard isKnown else { throw TestFailure("the network does not become known") }
    }

    @Test func itRunsOnlyWhileItIsNeeded() throws {
        let client = try WireClient(supervisor, "org.example.phone")
        // The turn in which a client is shown is over: nothing was started in it.
        #expect(try client.status().monitorProcessID == 0 && client.status().sources.isEmpty)
        #expect(!monitor.isStarted(within: 0))
        let asking = try WireClient(supervisor)
        try asking.hello("org.example.asking", wantsNetworkChanges: true)
        try monitor.start()
        #expect(try UInt32(monitor.pid()) == client.status().monitorProcessID)
        #expect(try client.show("org.example.asking").wantsNetworkChanges)
        try supervisor.stop()
        try monitor.waitForEnd()
    }

    @Test func anotherNetworkWakesThoseThatAsk() throws {
        let other = try WireClient(supervisor, "org.example.other")
        let client = try sleeper()
        try monitor.report(network: [192, 0, 2, 1])
        try monitor.report(network: [192, 0, 2, 7])
        #expect(try client.wake().reasons == [.networkChanged])
        try monitor.report(network: [192, 0, 2, 7], generation: 2)
        // Both have been heard of by then.
        _ = try other.status()
        #expect(try client.receiveIfAny(within: 0) == nil && other.receiveIfAny(within: 0) == nil)
        try supervisor.stop()
    }

    /// A watcher is told of a source that is lost, and of a monitor that is.
    @Test func lostSourcesAreWatched() throws {
        let watcher = try WireClient(supervisor)
        guard case .done = try watcher.ask(.watch(WireWatch())) else { throw TestFailure("cannot watch") }
        let client = try sleeper()
        try watcher.machine("network up")
        try monitor.report(
            .source(
                .with {
                    $0.source = .network
                    $0.reason = "rtnetlink has overflowed"
                }))
        try watcher.machine("network not known any more: rtnetlink has overflowed")
        kill(try monitor.pid(), SIGKILL)
        try watcher.machine("nothing is known from the monitor of the machine: ")
        // As long as it lives the network is needed.
        withExtendedLifetime(client) {}
        try supervisor.stop()
    }

    /// Its facts are unknown until another one reports them, and nothing follows from that.
    @Test func aMonitorThatDiesIsReplaced() throws {
        let client = try sleeper()
        for number in UInt8(1)...3 {
            kill(try monitor.pid(), SIGKILL)
            try monitor.start()
            try monitor.demand()
            try monitor.report(network: [192, 0, 2, number])
            try waitForNetwork()
            guard number > 1 else { continue }
            let wake = try client.wake()
            #expect(wake.reasons == [.networkChanged])
            try client.finish(wake)
        }
        #expect(try client.receiveIfAny(within: 0) == nil)
        try supervisor.stop()
    }

    @Test func nonsenseAndFloodsEndIt() throws {
        let client = try sleeper()
        try monitor.send([0xFF, 0xFF, 0xFF])
        try monitor.waitForEnd()
        try monitor.start()
        try monitor.demand()
        // A longer value than any characteristic has.
        try monitor.report(.value(.with { $0.value = Array(repeating: 0, count: 513).asField }))
        try monitor.waitForEnd()
        try monitor.start()
        try monitor.demand()
        // It may end before all of it is sent.
        for generation in UInt64(0)..<5_000 {
            do { try monitor.report(network: [192, 0, 2, 1], generation: generation) } catch { break }
        }
        try monitor.waitForEnd()
        try monitor.start()
        #expect(try client.show("org.example.phone").identifier == "org.example.phone")
        try supervisor.stop()
    }

    /// Nothing that was asked of it is read: it hangs.
    @Test func aMonitorThatHangsIsReplaced() throws {
        let client = try sleeper()
        let pid = try monitor.pid()
        kill(pid, SIGSTOP)
        // Another need makes another demand.
        let keeping = try WireClient(supervisor, "org.example.keeping")
        _ = try keeping.ask(.setKeepAliveTimeout(.with { $0.timeoutMs = 600_000 }))
        try keeping.goToSleep()
        try monitor.waitForEnd()
        try monitor.start()
        #expect(try monitor.pid() != pid)
        #expect(try monitor.demand().sources == [.network, .sleep])
        for client in [client, keeping] {
            #expect(try client.status().clientsByState.values.reduce(0, +) == 2)
        }
        try supervisor.stop()
    }

    /// Nothing is asked of it, but what it has said last holds something up.
    @Test func aMonitorThatHangsSilentlyIsReplaced() throws {
        let monitor = try FakeMonitor()
        let supervisor = try TestSupervisor {
            $0.monitor = monitor.program
            $0.monitorSilence = .milliseconds(300)
        }
        let client = try WireClient(supervisor)
        try client.hello("org.example.phone", wantsNetworkChanges: true)
        try client.goToSleep()
        try monitor.start()
        let first = try monitor.demand()
        try monitor.report(.network(.with { $0.defaultRoutes = "none" }))
        // It answers, and is asked again.
        for _ in 0..<2 {
            #expect(try monitor.demand() == first)
            try monitor.report(
                .source(
                    .with {
                        $0.source = .network; $0.isAvailable = true
                    }))
        }
        let pid = try monitor.pid()
        kill(pid, SIGSTOP)
        // A demand that it has read just before has to be followed by another one.
        #expect(monitor.isStarted(within: 20_000))
        try monitor.start()
        #expect(try monitor.pid() != pid)
        try monitor.demand()
        try monitor.report(network: [192, 0, 2, 1])
        // Now nothing is held up: it is left alone until there is another reason to run.
        while try monitor.nextDemand(within: 1_000) != nil {}
        _ = try client.status()
        try monitor.demand()
        try supervisor.stop()
    }

    @Test func theLargestDemandFits() throws {
        func names(_ prefix: String) -> [String] {
            (0..<Supervision.mostPaths).map { number in
                let end = "\(number)"
                let rest = Subject.longestPath - prefix.utf8.count - end.utf8.count
                return prefix + String(repeating: "x", count: rest) + end
            }
        }
        var observed = ObservationDemand()
        observed.accessories = names("/dev/")
        observed.bluetoothDevices = names("/org/")
        observed.characteristics = names("/com/")
        var demand = WireMonitorDemand(observed)
        demand.sources = [.network, .power, .sleep, .users, .location, .bluetooth, .devices]
        demand.delaysSleep = true
        demand.location = .with {
            $0.accuracy = .max
            $0.distanceM = .max
            $0.intervalMs = .max
        }
        demand.number = .max
        #expect(try (demand.serializedBytes() as [UInt8]).count <= MonitorPacket.maximumBytes)
        var report = WireMonitorReport()
        report.devices.present = names("/dev/").map { name in
            .with {
                $0.name = name; $0.node = String(repeating: "x", count: Occurrence.longestNode)
            }
        }
        #expect(try (report.serializedBytes() as [UInt8]).count <= MonitorPacket.maximumBytes)
    }

    @Test func keepAlivesRunBeforeTheMachineSleeps() throws {
        let client = try WireClient(supervisor, "org.example.phone")
        _ = try client.ask(.setKeepAliveTimeout(.with { $0.timeoutMs = 200_000 }))
        try client.goToSleep()
        try monitor.start()
        let demand = try monitor.demand()
        #expect(demand.sources == [.sleep] && demand.delaysSleep)
        try monitor.report(
            .sleep(
                .with {
                    $0.isImminent = true; $0.isDelayed = true
                }))
        let wake = try client.wake()
        #expect(wake.reasons == [.keepAlive])
        try client.finish(wake)
        try client.ready(try client.prepare())
        // The delay is given up once it sleeps again.
        #expect(try !monitor.demand { !$0.delaysSleep }.delaysSleep)
        try monitor.report(.sleep(.with { $0.isImminent = false }))
        try monitor.demand { $0.delaysSleep }
        try supervisor.stop()
    }

    @Test func aLostSourceIsExplained() throws {
        let client = try sleeper()
        try monitor.report(
            .source(
                .with {
                    $0.source = .network; $0.reason = "netlink is broken"
                }))
        let isSaid = try eventually { try client.status().sources.map(\.reason) == ["netlink is broken"] }
        #expect(isSaid)
        try supervisor.stop()
    }

    @Test func withoutMonitorTheReasonIsSaid() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor)
        try client.hello("org.example.phone", wantsNetworkChanges: true)
        let status = try client.status()
        #expect(status.sources.map(\.name) == ["network"] && status.sources.allSatisfy { !$0.isAvailable })
        #expect(status.sources.first?.reason.contains("not observed") == true)
        try supervisor.stop()
    }

    @Test func eventsCanBeSimulated() throws {
        let client = try sleeper()
        func simulate(_ event: WireSimulatedEvent) throws -> WireSupervisorMessage.OneOf_Body {
            let message = WireSimulate.with {
                $0.identifier = "org.example.phone"
                $0.event = event
            }
            return try WireClient(supervisor).ask(.simulate(message))
        }
        #expect(try simulate(.networkChange) == .done(WireDone()))
        #expect(try client.wake().reasons == [.networkChanged])
        guard case .error(let error) = try simulate(.unlock) else { throw TestFailure("not refused") }
        #expect(error.code == .illegalState)
        guard case .error(let error) = try simulate(.unspecified) else { throw TestFailure("not refused") }
        #expect(error.code == .invalidArgument)
        try supervisor.stop()
    }
}

/// Clients that are launched only once their user's home is there.
@Suite(.timeLimit(.minutes(40))) struct FirstUnlockTests {
    private static let name = "org.example.phone"

    private func supervisor(_ monitor: HelperProgram?) throws -> TestSupervisor {
        var registration = Registration(
            identifier: try #require(ClientIdentifier(Self.name)), user: geteuid(), modes: .voip)
        registration.isLaunchable = true
        registration.waitsForUnlock = true
        let launch = LaunchSpecification(arguments: ["/bin/sleep", "60"])
        return try TestSupervisor {
            $0.monitor = monitor
            $0.declarations = [
                Declaration(registration, launch: launch, identity: nil, startsWithSupervisor: true)
            ]
        }
    }

    private func isLaunched(_ supervisor: TestSupervisor) throws -> Bool {
        let info = try WireClient(supervisor).show(Self.name)
        if info.processID != 0 { supervisor.launched.note(pid_t(info.processID)) }
        return info.counters.counts["launches"] ?? 0 > 0
    }

    @Test func itIsLaunchedWhenItsHomeIsThere() throws {
        let monitor = try FakeMonitor()
        let supervisor = try supervisor(monitor.program)
        try monitor.start()
        #expect(try monitor.demand().sources == [.users])
        try monitor.report(unlocked: [geteuid() + 1])
        let observer = try WireClient(supervisor)
        #expect(try eventually { try observer.status().sources.allSatisfy(\.isAvailable) })
        #expect(try !isLaunched(supervisor))
        #expect(try observer.show(Self.name).stateDetail.contains("once its user is unlocked"))
        try monitor.report(unlocked: [geteuid()])
        #expect(try eventually { try isLaunched(supervisor) })
        try supervisor.stop()
    }

    @Test func whereNothingCanTellItIsLaunchedAtOnce() throws {
        let supervisor = try supervisor(nil)
        #expect(try eventually { try isLaunched(supervisor) })
        try supervisor.stop()
    }

    /// One that ends by itself may be made to: then it is not known whether the home is there, and another
    /// one may tell.
    @Test func aMonitorThatEndsAgainAndAgainLaunchesNothing() throws {
        let monitor = try FakeMonitor()
        let supervisor = try supervisor(monitor.program)
        for _ in 0..<5 {
            try monitor.start()
            try monitor.demand()
            monitor.end()
        }
        try monitor.start()
        #expect(try !isLaunched(supervisor))
        try monitor.report(unlocked: [geteuid()])
        #expect(try eventually { try isLaunched(supervisor) })
        try supervisor.stop()
    }

    /// A monitor with too many messages to read does not know for a moment, which is no reason to launch
    /// anything.
    @Test func anOverloadedSourceLaunchesNothing() throws {
        let monitor = try FakeMonitor()
        let supervisor = try supervisor(monitor.program)
        try monitor.start()
        try monitor.demand()
        for _ in 0..<2 {
            try monitor.report(
                .source(
                    .with {
                        $0.source = .users; $0.isTemporary = true; $0.reason = "too many messages"
                    }))
            let observer = try WireClient(supervisor)
            #expect(try eventually { try observer.status().sources.map(\.reason) == ["too many messages"] })
            #expect(try !isLaunched(supervisor))
            try monitor.report(unlocked: [geteuid() + 1])
            #expect(try eventually { try observer.status().sources.allSatisfy(\.isAvailable) })
        }
        try monitor.report(unlocked: [geteuid()])
        #expect(try eventually { try isLaunched(supervisor) })
        try supervisor.stop()
    }

    /// It is known to be gone for longer than a restart takes, for the same reason.
    @Test func aSourceThatStaysAwayHoldsNothingUp() throws {
        let monitor = try FakeMonitor()
        let supervisor = try supervisor(monitor.program)
        try monitor.start()
        try monitor.demand()
        func lose(isTemporary: Bool) throws {
            try monitor.report(
                .source(
                    .with {
                        $0.source = .users; $0.isTemporary = isTemporary; $0.reason = "logind is not running"
                    }))
        }
        try monitor.report(unlocked: [geteuid() + 1])
        try lose(isTemporary: true)
        let observer = try WireClient(supervisor)
        #expect(try eventually { try observer.status().sources.map(\.reason) == ["logind is not running"] })
        #expect(try !isLaunched(supervisor))
        try lose(isTemporary: false)
        #expect(try eventually { try isLaunched(supervisor) })
        try supervisor.stop()
    }

    /// A program that cannot run is tried a few times; then the users count as unknowable.
    @Test func aMonitorThatCannotRunHoldsNothingUp() throws {
        let supervisor = try supervisor(HelperProgram(path: "/nonexistent/nightbell-monitor"))
        #expect(try eventually(within: 20_000) { try isLaunched(supervisor) })
        try supervisor.stop()
    }
}
