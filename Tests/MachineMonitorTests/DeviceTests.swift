import EdgeTestSupport
import Glibc
import LinuxSystem
import NightbellWire
import Testing

@Suite("Devices") struct DeviceTests {
    private func devices(_ fact: MonitorProcess.Fact) -> [String: String]? {
        guard case .devices(let devices) = fact else { return nil }
        return Dictionary(uniqueKeysWithValues: devices.present.map { ($0.name, $0.node) })
    }

    /// A pair of terminals; the link leads to the first one.
    private func terminals(_ link: String) throws -> Helper {
        try Helper(["/usr/bin/socat", "pty,raw,echo=0,link=\(link)", "pty,raw,echo=0"])
    }

    @Test("A demanded device is reported when it comes, goes, and comes back as another node")
    func plugging() throws {
        let directory = try TemporaryDirectory()
        let name = directory.file("usb-adapter")
        let monitor = try MonitorProcess()
        try monitor.demand([.devices]) { $0.devices = [name, directory.file("other")] }
        #expect(try monitor.first { devices($0) } == [:])
        let first = try terminals(name)
        let node = try #require(try monitor.first { devices($0) }[name])
        #expect(node.hasPrefix("/dev/pts/"))
        // The link stays, and leads nowhere: as a node, it is gone.
        first.end()
        unlink(name)
        #expect(try monitor.first { devices($0) } == [:])
        let second = try terminals(name)
        #expect(try monitor.first { devices($0) }.keys.sorted() == [name])
        second.end()
    }

    @Test("The same demand again is answered again, also if one between was not read")
    func again() throws {
        let monitor = try MonitorProcess()
        let names = ["/dev/serial/by-id/usb-one"]
        for number in [1, 2, 7] as [UInt64] {
            try monitor.demand([.devices]) {
                $0.devices = names
                $0.number = number
            }
            #expect(try monitor.first { devices($0) } == [:])
        }
    }

    @Test("The largest demand is answered: three kinds of 128 names of 255 bytes")
    func largest() throws {
        func names(_ prefix: String) -> [String] {
            (100..<228).map { prefix + String(repeating: "x", count: 252 - prefix.utf8.count) + "\($0)" }
        }
        let monitor = try MonitorProcess()
        try monitor.demand([.bluetooth, .devices]) {
            $0.devices = names("/dev/")
            $0.bluetoothDevices = names("/org/bluez/")
            $0.characteristics = names("/org/bluez/hci0/")
        }
        let absent = try monitor.first { fact -> [String]? in
            if case .devices(let devices) = fact { devices.absent } else { nil }
        }
        #expect(absent == names("/dev/").sorted())
    }

    @Test("A device that cannot be looked up is neither present nor absent")
    func unknown() throws {
        let monitor = try MonitorProcess()
        let name = "/dev/null"
        try monitor.demand([.network]) { $0.number = 1 }
        _ = try monitor.first { if case .network = $0 { true } else { nil } }
        // No descriptor is left for it.
        #expect(try run(["/usr/bin/prlimit", "--pid=\(monitor.pid)", "--nofile=3:3"]))
        try monitor.demand([.network, .devices]) {
            $0.number = 2
            $0.devices = [name, "/nonexistent"]
        }
        let report = try monitor.first { fact -> WireMonitorReport.Devices? in
            if case .devices(let devices) = fact { devices } else { nil }
        }
        #expect(report.present.isEmpty && report.absent.isEmpty)
    }

    @Test("Its directory may come with the device, and go with it")
    func directories() throws {
        let directory = try TemporaryDirectory()
        let parent = directory.file("serial")
        let name = parent + "/by-id/usb-adapter"
        let monitor = try MonitorProcess()
        try monitor.demand([.devices]) { $0.devices = [name] }
        #expect(try monitor.first { devices($0) } == [:])
        for _ in 0..<2 {
            try run(["/bin/mkdir", "-p", parent + "/by-id"])
            let device = try terminals(name)
            #expect(try monitor.first { devices($0) }.keys.sorted() == [name])
            device.end()
            try run(["/bin/rm", "-r", parent])
            #expect(try monitor.first { devices($0) } == [:])
        }
    }

    @Test("Files that are no devices, and names that were not demanded, are not reported")
    func files() throws {
        let directory = try TemporaryDirectory()
        let file = directory.file("file")
        let monitor = try MonitorProcess()
        try monitor.demand([.devices]) { $0.devices = [file, "relative", "/dev/null"] }
        #expect(try monitor.first { devices($0) } == ["/dev/null": "/dev/null"])
        _ = try OwnedDescriptor(opening: file, O_WRONLY | O_CREAT, mode: 0o600)
        let other = try terminals(directory.file("other"))
        #expect(try monitor.next(within: 500) == nil)
        try monitor.demand([.devices]) { $0.devices = [] }
        #expect(try monitor.first { devices($0) } == [:])
        other.end()
    }

    @Test("A directory with much traffic causes no reports, and a bounded number of looks")
    func busyDirectory() throws {
        let directory = try TemporaryDirectory()
        let monitor = try MonitorProcess()
        try monitor.demand([.devices]) { $0.devices = [directory.file("device")] }
        #expect(try monitor.first { devices($0) } == [:])
        let before = try processorTime(of: monitor.pid)
        let start = BootClock.now()
        while BootClock.now() - start < 1_000_000_000 {
            _ = try OwnedDescriptor(opening: directory.file("file"), O_WRONLY | O_CREAT, mode: 0o600)
            unlink(directory.file("file"))
        }
        #expect(try processorTime(of: monitor.pid) - before < 0.5)
        #expect(try monitor.next(within: 200) == nil)
    }

    @Test("Events of udev are heeded, in a mock of it")
    func udev() throws {
        let machine = try MockMachine()
        let monitor = try MonitorProcess(environment: machine.environment)
        let name = "/dev/serial/by-id/usb-adapter"
        try monitor.demand([.devices]) { $0.devices = [name] }
        #expect(try monitor.first { devices($0) }.keys.sorted() == [name])
        for _ in 0..<2 {
            // The name itself stays: only udev tells of it.
            try machine.tell("remove")
            #expect(try monitor.first { devices($0) } == [:])
            try machine.tell("add")
            #expect(try monitor.first { devices($0) }.keys.sorted() == [name])
        }
    }
}
