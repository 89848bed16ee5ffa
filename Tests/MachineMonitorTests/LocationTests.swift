import EdgeTestSupport
import Glibc
import LinuxSystem
import NightbellWire
import Testing

/// GeoClue is a mock here: the real one needs a service of the system and a source.
@Suite("Location") struct LocationTests {
    private static let name = "org.freedesktop.GeoClue2"
    private static let manager = "org.freedesktop.GeoClue2.Manager"
    private static let client = "org.freedesktop.GeoClue2.Client"
    private static let location = "org.freedesktop.GeoClue2.Location"
    private static let clientPath = "/org/freedesktop/GeoClue2/Client/1"

    private func location(_ fact: MonitorProcess.Fact) -> WireMonitorReport.Location? {
        if case .location(let location) = fact { location } else { nil }
    }

    private func geoclue(_ bus: PrivateBus, startCode: String = "", stopCode: String = "") throws
        -> MockService
    {
        let mock = try MockService(
            bus, name: Self.name, path: "/org/freedesktop/GeoClue2/Manager", interface: Self.manager)
        try mock.tell("AddMethod", Self.manager, "CreateClient", "", "o", "ret = '\(Self.clientPath)'")
        try mock.tell("AddMethod", Self.manager, "DeleteClient", "o", "", "")
        try mock.tell(
            "AddObject", Self.clientPath, Self.client,
            "{'DesktopId': <''>, 'DistanceThreshold': <uint32 0>, 'TimeThreshold': <uint32 0>, "
                + "'RequestedAccuracyLevel': <uint32 0>, 'Active': <false>}",
            "[('Start', '', '', '\(startCode)'), ('Stop', '', '', '\(stopCode)')]")
        return mock
    }

    private func move(_ mock: MockService, _ number: Int, _ latitude: String, _ longitude: String) throws {
        let path = "/org/freedesktop/GeoClue2/Location/\(number)"
        try mock.tell(
            "AddObject", path, Self.location,
            "{'Latitude': <\(latitude)>, 'Longitude': <\(longitude)>, 'Accuracy': <25.0>, 'Description': <'here'>}",
            "@a(ssss) []")
        try mock.emit(
            Self.client, at: Self.clientPath, "LocationUpdated", "oo",
            "[<objectpath '/'>, <objectpath '\(path)'>]")
    }

