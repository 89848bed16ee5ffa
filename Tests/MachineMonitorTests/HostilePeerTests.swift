import EdgeTestSupport
import Glibc
import LinuxSystem
import NightbellWire
import Testing

@Suite("Hostile peers", .serialized, .disabled(if: isSanitized, "a sanitizer changes the costs"))
struct HostilePeerTests {
    private func audio(_ fact: MonitorProcess.Fact) -> WireMonitorReport.Audio? {
        if case .audio(let audio) = fact { audio } else { nil }
    }

    @Test(
        "A peer of the session's bus costs bounded time, memory and reports, and honest ones are still heard",
        arguments: HostilePeer.Attack.allCases)
    func attack(attack: HostilePeer.Attack) throws {
        let seconds = 3
        let bus = try PrivateBus()
        let monitor = try MonitorProcess(
            ["--session"], environment: ["DBUS_SESSION_BUS_ADDRESS": bus.address])
        try monitor.demand([.audio, .power])
        _ = try monitor.availability(of: .audio, is: true)
        let target = try #require(try bus.uniqueName(of: monitor.pid))
        let memory = try writtenMemory(of: monitor.pid)
        let time = try processorTime(of: monitor.pid)
        let reports = monitor.received.count
        let start = BootClock.now()

        let peer = try HostilePeer(bus, attack, target: target, seconds: seconds)
        let sent = try peer.finish()
        #expect(sent > (attack == .huge ? 5 : 2_000), "the attack was none: \(sent) messages")
        let elapsed = Double(BootClock.now() - start) / 1_000_000_000
        let share = (try processorTime(of: monitor.pid) - time) / elapsed
        // A tenth is meant; what the kernel does for it comes on top, and more on a busy machine.
        #expect(share < 0.3, "\(attack) took \(share) of the time")

        // An honest player, behind all that the attack has left in the queues.
        let mock = try MockService(
            bus, name: "org.mpris.MediaPlayer2.honest", path: "/org/mpris/MediaPlayer2",
            interface: "org.mpris.MediaPlayer2")
        try mock.tell("AddProperty", "org.mpris.MediaPlayer2.Player", "PlaybackStatus", "<''>")
        try mock.update("org.mpris.MediaPlayer2.Player", "{'PlaybackStatus': <'Playing'>}")
        _ = try monitor.first(within: 60_000) {
            audio($0).flatMap { $0.playing.contains(UInt32(mock.pid)) ? true : nil }
        }
        let total = Double(BootClock.now() - start) / 1_000_000_000
        let count = monitor.received.count - reports
        #expect(count <= 24 + Int(total * 12), "\(attack) caused \(count) reports")
        // The memory of a message is free when it was handled.
        let isBounded = try eventually { try writtenMemory(of: monitor.pid) < memory + 1_048_576 }
        #expect(isBounded, "the memory of messages is kept")
        mock.end()
    }

    @Test(
        "A player that changes too often is ignored for a while, and the bus does not even send its changes")
    func mutedPlayer() throws {
        let bus = try PrivateBus()
        let monitor = try MonitorProcess(
            ["--session"], environment: ["DBUS_SESSION_BUS_ADDRESS": bus.address])
        try monitor.demand([.audio])
        _ = try monitor.availability(of: .audio, is: true)
        let target = try #require(try bus.uniqueName(of: monitor.pid))
        let time = try processorTime(of: monitor.pid)
        let sent = try HostilePeer(bus, .changes, target: target, seconds: 3).finish()
        let perMessage = (try processorTime(of: monitor.pid) - time) / Double(sent)
        // Receiving one takes some 10 µs.
        #expect(perMessage < 0.000_003, "\(perMessage) s for each of \(sent) changes")
    }
}

@Suite("A bus that discards signals") struct DiscardedSignalTests {
    private func audio(_ fact: MonitorProcess.Fact) -> WireMonitorReport.Audio? {
        if case .audio(let audio) = fact { audio } else { nil }
    }

    @Test("The monitor asks for what it has missed")
    func recovery() throws {
        let bus = try PrivateBus(mostQueued: 3_000_000)
        let monitor = try MonitorProcess(
            ["--session"], environment: ["DBUS_SESSION_BUS_ADDRESS": bus.address])
        try monitor.demand([.audio])
        _ = try monitor.availability(of: .audio, is: true)
        let target = try #require(try bus.uniqueName(of: monitor.pid))
        kill(monitor.pid, SIGSTOP)
        // More than the bus keeps for it; what comes afterwards is discarded.
        let sent = try HostilePeer(bus, .direct, target: target, seconds: 6).finish()
        try check(sent > 14_000, "\(sent) messages are too few")
        let mock = try MockService(
            bus, name: "org.mpris.MediaPlayer2.honest", path: "/org/mpris/MediaPlayer2",
            interface: "org.mpris.MediaPlayer2")
        try mock.tell("AddProperty", "org.mpris.MediaPlayer2.Player", "PlaybackStatus", "<'Playing'>")
        kill(monitor.pid, SIGCONT)
        _ = try monitor.first { audio($0).flatMap { $0.playing.contains(UInt32(mock.pid)) ? true : nil } }
        mock.end()
    }
}

