import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// A dormant client is launched for what it observes, whichever worker is there; and after a quit for its
/// location alone.
@Suite(.serialized, .timeLimit(.minutes(40))) struct DormantObserverTests {
    private static let name = "org.example.tracker"
    private static let accessory = "/dev/serial/by-id/usb-one"
    private static let modes = "location external-accessory"

    private func present(_ monitor: FakeMonitor, _ isPresent: Bool) throws {
        try monitor.report(
            .devices(
                .with {
                    if !isPresent { return $0.absent = [Self.accessory] }
                    $0.present = [
                        .with {
                            $0.name = Self.accessory
                            $0.node = "/dev/ttyACM0"
                        }
                    ]
                }))
    }

    private func position(_ monitor: FakeMonitor, _ latitude: Double) throws {
        try monitor.report(
            .location(
                .with {
                    $0.latitudeDegrees = latitude; $0.accuracyM = 5
                }))
    }

    private func daemon(_ monitor: FakeMonitor) throws -> DaemonProcess {
        try DaemonProcess(
            suspension: "none",
            "--set monitorProgram='\(monitor.program.path)' --set launches.retry=10ms"
                + " --set launches.retryMaximum=10ms")
    }

    private func reaches(_ state: WireClientState, _ daemon: DaemonProcess) throws {
        let isReached = try eventually {
            try WireClient(path: daemon.socketPath).show(Self.name).state == state
        }
        guard isReached else { throw TestFailure("it does not become \(state)") }
    }

    private func waitFor(_ source: String, _ daemon: DaemonProcess) throws {
        let isKnown = try eventually {
            try WireClient(path: daemon.socketPath).status().sources.first { $0.name == source }?.isAvailable
                == true
        }
        guard isKnown else { throw TestFailure("\(source) does not become known") }
    }

    @Test func itIsLaunchedByAnyWorker() throws {
        let monitor = try FakeMonitor()
        let daemon = try daemon(monitor)
        let client = try TestClient(Self.name, socketPath: daemon.socketPath)
        let first = try client.start(Self.modes)
        try first.command("observe radio accessory \(Self.accessory)")
        try monitor.start()
        try monitor.demand()
        try present(monitor, true)
        try waitFor("devices", daemon)
        kill(first.pid, SIGKILL)
        try reaches(.dormant, daemon)
        try daemon.killWorker()
        try monitor.start()
        #expect(try monitor.demand().devices == [Self.accessory])
        try present(monitor, true)
        try waitFor("devices", daemon)
        #expect(client.staysAway(milliseconds: 50))
        try present(monitor, false)
        let second = try client.returns(Self.modes)
        #expect(try second.event("observed") == "observed radio disconnected")
        try second.say("exit 0")
    }

    @Test func afterAQuitTheLocationAloneLaunchesIt() throws {
        let monitor = try FakeMonitor()
        let daemon = try daemon(monitor)
        let client = try TestClient(Self.name, socketPath: daemon.socketPath)
        let first = try client.start(Self.modes)
        try first.command("observe radio accessory \(Self.accessory)")
        try first.command("observe far significant")
        try monitor.start()
        try monitor.demand { $0.sources == [.location, .devices] }
        try present(monitor, true)
        try position(monitor, 10)
        #expect(try first.event("observed") == "observed far moved 10.0 0.0")
        let quit = WireQuitClient.with { $0.identifier = Self.name }
        guard case .done = try WireClient(path: daemon.socketPath).ask(.quitClient(quit)) else {
            throw TestFailure("not quit")
        }
        try first.say("exit 0")
        try reaches(.dormant, daemon)
        try monitor.demand { $0.sources == [.location] }
        // Also for the next worker.
        try daemon.killWorker()
        #expect(
            try WireClient(path: daemon.socketPath).show(Self.name).stateDetail
                == "quit; only its location launches it")
        try monitor.start()
        #expect(try monitor.demand().sources == [.location])
        try position(monitor, 10)
        try waitFor("location", daemon)
        #expect(client.staysAway(milliseconds: 50))
        let moved = WireSimulate.with {
            $0.identifier = Self.name
            $0.occurrence = .with {
                $0.name = "far"
                $0.moved = .with { $0.latitudeDegrees = 11 }
            }
        }
        #expect(try WireClient(path: daemon.socketPath).ask(.simulate(moved)) == .done(WireDone()))
        let second = try client.returns(Self.modes)
        #expect(try second.event("observed") == "observed far moved 11.0 0.0 simulated")
        try second.say("exit 0")
    }

    /// The worker dies at each step of an occurrence: the client is told of it, and once.
    @Test func deathAtEveryStep() throws {
        var step = 1
        var deaths = 0
        while try live(dyingAt: step) || step == 1 {
            deaths += 1
            step += 1
        }
        #expect(deaths > 15, "only \(deaths) steps")
    }

    private func live(dyingAt step: Int) throws -> Bool {
        let monitor = try FakeMonitor()
        let daemon = try DaemonProcess(
            suspension: "cgroup", before: "export NIGHTBELL_FAULT=\(step)",
            "--set monitorProgram='\(monitor.program.path)'")
        let client = try ScriptedClientProcess(path: daemon.socketPath, Self.name, Self.modes)
        try client.command("observe radio accessory \(Self.accessory)")
        try client.enterBackground()
        var isPresent = true
        var restarts: UInt64 = 0
        /// Speaks for whichever monitor there is, until `body` holds.
        func until(_ body: () throws -> Bool) throws {
            let isReached = try eventually(within: 60_000) {
                if monitor.isStarted(within: 0) { try monitor.start() }
                try? present(monitor, isPresent)
                do {
                    return try body()
                } catch is WireClient.EndOfConnection {
                    return false
                } catch let error as SystemError where error.code == EPIPE || error.code == ECONNRESET {
                    return false
                }
            }
            guard isReached else { throw TestFailure("step \(step): it takes too long") }
        }
        func status() throws -> WireSupervisorStatus { try WireClient(path: daemon.socketPath).status() }
        func isAsleep() throws -> Bool {
            try WireClient(path: daemon.socketPath).show(Self.name).state == .suspended
        }
        try until { try isAsleep() && status().sources.first?.isAvailable == true }
        isPresent = false
        try until {
            try WireClient(path: daemon.socketPath).show(Self.name).observations.first?.hasLatest == true
        }
        #expect(try client.event("observed") == "observed radio disconnected", "step \(step)")
        try until(isAsleep)
        #expect(client.heard("observed").isEmpty, "step \(step)")
        try until {
            restarts = try status().restarts
            return true
        }
        return restarts > 0
    }
}
