import EdgeTestSupport
import LinuxSystem

/// A system bus of a test's own, with a GeoClue and a BlueZ that are mocks (python3-dbusmock).
final class MockServices {
    private let child: Child
    let busAddress: String

    static let device = "/org/bluez/hci0/dev_11_22_33_44_55_66"
    static let characteristic = device + "/service0010/char0011"

    init() throws {
        child = try Child("/usr/bin/python3", ["-c", Self.script], environment: ["PATH": "/usr/bin:/bin"])
        guard let answer = try child.hear(within: 60_000), answer.hasPrefix("unix:") else {
            throw TestFailure("the mocks do not start")
        }
        busAddress = String(answer.prefix { $0 != "\n" })
    }

    /// `move LATITUDE LONGITUDE`, `connect`, `disconnect`, `notify BYTE` or `forge BYTE`, which notifies as
    /// another peer.
    func tell(_ words: String) throws {
        try child.send(words + "\n")
        guard try child.hear(within: 60_000) == "done\n" else {
            throw TestFailure("the mocks do not \(words)")
        }
    }

    private static let script = """
        import ctypes, dbus, dbus.bus, os, subprocess, sys, tempfile, time

        def start(command, **options):
            # They end with this process.
            return subprocess.Popen(command, preexec_fn=lambda: ctypes.CDLL(None).prctl(1, 9), **options)

        directory = tempfile.mkdtemp()
        # The monitor is another user's.
        os.chmod(directory, 0o755)
        address = 'unix:path=' + directory + '/bus'
        with open(directory + '/bus.conf', 'w') as file:
            file.write('<busconfig><listen>' + address + '</listen><auth>EXTERNAL</auth><policy context="default">'
                       '<allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>'
                       '<allow user="*"/></policy></busconfig>')
        bus_daemon = start(['/usr/bin/dbus-daemon', '--nofork', '--print-address=1', '--config-file=' + directory
                            + '/bus.conf'], stdout=subprocess.PIPE)
        bus_daemon.stdout.readline()
        environment = dict(os.environ, DBUS_SYSTEM_BUS_ADDRESS=address, DBUS_SESSION_BUS_ADDRESS=address)
        def mock(*arguments):
            start(['/usr/bin/python3', '-m', 'dbusmock', '--system'] + list(arguments), env=environment,
                  stdout=subprocess.DEVNULL)
        geoclue, bluez, other = 'org.freedesktop.GeoClue2', 'org.bluez', 'org.example.other'
        manager = '/org/freedesktop/GeoClue2/Manager'
        mock(geoclue, manager, geoclue + '.Manager')
        mock('-m', bluez, '/', 'org.bluez.Mock')
        device = '/org/bluez/hci0/dev_11_22_33_44_55_66'
        characteristic = device + '/service0010/char0011'
        mock(other, characteristic, 'org.bluez.GattCharacteristic1')
        bus = dbus.bus.BusConnection(address)
        for name in (geoclue, bluez, other):
            while not bus.name_has_owner(name): time.sleep(0.02)

        def tell(name, path, method, *arguments):
            bus.get_object(name, path, introspect=True).get_dbus_method(method, 'org.freedesktop.DBus.Mock')(*arguments)
        def properties(values): return dbus.Dictionary(values, signature='sv')
        def methods(*values): return dbus.Array(values, signature='(ssss)')

        client = '/org/freedesktop/GeoClue2/Client/1'
        tell(geoclue, manager, 'AddMethod', geoclue + '.Manager', 'CreateClient', '', 'o', 'ret = "' + client + '"')
        tell(geoclue, manager, 'AddMethod', geoclue + '.Manager', 'DeleteClient', 'o', '', '')
        zero = dbus.UInt32(0)
        tell(geoclue, manager, 'AddObject', client, geoclue + '.Client',
             properties({'DesktopId': '', 'DistanceThreshold': zero, 'TimeThreshold': zero,
                         'RequestedAccuracyLevel': zero, 'Active': False}),
             methods(('Start', '', '', ''), ('Stop', '', '', '')))
        adapter_properties = properties({'Powered': True})
        tell(bluez, '/', 'AddObject', '/org/bluez/hci0', 'org.bluez.Adapter1', adapter_properties, methods())
        tell(bluez, '/', 'AddObject', device, 'org.bluez.Device1', properties({'Connected': False}), methods())
        no_bytes = dbus.Array([], signature='y')
        tell(bluez, '/', 'AddObject', characteristic, 'org.bluez.GattCharacteristic1',
             properties({'Value': no_bytes, 'Notifying': False}),
             methods(('StartNotify', '', '', ''), ('StopNotify', '', '', '')))
        tell(other, characteristic, 'AddProperty', 'org.bluez.GattCharacteristic1', 'Value', no_bytes)
        print(address, flush=True)
        moves = 0
        for line in sys.stdin:
            words = line.split()
            if words[0] == 'move':
                moves += 1
                place = '/org/freedesktop/GeoClue2/Location/%d' % moves
                tell(geoclue, manager, 'AddObject', place, geoclue + '.Location',
                     properties({'Latitude': float(words[1]), 'Longitude': float(words[2]), 'Accuracy': 5.0}), methods())
                tell(geoclue, client, 'EmitSignal', geoclue + '.Client', 'LocationUpdated', 'oo',
                     dbus.Array([dbus.ObjectPath('/'), dbus.ObjectPath(place)], signature='v'))
            elif words[0] in ('connect', 'disconnect'):
                tell(bluez, device, 'UpdateProperties', 'org.bluez.Device1',
                     properties({'Connected': words[0] == 'connect'}))
            else:
                value = dbus.Array([dbus.Byte(int(words[1]))], signature='y')
                tell(bluez if words[0] == 'notify' else other, characteristic, 'UpdateProperties',
                     'org.bluez.GattCharacteristic1', properties({'Value': value}))
            print('done', flush=True)
        """
}