@Suite("The cost of observing", .serialized, .disabled(if: isSanitized, "a sanitizer changes the costs"))
struct CostTests {
    private static let sources: [WireMonitorSource] = [
        .network, .power, .sleep, .users, .audio, .location, .bluetooth, .devices,
    ]

    /// A monitor with all sources, and the components of most of them.
    private func busyMonitor() throws -> (MonitorProcess, PipeWireServer, [MockService]) {
        let server = try PipeWireServer()
        let mocks = [
            try MockService(
                server.bus, template: "logind", name: "org.freedesktop.login1",
                path: "/org/freedesktop/login1"),
            try MockService(
                server.bus, template: "upower", name: "org.freedesktop.UPower",
                path: "/org/freedesktop/UPower"),
            try MockService(
                server.bus, name: "org.bluez", path: "/", interface: "org.bluez.Mock", isObjectManager: true),
        ]
        try server.start()
        let monitor = try MonitorProcess(["--session"], environment: server.environment)
        try monitor.demand(Self.sources) {
            $0.delaysSleep = true
            $0.location.accuracy = 8
            $0.devices = ["/dev/serial/by-id/usb-adapter"]
            $0.bluetoothDevices = ["/org/bluez/hci0/dev_11_22_33_44_55_66"]
        }
        _ = try monitor.first { if case .audio(let audio) = $0, audio.isPipewireThere { true } else { nil } }
        while try monitor.next(within: 2_000) != nil {}
        return (monitor, server, mocks)
    }

    /// Whether it does not run for 10 s, within some time: on a busy machine its components may be busy with
    /// their start for long, and other tests change the machine's network.
    private func isQuiet(_ monitor: MonitorProcess) throws -> Bool {
        for _ in 1...6 {
            let before = try contextSwitches(of: monitor.pid)
            guard try monitor.next(within: 10_000) == nil else { continue }
            if try contextSwitches(of: monitor.pid) == before { return true }
        }
        return false
    }

    @Test("With all sources it has written at most 6 MiB, and while all is quiet it does not run")
    func quiet() throws {
        let (monitor, server, mocks) = try busyMonitor()
        let available = Set(
            monitor.received.compactMap { fact in
                if case .source(let state) = fact, state.isAvailable { state.source } else { nil }
            })
        #expect(available == Set(Self.sources).subtracting([.location]))
        let memory = try writtenMemory(of: monitor.pid)
        print("nightbell-monitor with all sources has written \(memory / 1_024) KiB")
        #expect(memory <= 6 * 1_048_576, "\(memory) bytes")
        #expect(try isQuiet(monitor))
        mocks.forEach { $0.end() }
        server.stop()
    }

    @Test("Without a bus it does not run, either, while all is quiet")
    func quietWithoutBus() throws {
        let directory = try TemporaryDirectory()
        let address = "unix:path=\(directory.file("bus"))"
        let monitor = try MonitorProcess(
            ["--session"],
            environment: [
                "DBUS_SYSTEM_BUS_ADDRESS": address, "DBUS_SESSION_BUS_ADDRESS": address,
                "XDG_RUNTIME_DIR": directory.path,
            ])
        try monitor.demand([.power, .sleep, .users, .audio, .bluetooth])
        _ = try monitor.availability(of: .bluetooth, is: false)
        while try monitor.next(within: 1_000) != nil {}
        #expect(try isQuiet(monitor))
    }

    @Test("Sources that are not demanded any more leave no descriptor and no timer")
    func closing() throws {
        let monitor = try MonitorProcess()
        try monitor.demand([.users])
        _ = try monitor.availability(of: .users, is: false)
        try monitor.demand([])
        let empty = try #require(ProcFS.openDescriptors(monitor.pid))
        monitor.kill()
        let (busy, server, mocks) = try busyMonitor()
        try busy.demand([])
        #expect(eventually(within: 30_000) { ProcFS.openDescriptors(busy.pid) ?? .max <= empty })
        server.stop()
        mocks.forEach { $0.end() }
        #expect(try busy.next(within: 500) == nil)
        // It can be demanded again.
        try busy.demand([.network])
        _ = try busy.first { if case .network = $0 { true } else { nil } }
    }
}