    @Test("The wish of the demand is GeoClue's, and its locations are reported")
    func locations() throws {
        let bus = try PrivateBus()
        let mock = try geoclue(bus)
        let monitor = try MonitorProcess(environment: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        try monitor.demand([.location]) {
            $0.location.accuracy = 6
            $0.location.distanceM = 500
            $0.location.intervalMs = 60_000
        }
        _ = try monitor.availability(of: .location, is: true)
        let properties = try bus.answer(
            Self.name, Self.clientPath, "org.freedesktop.DBus.Properties.GetAll", Self.client)
        for part in [
            "'DistanceThreshold': <uint32 500>", "'TimeThreshold': <uint32 60>", "'DesktopId': <'nightbell'>",
            "'RequestedAccuracyLevel': <uint32 6>",
        ] { #expect(properties.contains(part), "\(properties)") }
        try move(mock, 1, "52.5", "13.4")
        let first = try monitor.first { location($0) }
        #expect(first.latitudeDegrees == 52.5 && first.longitudeDegrees == 13.4 && first.accuracyM == 25)
        try move(mock, 2, "-33.9", "151.2")
        #expect(try monitor.first { location($0) }.latitudeDegrees == -33.9)
        mock.end()
        _ = try monitor.availability(of: .location, is: false)
    }

    @Test("Nothing is asked of GeoClue while no client wants a location")
    func unwanted() throws {
        let bus = try PrivateBus()
        let mock = try geoclue(bus)
        let monitor = try MonitorProcess(environment: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        try monitor.demand([.location])
        #expect(try monitor.availability(of: .location, is: false).contains("no client"))
        #expect(try bus.uniqueName(of: monitor.pid) == nil)
        try monitor.demand([.location]) { $0.location.accuracy = 4 }
        _ = try monitor.availability(of: .location, is: true)
        #expect(try bus.uniqueName(of: monitor.pid) != nil)
        try monitor.demand([.location])
        _ = try monitor.availability(of: .location, is: false)
        #expect(try eventually { try bus.uniqueName(of: monitor.pid) == nil })
        mock.end()
    }

    /// The first location comes a second after each start.
    @Test("A client that changes its wish does not keep the locations from others")
    func inconstancy() throws {
        let bus = try PrivateBus()
        let update = [
            Self.client, "LocationUpdated", "oo",
        ].map { "\"\($0)\"" }.joined(separator: ", ")
        let paths = "[\"/\", \"/org/freedesktop/GeoClue2/Location/1\"]"
        let mock = try geoclue(
            bus,
            startCode: "import gi.repository.GLib as g; self.first = g.timeout_add(1000, "
                + "lambda s=self: s.EmitSignal(\(update), \(paths)) and False)",
            stopCode: "import gi.repository.GLib as g; "
                + "getattr(self, \"first\", 0) and g.source_remove(self.first); self.first = 0")
        try mock.tell(
            "AddObject", "/org/freedesktop/GeoClue2/Location/1", Self.location,
            "{'Latitude': <52.5>, 'Longitude': <13.4>, 'Accuracy': <25.0>}", "@a(ssss) []")
        let monitor = try MonitorProcess(environment: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        let end = BootClock.now() + 30_000_000_000
        var distance: UInt32 = 0
        var isLocated = false
        while !isLocated, BootClock.now() < end {
            distance = 1 - distance
            try monitor.demand([.location]) {
                $0.location.accuracy = 8
                $0.location.distanceM = distance
            }
            // The pace at which the supervisor passes changes on.
            if let fact = try monitor.next(within: 120) { isLocated = location(fact) != nil }
        }
        #expect(isLocated)
        mock.end()
    }

    @Test("More is applied after a pause")
    func more() throws {
        let bus = try PrivateBus()
        let mock = try geoclue(bus)
        let monitor = try MonitorProcess(environment: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        func isApplied(_ distance: UInt32) throws -> Bool {
            try bus.answer(Self.name, Self.clientPath, "org.freedesktop.DBus.Properties.GetAll", Self.client)
                .contains("'DistanceThreshold': <uint32 \(distance)>")
        }
        func demand(_ distance: UInt32) throws {
            try monitor.demand([.location]) {
                $0.location.accuracy = 8
                $0.location.distanceM = distance
            }
        }
        try demand(500)
        _ = try monitor.availability(of: .location, is: true)
        try move(mock, 1, "52.5", "13.4")
        _ = try monitor.first { location($0) }
        try demand(100)
        #expect(try eventually { try isApplied(100) })
        // Less is not, so soon.
        try demand(900)
        try move(mock, 2, "52.6", "13.4")
        _ = try monitor.first { location($0) }
        #expect(try isApplied(100))
        mock.end()
    }

    @Test("Places without numbers are no locations")
    func nonsense() throws {
        let bus = try PrivateBus()
        let mock = try geoclue(bus)
        let monitor = try MonitorProcess(environment: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        try monitor.demand([.location]) { $0.location.accuracy = 8 }
        _ = try monitor.availability(of: .location, is: true)
        for (number, place) in [("'north'", "0.0"), ("0.0", "'east'")].enumerated() {
            try move(mock, number, place.0, place.1)
            _ = try monitor.availability(of: .location, is: false)
            try move(mock, 100 + number, "1.0", "2.0")
            _ = try monitor.first { location($0) }
        }
        #expect(monitor.received.compactMap { location($0) }.allSatisfy { $0.latitudeDegrees == 1 })
        mock.end()
    }

    @Test("The reason of a refusal is reported")
    func refusal() throws {
        let bus = try PrivateBus()
        let mock = try geoclue(
            bus,
            startCode:
                "raise dbus.exceptions.DBusException(\"no agent\", name=\"org.freedesktop.DBus.Error.AccessDenied\")"
        )
        let monitor = try MonitorProcess(environment: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        try monitor.demand([.location]) { $0.location.accuracy = 8 }
        #expect(try monitor.availability(of: .location, is: false).contains("no agent"))
        mock.end()
    }
}
