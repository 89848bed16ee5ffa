import CSystemd
import Glibc
import Nightbell

/// A Bluetooth peripheral with one characteristic, a note that other machines read and write.
///
/// BlueZ calls the objects of this process over its own connection to the system bus. That is handed over: a
/// call wakes, and is answered. It does not survive the process, because BlueZ drops the application of a
/// connection that ends.
final class Peripheral: Service {
    private static let application = "/org/example/nightbell"
    private static let service = application + "/service0"
    private static let characteristic = service + "/characteristic0"
    /// A value of this length fits into one packet of any device, so none is read or written in parts.
    private static let longestNote = 20

    private let bus: OpaquePointer
    private let adapter: String
    private var note = Array("hello".utf8)

    /// - Parameter adapter: the path of an adapter, such as `/org/bluez/hci0`.
    static func run(_ adapter: String) throws -> Never {
        let peripheral = Peripheral(adapter)
        let loop = Loop(peripheral)
        let client = try loop.makeClient("peripheral", [.bluetoothPeripheral])
        _ = try client.handOver(sd_bus_get_fd(peripheral.bus), as: .device, name: "system bus")
        try enterBackground(client)
        try loop.run(client)
    }

    private init(_ adapter: String) {
        guard sd_bus_object_path_is_valid(adapter) > 0 else {
            fail("\(adapter) is not the path of an object, such as /org/bluez/hci0", EX_DATAERR)
        }
        self.adapter = adapter
        var made: OpaquePointer?
        guard sd_bus_open_system(&made) >= 0, let bus = made else {
            fail("There is no system bus", EX_UNAVAILABLE)
        }
        self.bus = bus
        let context = Unmanaged.passUnretained(self).toOpaque()
        // An adapter that comes, or comes back with BlueZ, knows no application yet.
        let rule =
            "type='signal',sender='org.bluez',interface='org.freedesktop.DBus.ObjectManager',"
            + "member='InterfacesAdded',arg0path='\(adapter)'"
        sd_bus_add_match(bus, nil, rule, { _, context, _ in Peripheral.at(context).register() }, context)
        sd_bus_add_fallback(
            bus, nil, Self.application,
            { call, context, error in Peripheral.at(context).answer(call, error) },
            context)
        register()
        var name: UnsafePointer<CChar>?
        sd_bus_get_unique_name(bus, &name)
        report("is \(name.map { String(cString: $0) } ?? "nameless") on the bus")
    }

    private static func at(_ context: UnsafeMutableRawPointer?) -> Peripheral {
        guard let context else { preconditionFailure("sd-bus passes the context on") }
        return Unmanaged<Peripheral>.fromOpaque(context).takeUnretainedValue()
    }

    var polled: pollfd {
        pollfd(fd: sd_bus_get_fd(bus), events: Int16(sd_bus_get_events(bus)), revents: 0)
    }

    func note(_ occurrence: Occurrence) {}

    func serve() {
        var result: CInt
        repeat { result = sd_bus_process(bus, nil) } while result > 0
        guard result < 0 else { return }
        report("has lost the bus")
        exit(EX_UNAVAILABLE)
    }

    /// Asks BlueZ to offer the application. BlueZ asks for its objects before it answers.
    @discardableResult
    private func register() -> CInt {
        var call: OpaquePointer?
        sd_bus_message_new_method_call(
            bus, &call, "org.bluez", adapter, "org.bluez.GattManager1", "RegisterApplication")
        var message = Message(call)
        message.add("o", Self.application)
        message.container("a", "{sv}") { _ in }
        // Without a limit: that would count the time in which this process sleeps.
        sd_bus_call_async(
            bus, nil, call,
            { reply, _, _ in
                let error = sd_bus_message_get_error(reply).map { String(cString: $0.pointee.name) }
                report(error.map { "is not offered: \($0)" } ?? "is offered")
                return 0
            }, nil, .max)
        sd_bus_message_unref(call)
        return 0
    }

    // MARK: Calls of BlueZ

