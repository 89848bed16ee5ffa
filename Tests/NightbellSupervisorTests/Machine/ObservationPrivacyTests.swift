import CTestSupport
import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// Where the machine is and which devices it has is for the clients that observe it, their user and
/// administrators.
@Suite(
    .enabled(if: geteuid() == 0, "needs root"), .timeLimit(.minutes(40)))
struct ObservationPrivacyTests {
    private static let name = "org.example.tracker"
    private static let accessory = "/dev/serial/by-id/usb-one"
    private static let device = "/org/bluez/hci0/dev_1"
    private static let characteristic = device + "/service1/char1"
    private static let owner: UInt32 = 65_534
    private static let stranger: UInt32 = 65_533

    private let monitor: FakeMonitor
    private let supervisor: TestSupervisor

    init() throws {
        let monitor = try FakeMonitor()
        self.monitor = monitor
        supervisor = try TestSupervisor { $0.monitor = monitor.program }
    }

    /// A connection of another user. The kernel keeps the credentials with which it was made.
    private func connect(as user: UInt32) throws -> WireClient {
        // Unchecked: the thread has ended when the connection is used.
        struct Made: @unchecked Sendable { let client: WireClient }
        let path = supervisor.socketPath
        return try OwnThread {
            guard ctest_become(user) == 0 else { throw TestFailure("cannot become another user") }
            return Made(client: try WireClient(path: path))
        }.join().client
    }

    private func watcher(_ client: WireClient, of identifier: String = "") throws -> WireClient {
        guard case .done = try client.ask(.watch(.with { $0.identifier = identifier })) else {
            throw TestFailure("it must not watch")
        }
        return client
    }

    private func observer() throws -> WireClient {
        let client = try connect(as: Self.owner)
        try client.hello(Self.name, modes: [.location, .bluetoothCentral, .externalAccessory])
        let home: WireObserve.OneOf_Subject = .region(
            .with {
                $0.latitudeDegrees = 52
                $0.longitudeDegrees = 13
                $0.radiusM = 500
            })
        let subjects: [(String, WireObserve.OneOf_Subject)] = [
            ("far", .location(.with { $0.service = .significantChange })), ("home", home),
            ("band", .bluetoothDevice(Self.device)), ("heart", .characteristic(Self.characteristic)),
            ("radio", .accessory(Self.accessory)),
        ]
        for (name, subject) in subjects {
            let message = WireObserve.with {
                $0.name = name
                $0.subject = subject
            }
            guard case .done = try client.ask(.observe(message)) else { throw TestFailure("not observed") }
        }
        return client
    }

    private func report(at latitude: Double) throws {
        try monitor.report(
            .location(
                .with {
                    $0.latitudeDegrees = latitude
                    $0.longitudeDegrees = 13
                    $0.accuracyM = 10
                }))
    }

    /// Everything happens that can be observed; each wakes the client.
    private func happen(_ client: WireClient) throws {
        try monitor.report(.devices(.with { $0.absent = [Self.accessory] }))
        try monitor.report(.bluetooth(.with { $0.disconnected = [Self.device] }))
        let reports: [() throws -> Void] = [
            { try report(at: 52) },
            { try report(at: 52.1) },
            { try monitor.report(.bluetooth(.with { $0.connected = [Self.device] })) },
            {
                try monitor.report(
                    .value(
                        .with {
                            $0.path = Self.characteristic
                            $0.value = Data([77])
                        }))
            },
            {
                try monitor.report(
                    .devices(
                        .with {
                            $0.present = [
                                .with {
                                    $0.name = Self.accessory
                                    $0.node = "/dev/ttyACM0"
                                }
                            ]
                        }))
            },
        ]
        for report in reports {
            try report()
            let wake = try client.wake()
            #expect(!wake.occurrences.isEmpty)
            try client.finish(wake)
            try client.ready(try client.prepare())
        }
    }

    /// All that a watcher is told, until the network is reported, which is no secret.
    private func told(_ watcher: WireClient) throws -> [WireWatchEvent] {
        var events: [WireWatchEvent] = []
        while true {
            let event = try watcher.event { _ in true }
            if event.kind == "machine", event.detail.hasPrefix("network up") { return events }
            events.append(event)
        }
    }

    @Test func observationsAreForTheirUserAndAdministrators() throws {
        let client = try observer()
        // Otherwise nothing asks for the network.
        let other = try connect(as: Self.stranger)
        try other.hello("org.example.other", wantsNetworkChanges: true)
        try monitor.start()
        try monitor.demand { $0.sources.contains(.network) }
        let ofRoot = try watcher(WireClient(supervisor))
        let ofOwner = try watcher(connect(as: Self.owner))
        let ofStranger = try watcher(connect(as: Self.stranger))
        let ofStrangerByName = try watcher(connect(as: Self.stranger), of: Self.name)
        try client.goToSleep()
        try happen(client)
        try monitor.report(network: [192, 0, 2, 1])

        #expect(try told(ofStranger).allSatisfy { $0.identifier == "org.example.other" })
        let observed = [
            "far: moved", "home: exited", "band: connected", "heart: a value", "radio: connected",
        ]
        let forOwner = try told(ofOwner)
        let forRoot = try told(ofRoot)
        for events in [forOwner, forRoot] {
            let details = events.filter { $0.kind == "observed" && $0.identifier == Self.name }.map(\.detail)
            for prefix in observed {
                #expect(details.contains { $0.hasPrefix(prefix) }, "\(prefix): \(details)")
            }
        }
        #expect(forOwner.allSatisfy { $0.kind != "machine" })
        for fact in ["at 52.1", "Bluetooth: ", "accessories: ", Self.characteristic] {
            #expect(forRoot.contains { $0.kind == "machine" && $0.detail.hasPrefix(fact) }, "\(fact)")
        }

        let stranger = try connect(as: Self.stranger)
        #expect(try stranger.list().map(\.identifier) == ["org.example.other"])
        #expect(throws: WireError.self) { _ = try stranger.show(Self.name) }
        let occurrence = WireOccurrence.with {
            $0.name = "home"
            $0.entered = .init()
        }
        let simulate = WireSimulate.with {
            $0.identifier = Self.name
            $0.occurrence = occurrence
        }
        guard case .error(let error) = try stranger.ask(.simulate(simulate)) else {
            throw TestFailure("a stranger simulates")
        }
        #expect(error.code == .noSuchClient)
        let reasons = ["wakes_location", "wakes_bluetooth", "wakes_device"]
        let seen = try stranger.status()
        #expect(seen.users.map(\.uid) == [Self.stranger] && seen.counters["wakes"] == 5)
        #expect(reasons.allSatisfy { seen.counters[$0] == 0 })
        for user in [try connect(as: Self.owner), try WireClient(supervisor)] {
            #expect(try user.list().contains { $0.identifier == Self.name })
            let info = try user.show(Self.name)
            #expect(info.observations.map(\.observe.name) == ["far", "home", "band", "heart", "radio"])
            #expect(info.observations.allSatisfy { $0.hasLatest })
            #expect(reasons.map { info.counters[$0] } == [2, 2, 1])
        }
        #expect(reasons.map { (try? WireClient(supervisor).status())?.counters[$0] } == [2, 2, 1])

        // They have been told of nothing but the network.
        #expect(try ofStrangerByName.receiveIfAny(within: 0) == nil)
        try supervisor.stop()
    }
}
