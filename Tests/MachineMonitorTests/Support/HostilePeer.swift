import EdgeTestSupport
import Glibc
import LinuxSystem

/// A peer on a bus that does what no peer should, for some seconds.
final class HostilePeer {
    enum Attack: String, CaseIterable {
        /// Signals about the state of a media player, 10,000 a second.
        case changes
        /// The same, sent to the monitor alone, which no rule keeps away.
        case direct
        /// Signals of 32 KiB to the monitor alone, which look like logind's.
        case forgery
        /// The same, and the monitor is found again by its process when it has another name.
        case chase
        /// Properties and signals with values of other types.
        case nonsense
        /// Signals of 8 MiB.
        case huge
        /// Calls of methods that the monitor does not have.
        case calls
        /// Names of media players that appear and vanish.
        case names
    }

    private let output: OwnedDescriptor
    private let process: Helper

    /// - Parameter target: the unique name of the monitor.
    init(_ bus: PrivateBus, _ attack: Attack, target: String, seconds: Int) throws {
        var ends: [CInt] = [-1, -1]
        _ = try systemCall("pipe") { pipe(&ends) }
        output = OwnedDescriptor(adopting: ends[0])
        let input = OwnedDescriptor(adopting: ends[1])
        process = try Helper(
            ["/usr/bin/python3", "-c", Self.script, bus.address, attack.rawValue, target, "\(seconds)"],
            output: input.rawValue)
    }

    /// Waits for its end.
    ///
    /// - Returns: the number of messages that it has sent.
    func finish() throws -> Int {
        let text = String(decoding: try SmallFile.read(output), as: UTF8.self)
        process.end()
        return Int(text.prefix { $0 != "\n" }) ?? 0
    }

    private static let script = """
        import dbus, dbus.lowlevel, sys, time
        address, attack, target, seconds = sys.argv[1:]
        bus = dbus.bus.BusConnection(address)
        name = 'org.mpris.MediaPlayer2.hostile'
        bus.request_name(name)
        path = '/org/mpris/MediaPlayer2'
        player = 'org.mpris.MediaPlayer2.Player'

        def signal(value, first=player, destination=None):
            message = dbus.lowlevel.SignalMessage(path, 'org.freedesktop.DBus.Properties', 'PropertiesChanged')
            if destination: message.set_destination(destination)
            if isinstance(value, tuple): message.append(*value)
            else: message.append(first, {'PlaybackStatus': value}, dbus.Array([], signature='s'),
                                 signature='sa{sv}as')
            return message

        def forged():
            message = dbus.lowlevel.SignalMessage('/org/freedesktop/login1/user/_0',
                                                  'org.freedesktop.DBus.Properties', 'PropertiesChanged')
            message.set_destination(target)
            message.append('org.freedesktop.login1.User', {'State': 'x' * 32768}, dbus.Array([], signature='s'),
                           signature='sa{sv}as')
            return message

        daemon = bus.get_object('org.freedesktop.DBus', '/org/freedesktop/DBus')
        seen = set(bus.list_names())
        process = daemon.GetConnectionUnixProcessID(target) if attack == 'chase' else 0

        def find():
            global target, forgery
            for new in set(bus.list_names()) - seen:
                seen.add(new)
                try:
                    if new[0] == ':' and daemon.GetConnectionUnixProcessID(new) == process:
                        target = new
                        forgery = forged()
                except dbus.DBusException: pass

        states = ['Playing', 'Paused']
        nonsense = [
            signal(dbus.UInt64(7), destination=target), signal(('text',), destination=target),
            signal((dbus.Array([1, 2], signature='u'), 3), destination=target),
            signal(dbus.Struct((1, 'x', dbus.Array([], signature='v'))), destination=target),
            signal('x' * 100000, destination=target), signal('Playing', 'x' * 100000, destination=target),
            signal((player, dbus.Dictionary({'y': 'z'}, signature='ss'), 'w'), destination=target)]
        nested = 'Playing'
        for _ in range(20): nested = dbus.Array([nested], signature='v')
        nonsense.append(signal(nested, destination=target))
        forgery = forged()
        large = signal('x' * (8 << 20), destination=target)
        count, start = 0, time.monotonic()
        while time.monotonic() - start < float(seconds):
            for step in range(100):
                count += 1
                if attack == 'changes': bus.send_message(signal(states[count % 2]))
                elif attack == 'direct': bus.send_message(signal(states[count % 2], destination=target))
                elif attack == 'nonsense': bus.send_message(nonsense[count % len(nonsense)])
                elif attack in ('forgery', 'chase'): bus.send_message(forgery)
                elif attack == 'huge':
                    bus.send_message(large)
                    bus.flush()
                    break
                elif attack == 'calls':
                    call = dbus.lowlevel.MethodCallMessage(target, path, 'org.example.Other', 'Other')
                    call.append('text')
                    bus.send_message(call)
                elif attack == 'names':
                    other = '%s%d' % (name, count % 300)
                    bus.request_name(other, dbus.bus.NAME_FLAG_DO_NOT_QUEUE)
                    if count % 3: bus.release_name(other)
            bus.flush()
            if attack == 'chase' and count % 1000 == 0: find()
            # 10,000 a second, if the machine has the time.
            rest = start + count / 10000 - time.monotonic()
            if rest > 0 and attack != 'huge': time.sleep(rest)
        print(count, flush=True)
        """
}