    private func answer(_ call: OpaquePointer?, _ error: UnsafeMutablePointer<sd_bus_error>?) -> CInt {
        func isCall(_ path: String, _ interface: String, _ member: String) -> Bool {
            sd_bus_message_is_method_call(call, interface, member) > 0
                && sd_bus_message_get_path(call).map { String(cString: $0) } == path
        }
        var reply: OpaquePointer?
        defer { sd_bus_message_unref(reply) }
        sd_bus_message_new_method_return(call, &reply)
        var message = Message(reply)
        if isCall(Self.application, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects") {
            describe(&message)
        } else if isCall(Self.characteristic, "org.bluez.GattCharacteristic1", "ReadValue") {
            report("is read")
            sd_bus_message_append_array(reply, Message.code("y"), note, note.count)
        } else if isCall(Self.characteristic, "org.bluez.GattCharacteristic1", "WriteValue") {
            var bytes: UnsafeRawPointer?
            var count = 0
            guard sd_bus_message_read_array(call, Message.code("y"), &bytes, &count) >= 0,
                count <= Self.longestNote
            else {
                return sd_bus_error_set_const(error, "org.bluez.Error.InvalidValueLength", "too long")
            }
            note = Array(UnsafeRawBufferPointer(start: bytes, count: count))
            report("is written: \(note)")
        } else {
            // sd-bus answers that there is no such method.
            return 0
        }
        sd_bus_send(nil, reply, nil)
        return 1
    }

    /// The objects of the application: one service with one characteristic.
    private func describe(_ reply: inout Message) {
        reply.container("a", "{oa{sa{sv}}}") { objects in
            objects.object(Self.service, "org.bluez.GattService1") { properties in
                properties.add("UUID", "s", "6e696768-7462-656c-6c00-000000000000")
                properties.property("Primary", "b") { $0.add(true) }
            }
            objects.object(Self.characteristic, "org.bluez.GattCharacteristic1") { properties in
                properties.add("UUID", "s", "6e696768-7462-656c-6c00-000000000001")
                properties.add("Service", "o", Self.service)
                properties.property("Flags", "as") { flags in
                    flags.container("a", "s") {
                        $0.add("s", "read")
                        $0.add("s", "write")
                    }
                }
            }
        }
    }
}

/// Writes values into a message of sd-bus. A value that cannot be written makes the whole message fail when
/// it is sent.
private struct Message {
    private let message: OpaquePointer?

    init(_ message: OpaquePointer?) { self.message = message }

    static func code(_ type: Character) -> CChar { CChar(bitPattern: type.asciiValue ?? 0) }

    mutating func add(_ type: Character, _ text: String) {
        sd_bus_message_append_basic(message, Self.code(type), text)
    }

    mutating func add(_ flag: Bool) {
        var value: CInt = flag ? 1 : 0
        sd_bus_message_append_basic(message, Self.code("b"), &value)
    }

    mutating func container(_ type: Character, _ contents: String, _ body: (inout Message) -> Void) {
        sd_bus_message_open_container(message, Self.code(type), contents)
        body(&self)
        sd_bus_message_close_container(message)
    }

    /// An entry of the objects: a path, and one interface with its properties.
    mutating func object(_ path: String, _ interface: String, _ properties: (inout Message) -> Void) {
        container("e", "oa{sa{sv}}") { object in
            object.add("o", path)
            object.container("a", "{sa{sv}}") { interfaces in
                interfaces.container("e", "sa{sv}") { entry in
                    entry.add("s", interface)
                    entry.container("a", "{sv}", properties)
                }
            }
        }
    }

    /// An entry of the properties.
    mutating func property(_ name: String, _ type: String, _ value: (inout Message) -> Void) {
        container("e", "sv") { entry in
            entry.add("s", name)
            entry.container("v", type, value)
        }
    }

    mutating func add(_ name: String, _ type: Character, _ text: String) {
        property(name, String(type)) { $0.add(type, text) }
    }
}
