import EdgeTestSupport
import Glibc
import LinuxSystem
import NightbellWire
import SwiftProtobuf
import Testing

/// BlueZ is a mock here, which has the real one's objects: there is no Bluetooth hardware.
@Suite("Bluetooth") struct BluetoothTests {
    private static let adapter = "org.bluez.Adapter1"
    private static let device = "org.bluez.Device1"
    private static let characteristic = "org.bluez.GattCharacteristic1"
    private static let manager = "org.freedesktop.DBus.ObjectManager"
    private static let hci = "/org/bluez/hci0"
    private static let dev = "/org/bluez/hci0/dev_11_22_33_44_55_66"
    private static let char = dev + "/service0010/char0011"

    private func bluetooth(_ fact: MonitorProcess.Fact) -> WireMonitorReport.Bluetooth? {
        if case .bluetooth(let bluetooth) = fact { bluetooth } else { nil }
    }

    private func value(_ fact: MonitorProcess.Fact) -> [UInt8]? {
        if case .value(let value) = fact, value.path == Self.char { [UInt8](value.value) } else { nil }
    }

    private func bluez(_ bus: PrivateBus) throws -> MockService {
        try MockService(bus, name: "org.bluez", path: "/", interface: "org.bluez.Mock", isObjectManager: true)
    }

    private func add(_ mock: MockService, _ path: String, _ interface: String, _ properties: String) throws {
        let methods =
            interface == Self.characteristic
            ? "[('StartNotify', '', '', 'self.UpdateProperties(\"\(interface)\", {\"Notifying\": True})'), "
                + "('StopNotify', '', '', 'self.UpdateProperties(\"\(interface)\", {\"Notifying\": False})')]"
            : "@a(ssss) []"
        try mock.tell("AddObject", path, interface, properties, methods)
        try mock.emit(
            Self.manager, "InterfacesAdded", "oa{sa{sv}}", "[<objectpath '\(path)'>, <@a{sa{sv}} {}>]")
    }

    private func remove(_ mock: MockService, _ path: String, _ interface: String) throws {
        try mock.tell("RemoveObject", path)
        try mock.emit(
            Self.manager, "InterfacesRemoved", "oas", "[<objectpath '\(path)'>, <['\(interface)']>]")
    }

    private func monitor(_ bus: PrivateBus) throws -> MonitorProcess {
        let monitor = try MonitorProcess(environment: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        try monitor.demand([.bluetooth]) {
            $0.bluetoothDevices = [Self.dev]
            $0.characteristics = [Self.char, "/not'a path"]
        }
        return monitor
    }

    @Test("Adapters, connections and notifications, also after bluetoothd was started again")
    func wholeLife() throws {
        let bus = try PrivateBus()
        let monitor = try monitor(bus)
        #expect(try monitor.availability(of: .bluetooth, is: false).contains("org.bluez"))
        for round in 0..<2 {
            let mock = try bluez(bus)
            #expect(try monitor.first { bluetooth($0) } == .with { $0.disconnected = [Self.dev] })
            try add(mock, Self.hci, Self.adapter, "{'Powered': <false>}")
            try mock.update(Self.adapter, at: Self.hci, "{'Powered': <true>}")
            #expect(try monitor.first { bluetooth($0) }.isPowered)
            try add(mock, Self.dev, Self.device, "{'Connected': <false>, 'ServicesResolved': <false>}")
            try add(mock, Self.dev + "9", Self.device, "{'Connected': <true>}")
            try mock.update(Self.device, at: Self.dev, "{'Connected': <true>}")
            #expect(try monitor.first { bluetooth($0) }.connected == [Self.dev])

            try add(mock, Self.char, Self.characteristic, "{'Value': <@ay []>, 'Notifying': <false>}")
            // Notifications were requested once the object is Notifying.
            let isNotifying = try eventually {
                try bus.answer(
                    mock.name, Self.char, "org.freedesktop.DBus.Properties.Get", Self.characteristic,
                    "Notifying"
                ).contains("true")
            }
            #expect(isNotifying)
            for byte in 1...3 {
                try mock.update(Self.characteristic, at: Self.char, "{'Value': <[byte \(byte), 7]>}")
                #expect(try monitor.first { value($0) } == [UInt8(byte), 7])
            }
            // Equal values are events as well.
            try mock.update(Self.characteristic, at: Self.char, "{'Value': <[byte 3, 7]>}")
            #expect(try monitor.first { value($0) } == [3, 7])

            try mock.update(Self.device, at: Self.dev, "{'Connected': <false>}")
            #expect(try monitor.first { bluetooth($0) }.connected.isEmpty)
            if round == 0 {
                try mock.update(Self.adapter, at: Self.hci, "{'Powered': <false>}")
                #expect(try !monitor.first { bluetooth($0) }.isPowered)
            }
            mock.end()
            _ = try monitor.availability(of: .bluetooth, is: false)
        }
    }

    @Test("An adapter that is unplugged takes its devices along")
    func unplugging() throws {
        let bus = try PrivateBus()
        let mock = try bluez(bus)
        try add(mock, Self.hci, Self.adapter, "{'Powered': <true>}")
        try add(mock, Self.dev, Self.device, "{'Connected': <true>}")
        let monitor = try monitor(bus)
        let there = try monitor.first { bluetooth($0) }
        #expect(there.isPowered && there.connected == [Self.dev])
        try remove(mock, Self.dev, Self.device)
        try remove(mock, Self.hci, Self.adapter)
        _ = try monitor.first { bluetooth($0).flatMap { !$0.isPowered && $0.connected.isEmpty ? true : nil } }
        mock.end()
    }

    @Test("Values of peers that are not BlueZ are ignored, and so are values that are too long")
    func forgery() throws {
        let bus = try PrivateBus()
        let mock = try bluez(bus)
        try add(mock, Self.char, Self.characteristic, "{'Value': <@ay []>, 'Notifying': <false>}")
        let monitor = try monitor(bus)
        _ = try monitor.first { bluetooth($0) }
        let other = try MockService(
            bus, name: "org.example.other", path: Self.char, interface: Self.characteristic)
        try other.tell("AddProperty", Self.characteristic, "Value", "<[byte 1]>")
        try other.update(Self.characteristic, "{'Value': <[byte 66]>}")
        let long = Array(repeating: "byte 1", count: 513).joined(separator: ", ")
        try mock.update(Self.characteristic, at: Self.char, "{'Value': <[\(long)]>}")
        try mock.update(Self.characteristic, at: Self.char, "{'Value': <'text'>}")
        try mock.update(Self.characteristic, at: Self.char, "{'Value': <[byte 5]>}")
        #expect(try monitor.first { value($0) } == [5])
        other.end()
        mock.end()
    }
}
