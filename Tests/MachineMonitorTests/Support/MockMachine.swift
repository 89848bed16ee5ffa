import EdgeTestSupport
import LinuxSystem

/// A machine of umockdev with one device, `/dev/serial/by-id/usb-adapter`, for processes with its
/// environment.
final class MockMachine {
    private let child: Child
    private let root: String

    var environment: [String: String] {
        ["LD_PRELOAD": "libumockdev-preload.so.0", "UMOCKDEV_DIR": root]
    }

    init() throws {
        child = try Child(
            "/usr/bin/umockdev-wrapper", ["/usr/bin/python3", "-c", Self.script],
            environment: ["PATH": "/usr/bin:/bin"])
        guard let answer = try child.hear(within: 60_000), answer.hasPrefix("/") else {
            throw SupportError(text: "umockdev does not start")
        }
        root = String(answer.prefix { $0 != "\n" })
    }

    /// `remove`: the device hangs up, its node goes, and udev tells of it; `add`: another one is there; `send
    /// TEXT`: it has data.
    func tell(_ action: String) throws {
        try child.send(action + "\n")
        try check(try child.hear(within: 60_000) == "done\n", "umockdev does not \(action) its device")
    }

    private static let script = """
        import gi, os, sys
        gi.require_version('UMockdev', '1.0')
        from gi.repository import UMockdev
        testbed = UMockdev.Testbed.new()
        root = testbed.get_root_dir()
        # Monitors are another user's, and make sockets in it.
        os.chmod(root, 0o777)
        testbed.add_from_string('P: /devices/pci/usb1/1-1/tty/ttyACM0\\nN: ttyACM0\\nS: serial/by-id/usb-adapter\\n'
                                'E: SUBSYSTEM=tty\\nE: DEVNAME=/dev/ttyACM0\\nA: dev=166:0\\n')
        node = root + '/dev/ttyACM0'
        def attach():
            # A terminal of the real machine.
            master, terminal = os.openpty()
            os.symlink(os.ttyname(terminal), node)
            os.close(terminal)
            return master
        os.unlink(node)
        device = attach()
        print(root, flush=True)
        for line in sys.stdin:
            words = line.split()
            if words[0] == 'send':
                os.write(device, words[1].encode())
            else:
                if words[0] == 'remove':
                    os.unlink(node)
                    os.close(device)
                else:
                    device = attach()
                testbed.uevent('/sys/devices/pci/usb1/1-1/tty/ttyACM0', words[0])
            print('done', flush=True)
        """
}
