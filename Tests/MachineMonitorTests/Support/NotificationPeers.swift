import EdgeTestSupport
import Glibc
import LinuxSystem

/// The signals of an interface on a private bus, as dbus-monitor prints them.
final class BusRecord {
    private let directory: TemporaryDirectory
    private let process: Helper

    init(_ bus: PrivateBus, interface: String) throws {
        directory = try TemporaryDirectory()
        let file = try OwnedDescriptor(
            opening: directory.file("record"), O_WRONLY | O_CREAT | O_APPEND, mode: 0o600)
        process = try Helper(
            ["/usr/bin/dbus-monitor", "--address", bus.address, "type='signal',interface='\(interface)'"],
            output: file.rawValue)
        // It prints the signal with its own name once it is connected.
        let isConnected = try eventually(within: 60_000) { try text().contains("NameLost") }
        try check(isConnected, "dbus-monitor does not connect")
    }

    func text() throws -> String { try SmallFile.readText(directory.file("record")) }
}

/// A notification server that answers as it should, and sends 100,000 signals about notifications of others.
final class FloodingServer {
    private let process: Helper

    init(_ bus: PrivateBus) throws {
        process = try Helper(["/usr/bin/python3", "-c", Self.script, bus.address])
        try bus.waitForOwner(of: NotificationTests.name)
    }

    func end() { process.end() }

    private static let script = """
        import dbus, dbus.service, dbus.mainloop.glib, dbus.lowlevel, sys
        from gi.repository import GLib
        name, path = 'org.freedesktop.Notifications', '/org/freedesktop/Notifications'
        dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
        bus = dbus.bus.BusConnection(sys.argv[1])

        class Server(dbus.service.Object):
            last, sent = 0, 0

            @dbus.service.method(name, in_signature='', out_signature='as')
            def GetCapabilities(self): return ['body', 'actions']

            @dbus.service.method(name, in_signature='susssasa{sv}i', out_signature='u')
            def Notify(self, app, replaces, icon, title, body, actions, hints, timeout):
                self.last += 1
                GLib.idle_add(self.flood)
                return self.last

            def flood(self):
                for step in range(100):
                    self.sent += 1
                    message = dbus.lowlevel.SignalMessage(path, name, 'ActionInvoked')
                    message.append(dbus.UInt32(1000 + self.sent), 'default', signature='us')
                    bus.send_message(message)
                return self.sent < 100000

        server = Server(bus, path)
        bus.request_name(name)
        GLib.MainLoop().run()
        """
}
