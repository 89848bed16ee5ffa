import EdgeTestSupport
import Glibc
import LinuxSystem
import NightbellWire
import Testing

@Suite("Media") struct AudioTests {
    private func audio(_ fact: MonitorProcess.Fact) -> WireMonitorReport.Audio? {
        if case .audio(let audio) = fact { audio } else { nil }
    }

    private func wait(
        _ monitor: MonitorProcess, _ condition: (WireMonitorReport.Audio) -> Bool
    ) throws {
        _ = try monitor.first { audio($0).flatMap { condition($0) ? true : nil } }
    }

    @Test("A stream counts while it runs and is not muted, with the process that the kernel names")
    func playing() throws {
        let server = try PipeWireServer()
        try server.start()
        let monitor = try MonitorProcess(["--session"], environment: server.environment)
        try monitor.demand([.audio])
        try wait(monitor) { $0.isPipewireThere && $0.streaming.isEmpty }
        let player = try server.play()
        try wait(monitor) { $0.streaming == [UInt32(player.pid)] }
        try server.setMuted(true, of: player.pid)
        try wait(monitor) { $0.streaming.isEmpty }
        try server.setMuted(false, of: player.pid)
        try wait(monitor) { $0.streaming == [UInt32(player.pid)] }
        player.end()
        try wait(monitor) { $0.streaming.isEmpty && $0.isPipewireThere }
    }

    @Test("Recording counts as well, and several processes are told apart")
    func recording() throws {
        let server = try PipeWireServer()
        try server.start()
        let monitor = try MonitorProcess(["--session"], environment: server.environment)
        try monitor.demand([.audio])
        let player = try server.play()
        let recorder = try server.record()
        let both = [UInt32(player.pid), UInt32(recorder.pid)].sorted()
        try wait(monitor) { $0.streaming == both }
        player.end()
        try wait(monitor) { $0.streaming == [UInt32(recorder.pid)] }
        recorder.end()
        try wait(monitor) { $0.streaming.isEmpty }
    }

    @Test("PipeWire comes, goes and comes back; while it is gone, streams are unknown")
    func restart() throws {
        let server = try PipeWireServer()
        let monitor = try MonitorProcess(["--session"], environment: server.environment)
        try monitor.demand([.audio])
        try wait(monitor) { !$0.isPipewireThere }
        for _ in 0..<2 {
            try server.start()
            try wait(monitor) { $0.isPipewireThere && $0.streaming.isEmpty }
            let player = try server.play()
            try wait(monitor) { $0.streaming == [UInt32(player.pid)] }
            server.stop()
            try wait(monitor) { !$0.isPipewireThere && $0.streaming.isEmpty }
            player.end()
        }
    }

    @Test("A monitor for the whole machine does not observe media")
    func noSession() throws {
        let server = try PipeWireServer()
        try server.start()
        let monitor = try MonitorProcess(environment: server.environment)
        try monitor.demand([.audio])
        #expect(try monitor.availability(of: .audio, is: false).contains("session"))
    }

    // MARK: MPRIS

    private static let player = "org.mpris.MediaPlayer2.Player"

    private func mock(_ bus: PrivateBus, _ name: String, _ status: String) throws -> MockService {
        let mock = try MockService(
            bus, name: "org.mpris.MediaPlayer2.\(name)", path: "/org/mpris/MediaPlayer2",
            interface: "org.mpris.MediaPlayer2")
        // Only a change has a signal.
        try mock.tell("AddProperty", Self.player, "PlaybackStatus", "<''>")
        try mock.update(Self.player, "{'PlaybackStatus': <'\(status)'>}")
        return mock
    }

    @Test("Players on the session's bus say that they play; their processes are the kernel's word")
    func players() throws {
        let bus = try PrivateBus()
        let first = try mock(bus, "first", "Playing")
        let monitor = try MonitorProcess(
            ["--session"], environment: ["DBUS_SESSION_BUS_ADDRESS": bus.address])
        try monitor.demand([.audio])
        try wait(monitor) { !$0.isPipewireThere && $0.playing == [UInt32(first.pid)] }
        let second = try mock(bus, "second", "Paused")
        try second.update(Self.player, "{'PlaybackStatus': <'Playing'>}")
        try wait(monitor) { $0.playing == [UInt32(first.pid), UInt32(second.pid)].sorted() }
        try first.update(Self.player, "{'PlaybackStatus': <'Stopped'>}")
        try wait(monitor) { $0.playing == [UInt32(second.pid)] }
        second.end()
        try wait(monitor) { $0.playing.isEmpty }
        first.end()
    }

    @Test("The session's bus may come later, and come back")
    func busRestart() throws {
        let bus = try PrivateBus(starts: false)
        let monitor = try MonitorProcess(
            ["--session"], environment: ["DBUS_SESSION_BUS_ADDRESS": bus.address])
        try monitor.demand([.audio])
        #expect(try monitor.availability(of: .audio, is: false).contains("PipeWire is not running"))
        for _ in 0..<2 {
            try bus.start()
            _ = try monitor.availability(of: .audio, is: true)
            let player = try mock(bus, "player", "Playing")
            try wait(monitor) { $0.playing == [UInt32(player.pid)] }
            bus.stop()
            _ = try monitor.availability(of: .audio, is: false)
            player.end()
        }
    }
}
