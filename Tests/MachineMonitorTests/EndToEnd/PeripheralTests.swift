import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

/// The peripheral of `Examples/Modes`, asleep, with a BlueZ of dbusmock: its template, to which the test adds
/// the interface that takes applications.
@Suite("A Bluetooth peripheral", .serialized, .timeLimit(.minutes(40)))
struct PeripheralTests {
    private static let name = "org.example.peripheral"
    private static let adapter = "/org/bluez/hci0"
    private static let manager = "org.bluez.GattManager1"
    private static let objectManager = "org.freedesktop.DBus.ObjectManager"

    /// BlueZ as another peer of the bus: it calls the objects of the application.
    private final class Caller {
        private let child: Child

        init(_ bus: PrivateBus, calling name: String) throws {
            child = try Child(
                "/usr/bin/python3", ["-c", Self.script, bus.address, name],
                environment: ["PATH": "/usr/bin:/bin"])
        }

        /// `objects`, `read` or `write BYTE …`; the answer, or the name of the error.
        func ask(_ words: String) throws -> String {
            try child.send(words + "\n")
            guard let answer = try child.hear(within: 60_000) else {
                throw SupportError(text: "no answer to \(words)")
            }
            return String(answer.dropLast())
        }

        private static let script = """
            import dbus, dbus.bus, sys
            bus = dbus.bus.BusConnection(sys.argv[1])
            root = '/org/example/nightbell'
            characteristic = root + '/service0/characteristic0'
            values = 'org.bluez.GattCharacteristic1'
            def call(path, interface, method, signature, *arguments):
                return bus.call_blocking(sys.argv[2], path, interface, method, signature, arguments, timeout=60)
            for line in sys.stdin:
                words = line.split()
                try:
                    if words[0] == 'objects':
                        objects = call(root, 'org.freedesktop.DBus.ObjectManager', 'GetManagedObjects', '')
                        answer = ' '.join(
                            '%s:%s:%s' % (path[len(root):], interface, '+'.join(properties.get('Flags', [])))
                            for path, interfaces in sorted(objects.items())
                            for interface, properties in interfaces.items())
                    elif words[0] == 'read':
                        answer = [int(byte) for byte in call(characteristic, values, 'ReadValue', 'a{sv}', {})]
                    else:
                        value = [int(word) for word in words[1:]]
                        answer = call(characteristic, values, 'WriteValue', 'aya{sv}', value, {})
                except dbus.DBusException as error:
                    answer = error.get_dbus_name()
                print(answer, flush=True)
            """
    }

    private func bluez(_ bus: PrivateBus) throws -> MockService {
        try MockService(bus, template: "bluez5", name: "org.bluez", path: "/")
    }

    /// An adapter, which takes applications from now on.
    private func addAdapter(_ mock: MockService) throws {
        try mock.tell("org.bluez.Mock.AddAdapter", "hci0", "machine")
        try mock.tell(
            "AddMethod", at: Self.adapter, Self.manager, "RegisterApplication", "oa{sv}", "", "")
        try announceAdapter(mock)
    }

    private func announceAdapter(_ mock: MockService) throws {
        try mock.emit(
            Self.objectManager, "InterfacesAdded", "oa{sa{sv}}",
            "[<objectpath '\(Self.adapter)'>, <{'\(Self.manager)': @a{sv} {}}>]")
    }

    @Test(
        "Reads and writes wake it, and are answered; it is offered anew when its adapter or BlueZ returns",
        arguments: SupervisorProcess.ways)
    func readsAndWrites(way: String) throws {
        let bus = try PrivateBus()
        var mock = try bluez(bus)
        let supervisor = try SupervisorProcess(suspension: way)
        let client = try supervisor.example(
            Self.name, ["peripheral", Self.adapter], environment: ["DBUS_SYSTEM_BUS_ADDRESS": bus.address])
        let line = try client.reports("on the bus")
        let uniqueName = try #require(line.split(separator: " ").first { $0.hasPrefix(":") })
        try client.reports("is not offered")
        let caller = try Caller(bus, calling: String(uniqueName))
        // The same signals of a peer that is not BlueZ.
        let other = try MockService(
            bus, name: "org.example.other", path: Self.adapter, interface: "org.example.Other")

        func ask(_ words: String) throws -> String {
            try client.fallsAsleep()
            let wakes = try client.wakes
            try announceAdapter(other)
            let answer = try caller.ask(words)
            #expect(try client.wakes == wakes + 1, "\(words)")
            return answer
        }

        for round in UInt8(1)...3 {
            try client.fallsAsleep()
            try addAdapter(mock)
            try client.reports("is offered")
            #expect(
                try bus.answer(
                    mock.name, Self.adapter, "org.freedesktop.DBus.Mock.GetMethodCalls", "RegisterApplication"
                ).contains("/org/example/nightbell"))
            #expect(
                try ask("objects") == "/service0:org.bluez.GattService1: "
                    + "/service0/characteristic0:org.bluez.GattCharacteristic1:read+write")
            #expect(try ask("write 72 \(round)") == "None")
            try client.reports("is written: [72, \(round)]")
            #expect(try ask("read") == "[72, \(round)]")
            let long = Array(repeating: "1", count: 21).joined(separator: " ")
            #expect(try ask("write \(long)") == "org.bluez.Error.InvalidValueLength")
            #expect(try ask("read") == "[72, \(round)]")
            if round == 1 {
                try mock.tell("org.bluez.Mock.RemoveAdapter", "hci0")
            } else {
                mock.end()
                mock = try bluez(bus)
            }
        }
        other.end()
        mock.end()
    }
}
