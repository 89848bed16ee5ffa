import EdgeTestSupport
import LinuxSystem

/// A machine of umockdev with one device, `/dev/serial/by-id/usb-adapter`, for processes with its environment.
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

    /// Adds or removes the device node, and has udev tell of it.
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
        testbed.add_from_string('P: /devices/pci/usb1/1-1/tty/ttyACM0\\nN: ttyACM0\\nS: serial/by-id/usb-adapter\\n'
                                'E: SUBSYSTEM=tty\\nE: DEVNAME=/dev/ttyACM0\\nA: dev=166:0\\n')
        node = root + '/dev/ttyACM0'
        # It leads to a terminal of the real machine.
        terminal = os.readlink(node)
        print(root, flush=True)
        for line in sys.stdin:
            action = line.strip()
            if action == 'remove': os.unlink(node)
            else: os.symlink(terminal, node)
            testbed.uevent('/sys/devices/pci/usb1/1-1/tty/ttyACM0', action)
            print('done', flush=True)
        """
}
