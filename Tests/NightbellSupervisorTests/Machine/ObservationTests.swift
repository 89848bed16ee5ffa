import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// Observations with a monitor that the test speaks for.
@Suite(.timeLimit(.minutes(40))) struct ObservationTests {
    private static let name = "org.example.tracker"
    private static let accessory = "/dev/serial/by-id/usb-one"
    private static let device = "/org/bluez/hci0/dev_1"
    private static let characteristic = device + "/service1/char1"

    private let monitor: FakeMonitor
    private let supervisor: TestSupervisor

    init() throws {
        let monitor = try FakeMonitor()
        self.monitor = monitor
        supervisor = try TestSupervisor { $0.monitor = monitor.program }
    }

    private func client(
        _ name: String = name, modes: [WireMode] = [.location, .bluetoothCentral, .externalAccessory]
    ) throws -> WireClient {
        try WireClient(supervisor, name, modes: modes)
    }

    private func observe(
        _ client: WireClient, _ name: String, _ subject: WireObserve.OneOf_Subject
    ) throws {
        let message = WireObserve.with {
            $0.name = name
            $0.subject = subject
        }
        switch try client.ask(.observe(message)) {
        case .done: return
        case .error(let error): throw error
        case let other: throw TestFailure("\(other)")
        }
    }

    private func report(present: String? = nil, absent: [String] = []) throws {
        try monitor.report(
            .devices(
                .with {
                    $0.absent = absent
                    guard let present else { return }
                    $0.present = [
                        .with {
                            $0.name = present
                            $0.node = "/dev/ttyACM0"
                        }
                    ]
                }))
    }

    private func report(_ latitude: Double, _ longitude: Double) throws {
        try monitor.report(
            .location(
                .with {
                    $0.latitudeDegrees = latitude
                    $0.longitudeDegrees = longitude
                    $0.accuracyM = 10
                }))
    }

    private func waitFor(_ source: String) throws {
        let observer = try WireClient(supervisor)
        let isKnown = try eventually {
            try observer.status().sources.first { $0.name == source }?.isAvailable == true
        }
        guard isKnown else { throw TestFailure("\(source) does not become known") }
    }

    @Test func anAccessoryThatComesAndGoesWakes() throws {
        let client = try client()
        try observe(client, "it", .accessory(Self.accessory))
        let other = try self.client("org.example.other")
        for sleeper in [client, other] { try sleeper.goToSleep() }
        try monitor.start()
        let demand = try monitor.demand()
        #expect(demand.sources == [.devices] && demand.devices == [Self.accessory])
        try report(absent: [Self.accessory])
        try report(present: Self.accessory)
        let wake = try client.wake()
        #expect(wake.reasons == [.device] && wake.budgetMs > 0)
        #expect(wake.occurrences.map(\.name) == ["it"])
        #expect(wake.occurrences.first?.happened == .connected("/dev/ttyACM0"))
        try client.finish(wake)
        // A state that the source does not know is no occurrence.
        try monitor.report(
            .source(
                .with {
                    $0.source = .devices; $0.reason = "udev is gone"
                }))
        try report(present: Self.accessory)
        try report(absent: [Self.accessory])
        #expect(try client.wake().occurrences.first?.happened == .disconnected(.init()))
        #expect(try other.receiveIfAny(within: 0) == nil)
        let shown = try WireClient(supervisor).show(Self.name).observations
        #expect(shown.map(\.observe.name) == ["it"] && shown.first?.isTold == true)
        #expect(shown.first?.latest.happened == .disconnected(.init()))
        try supervisor.stop()
    }

    /// Though it does not read for a moment, and a client changes its mind again and again.
    @Test func theMonitorIsNotFloodedWithDemands() throws {
        let client = try client()
        let path = "/dev/" + String(repeating: "x", count: 240)
        for number in 0..<12 { try observe(client, "\(number)", .accessory(path + "\(number)")) }
        try monitor.start()
        let pid = try monitor.pid()
        for _ in 0..<150 {
            try observe(client, "it", .accessory(Self.accessory))
            guard case .done = try client.ask(.stopObserving(.with { $0.name = "it" })) else {
                throw TestFailure("it is still observed")
            }
        }
        try observe(client, "last", .accessory("/dev/last"))
        #expect(try monitor.demand { $0.devices.contains("/dev/last") }.devices.count == 13)
        #expect(try monitor.pid() == pid)
        try report(absent: ["/dev/last"])
        try waitFor("devices")
        try supervisor.stop()
    }

    /// Its state is unknown until it is reported again.
    @Test func aDeviceNotObservedForAMomentIsAskedForAgain() throws {
        let client = try client()
        try observe(client, "other", .accessory("/dev/other"))
        try observe(client, "it", .accessory(Self.accessory))
        try monitor.start()
        let first = try monitor.demand { $0.devices.count == 2 }
        try report(absent: [Self.accessory, "/dev/other"])
        try waitFor("devices")
        _ = try client.ask(.stopObserving(.with { $0.name = "it" }))
        try monitor.demand { $0.devices == ["/dev/other"] }
        try observe(client, "it", .accessory(Self.accessory))
        let second = try monitor.demand { $0.devices == first.devices }
        #expect(second.number > first.number)
        try supervisor.stop()
    }

    @Test func theMonitorIsAskedForTheUnionOfAllWishes() throws {
        let clients = try [client("org.example.one"), client("org.example.two")]
        try observe(clients[0], "far", .location(.with { $0.service = .significantChange }))
        try monitor.start()
        let first = try monitor.demand()
        #expect(first.sources == [.location] && first.location.accuracy == 5)
        try observe(
            clients[1], "near",
            .location(
                .with {
                    $0.service = .foreground
                    $0.distanceM = 20
                }))
        let second = try monitor.demand()
        #expect(second.location.accuracy == 8 && second.location.distanceM == 20)
        try observe(clients[1], "char", .characteristic(Self.characteristic))
        try observe(clients[0], "dev", .bluetoothDevice(Self.device))
        let third = try monitor.demand { !$0.bluetoothDevices.isEmpty }
        #expect(third.characteristics == [Self.characteristic] && third.bluetoothDevices == [Self.device])
        // In the background it does not want it.
        try clients[1].enterBackground()
        #expect(try monitor.demand { $0.location.accuracy == 5 }.sources == [.location, .bluetooth])
        _ = try clients[1].ask(.stopObserving(.with { $0.name = "char" }))
        #expect(try monitor.demand().characteristics.isEmpty)
        // Nothing is asked for no client, at once.
        for client in clients {
            for name in ["far", "near", "dev"] {
                _ = try client.ask(.stopObserving(.with { $0.name = name }))
            }
        }
        try monitor.demand { $0.sources.isEmpty }
        try observe(clients[0], "dev", .bluetoothDevice(Self.device))
        #expect(try monitor.demand().bluetoothDevices == [Self.device])
        try supervisor.stop()
    }

    @Test func bluetoothWakes() throws {
        let client = try client()
        try observe(client, "dev", .bluetoothDevice(Self.device))
        try observe(client, "char", .characteristic(Self.characteristic))
        try client.goToSleep()
        try monitor.start()
        try monitor.demand()
        try monitor.report(.bluetooth(.with { $0.disconnected = [Self.device] }))
        try monitor.report(.bluetooth(.with { $0.connected = [Self.device] }))
        let connected = try client.wake()
        #expect(connected.reasons == [.bluetooth])
        #expect(connected.occurrences.map(\.happened) == [.connected("")])
        try client.finish(connected)
        try client.ready(try client.prepare())
        try monitor.report(
            .value(
                .with {
                    $0.path = Self.characteristic
                    $0.value = Data([7, 8])
                }))
        let value = try client.wake()
        #expect(value.occurrences.map(\.name) == ["char"])
        #expect(value.occurrences.first?.happened == .value(Data([7, 8])))
        try supervisor.stop()
    }

    @Test func regionsAndMovementsWake() throws {
        let client = try client()
        try observe(
            client, "home",
            .region(
                .with {
                    $0.latitudeDegrees = 52
                    $0.longitudeDegrees = 13
                    $0.radiusM = 500
                }))
        try observe(client, "far", .location(.with { $0.service = .significantChange }))
        try client.goToSleep()
        try monitor.start()
        try monitor.demand()
        try report(52, 13)
        let first = try client.wake()
        #expect(first.reasons == [.location] && first.occurrences.map(\.name) == ["far"])
        try client.finish(first)
        try client.ready(try client.prepare())
        try report(52.1, 13)
        // The movement has to wait for five minutes.
        let second = try client.wake()
        #expect(second.occurrences.map(\.happened) == [.exited(.init())])
        try supervisor.stop()
    }

    /// A monitor that died is replaced, and what has happened meanwhile is found.
    @Test func nothingIsLostWithTheMonitor() throws {
        let client = try client()
        try observe(client, "it", .accessory(Self.accessory))
        try client.goToSleep()
        try monitor.start()
        try monitor.demand()
        try report(present: Self.accessory)
        try waitFor("devices")
        kill(try monitor.pid(), SIGKILL)
        try monitor.start()
        try monitor.demand()
        try report(present: Self.accessory)
        try waitFor("devices")
        #expect(try client.receiveIfAny(within: 0) == nil)
        kill(try monitor.pid(), SIGKILL)
        try monitor.start()
        try monitor.demand()
        try report(absent: [Self.accessory])
        #expect(try client.wake().occurrences.map(\.happened) == [.disconnected(.init())])
        try supervisor.stop()
    }

    @Test func refusedObservations() throws {
        func code(_ client: WireClient, _ name: String, _ subject: WireObserve.OneOf_Subject)
            -> WireErrorCode?
        {
            do {
                try observe(client, name, subject)
                return nil
            } catch let error as WireError {
                return error.code
            } catch {
                return .unspecified
            }
        }
        let client = try client()
        let voip = try self.client("org.example.phone", modes: [.voip])
        #expect(code(voip, "it", .accessory(Self.accessory)) == .modeRequired)
        #expect(code(voip, "it", .region(.with { $0.radiusM = 100 })) == .modeRequired)
        for subject in [
            .accessory("/etc/passwd"), .accessory("/dev/" + String(repeating: "x", count: 251)),
            .accessory("/dev/"), .accessory("/dev/../etc/passwd"), .accessory("/dev/./one"),
            .accessory("/dev/serial/"), .accessory("/dev/shm/one"), .accessory("/dev/fd/0"),
            .accessory("/dev/stdin"), .accessory("/dev/mqueue/one"),
            .bluetoothDevice("hci0"), .bluetoothDevice("/"), .bluetoothDevice("/a b"),
            .characteristic("/a//b"),
            .characteristic("/a/b/"), .characteristic("/a/ä"), .region(.with { $0.radiusM = 9 }),
            .location(.init()),
            .region(
                .with {
                    $0.radiusM = 100; $0.latitudeDegrees = .nan
                }),
            .location(
                .with {
                    $0.service = .continuous; $0.accuracy = 9
                }),
        ] as [WireObserve.OneOf_Subject] {
            #expect(code(client, "it", subject) == .invalidArgument, "\(subject)")
        }
        for name in ["", String(repeating: "x", count: 65)] {
            #expect(code(client, name, .accessory(Self.accessory)) == .invalidArgument)
        }
        for number in 0..<16 { #expect(code(client, "it.\(number)", .accessory("/dev/it\(number)")) == nil) }
        #expect(code(client, "more", .accessory("/dev/more")) == .tooManyObservations)
        try supervisor.stop()
    }

    @Test func occurrencesCanBeSimulated() throws {
        let client = try client()
        try observe(client, "it", .characteristic(Self.characteristic))
        try client.goToSleep()
        func simulate(_ occurrence: WireOccurrence) throws -> WireSupervisorMessage.OneOf_Body {
            let message = WireSimulate.with {
                $0.identifier = Self.name
                $0.occurrence = occurrence
            }
            return try WireClient(supervisor).ask(.simulate(message))
        }
        let watcher = try WireClient(supervisor)
        _ = try watcher.ask(.watch(WireWatch()))
        var occurrence = WireOccurrence()
        occurrence.name = "it"
        occurrence.value = Data([1])
        #expect(try simulate(occurrence) == .done(WireDone()))
        let wake = try client.wake()
        #expect(wake.reasons == [.bluetooth] && wake.occurrences.map(\.isSimulated) == [true])
        #expect(try watcher.event { $0.kind == "observed" }.detail == "it: a value of 1 bytes, simulated")
        occurrence.entered = .init()
        guard case .error(let error) = try simulate(occurrence) else { throw TestFailure("not refused") }
        #expect(error.code == .noSuchObservation)
        guard case .error(let error) = try simulate(WireOccurrence()) else {
            throw TestFailure("not refused")
        }
        #expect(error.code == .noSuchObservation || error.code == .invalidArgument)
        try supervisor.stop()
    }
}
