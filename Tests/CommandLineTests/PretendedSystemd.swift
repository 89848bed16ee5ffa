import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport
import Suspension
import Testing

/// A bus with a service manager that has one service, which it freezes and thaws as systemd does.
final class PretendedSystemd {
    let unit: String
    let cgroup: String
    let bus: Program
    private let directory: TemporaryDirectory
    private let manager: Program
    private(set) var server: Program
    let address: String

    /// - Parameters:
    ///   - version: of systemd.
    ///   - watchdog: in microseconds; 0: there is none.
    init(version: Int = 252, watchdog: UInt64 = 0) throws {
        let mount = try #require(CgroupMount.find())
        unit = "echo-\(getpid())-\(UInt32.random(in: 0 ... .max)).service"
        cgroup = mount.directory(for: "/" + unit)
        mkdir(cgroup, 0o755)
        directory = try TemporaryDirectory()
        address = "unix:path=\(directory.file("bus"))"
        bus = try Program(
            "/usr/bin/dbus-daemon", ["--session", "--nofork", "--print-address=1", "--address=\(address)"])
        try bus.wrote("unix:")
        server = try Self.startServer(in: cgroup)
        manager = try Program(
            "/usr/bin/python3",
            ["-c", Self.script, unit, cgroup, "\(server.pid)", "\(version)", "\(watchdog)"],
            environment: ["DBUS_SYSTEM_BUS_ADDRESS": address])
        try manager.wrote("ready")
    }

    deinit {
        server.send(signal: SIGKILL)
        _ = try? server.outcome()
        rmdir(cgroup)
    }

    private static func startServer(in cgroup: String) throws -> Program {
        let server = try Program("/usr/bin/python3", ["-c", Script.echo])
        try server.wrote("\n")
        try SmallFile.write("\(server.pid)", to: cgroup + "/cgroup.procs")
        return server
    }

    func connect() throws -> EchoConnection {
        let port = server.output.split(separator: "\n").first?.split(separator: " ").last
        return try EchoConnection(connectedTo: try #require(port.flatMap { UInt16($0) }))
    }

    var isFrozen: Bool {
        get throws { try SmallFile.readText(cgroup + "/cgroup.events").contains("frozen 1") }
    }

    /// How often it has been asked for that.
    func count(_ request: String) -> Int {
        manager.output.split(separator: "\n").count { $0 == request }
    }

    /// There is a job for the unit.
    func beginJob() throws { try manager.say("job") }

    func refuseToFreeze() throws {
        try manager.say("refuse")
        try manager.wrote("refusing")
    }

    /// It is frozen once, later than is waited for the answer, and not again.
    func freezeLate() throws {
        try manager.say("late")
        try manager.wrote("will be late")
    }

    /// The requests after a freeze that came late, in their order; nil: that has not come yet.
    var requestsAfterLateFreeze: [Substring]? {
        let lines = manager.output.split(separator: "\n")
        return lines.firstIndex(of: "frozen late").map { Array(lines[($0 + 1)...]) }
    }

    /// When it was asked for its state while that was this, in seconds.
    func asked(for state: String) -> [Double] {
        manager.output.split(separator: "\n").compactMap {
            let words = $0.split(separator: " ")
            return words.count == 3 && words[0] == "asked" && words[1] == state ? Double(words[2]) : nil
        }
    }

    /// The service ends.
    func end(state: String) throws {
        try manager.say("state \(state)")
        try manager.wrote("is \(state)")
        server.send(signal: SIGKILL)
        _ = try server.outcome()
    }

    /// The service ends, and is started again once its state was asked for this often.
    func restart(state: String = "activating", asked count: Int = 0) throws {
        try end(state: state)
        let isAsked = eventually(within: 30_000) { asked(for: state).count >= count }
        try #require(isAsked)
        server = try Self.startServer(in: cgroup)
        try manager.say("main \(server.pid)")
        try manager.wrote("main \(server.pid)")
    }

    private static let script = """
        import os, signal, sys, time
        import dbus, dbus.service
        from dbus.mainloop.glib import DBusGMainLoop
        from gi.repository import GLib

        unit, cgroup, main, version, watchdog = sys.argv[1:]
        name = "org.freedesktop.systemd1"
        path = "/org/freedesktop/systemd1"
        properties = {
            "Version": version + ".1-1", "Id": unit, "CanFreeze": dbus.Boolean(True), "ActiveState": "active",
            "WatchdogUSec": dbus.UInt64(int(watchdog)), "MainPID": dbus.UInt32(int(main)),
            "ControlGroup": "/" + os.path.basename(cgroup),
        }
        refuses = False
        late = False

        def say(text): print(text, flush=True)

        def freeze(digit):
            with open(cgroup + "/cgroup.freeze", "w") as file: file.write(digit)
            while "frozen " + digit not in open(cgroup + "/cgroup.events").read(): time.sleep(0.0001)

        def freeze_late():
            say("frozen late")
            freeze("1")
            return False

        class Object(dbus.service.Object):
            @dbus.service.method("org.freedesktop.DBus.Properties", in_signature="ss", out_signature="v")
            def Get(self, interface, property):
                if property == "ActiveState": say("asked %s %.3f" % (properties[property], time.monotonic()))
                return properties[property]

        class Manager(Object):
            def check(self, unit_name):
                if unit_name != unit:
                    raise dbus.exceptions.DBusException("not loaded", name=name + ".NoSuchUnit")

            @dbus.service.method(name + ".Manager", in_signature="s", out_signature="o")
            def GetUnit(self, unit_name):
                self.check(unit_name)
                return path + "/unit/it"

            @dbus.service.method(
                name + ".Manager", in_signature="s", async_callbacks=("reply", "fail"))
            def FreezeUnit(self, unit_name, reply, fail):
                global refuses, late
                self.check(unit_name)
                say("freeze")
                if refuses: return fail(dbus.exceptions.DBusException("not today", name=name + ".UnitBusy"))
                if late:
                    late, refuses = False, True
                    return GLib.timeout_add(1500, freeze_late)
                freeze("1")
                reply()

            @dbus.service.method(name + ".Manager", in_signature="s")
            def ThawUnit(self, unit_name):
                self.check(unit_name)
                say("thaw")
                freeze("0")

            @dbus.service.method(name + ".Manager")
            def Subscribe(self): pass

            @dbus.service.signal(name + ".Manager", signature="uos")
            def JobNew(self, number, job, unit_name): pass

        def read(source, condition):
            global refuses, late
            line = sys.stdin.readline().split()
            if not line: return False
            if line[0] == "job": manager.JobNew(7, path + "/job/7", unit)
            if line[0] == "refuse":
                refuses = True
                say("refusing")
            if line[0] == "late":
                late = True
                say("will be late")
            if line[0] == "state":
                properties["ActiveState"] = line[1]
                say("is " + line[1])
            if line[0] == "main":
                properties["MainPID"] = dbus.UInt32(int(line[1]))
                properties["ActiveState"] = "active"
                say("main " + line[1])
            return True

        DBusGMainLoop(set_as_default=True)
        bus = dbus.bus.BusConnection(os.environ["DBUS_SYSTEM_BUS_ADDRESS"])
        bus.set_exit_on_disconnect(False)
        owned = dbus.service.BusName(name, bus)
        manager = Manager(bus, path)
        it = Object(bus, path + "/unit/it")
        GLib.io_add_watch(sys.stdin, GLib.IO_IN | GLib.IO_HUP, read)
        say("ready")
        GLib.MainLoop().run()
        """
}
