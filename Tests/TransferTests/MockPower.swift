import EdgeTestSupport
import Glibc

/// A system bus of a test's own, with a UPower that is a mock (python3-dbusmock).
final class MockPower {
    private let directory: TemporaryDirectory
    private let child: Child
    let busAddress: String

    init(isOnBattery: Bool) throws {
        directory = try TemporaryDirectory()
        // The monitor is another user's.
        chmod(directory.path, 0o755)
        child = try Child(
            "/usr/bin/python3", ["-c", Self.script, Self.word(isOnBattery), directory.path],
            environment: ["PATH": "/usr/bin:/bin"])
        guard let answer = try child.hear(within: 60_000), answer.hasPrefix("unix:") else {
            throw Unexpected("the mock does not start")
        }
        busAddress = String(answer.prefix { $0 != "\n" })
    }

    func set(isOnBattery: Bool) throws {
        try child.send(Self.word(isOnBattery) + "\n")
        guard try child.hear(within: 60_000) == "done\n" else { throw Unexpected("the mock does not answer") }
    }

    private static func word(_ isOnBattery: Bool) -> String { isOnBattery ? "battery" : "mains" }

    private static let script = """
        import ctypes, dbus, dbus.bus, json, os, subprocess, sys, time

        def start(command, **options):
            # They end with this process.
            return subprocess.Popen(command, preexec_fn=lambda: ctypes.CDLL(None).prctl(1, 9), **options)

        directory = sys.argv[2]
        address = 'unix:path=' + directory + '/bus'
        with open(directory + '/bus.conf', 'w') as file:
            file.write('<busconfig><listen>' + address + '</listen><auth>EXTERNAL</auth><policy context="default">'
                       '<allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>'
                       '<allow user="*"/></policy></busconfig>')
        start(['/usr/bin/dbus-daemon', '--nofork', '--print-address=1', '--config-file=' + directory + '/bus.conf'],
              stdout=subprocess.PIPE).stdout.readline()
        name = 'org.freedesktop.UPower'
        start(['/usr/bin/python3', '-m', 'dbusmock', '--system', '--template', 'upower', '--parameters',
               json.dumps({'OnBattery': sys.argv[1] == 'battery'})],
              env=dict(os.environ, DBUS_SYSTEM_BUS_ADDRESS=address), stdout=subprocess.DEVNULL)
        bus = dbus.bus.BusConnection(address)
        while not bus.name_has_owner(name): time.sleep(0.02)
        print(address, flush=True)
        for line in sys.stdin:
            values = dbus.Dictionary({'OnBattery': line.strip() == 'battery'}, signature='sv')
            mock = bus.get_object(name, '/org/freedesktop/UPower')
            mock.UpdateProperties(name, values, dbus_interface='org.freedesktop.DBus.Mock')
            print('done', flush=True)
        """
}
