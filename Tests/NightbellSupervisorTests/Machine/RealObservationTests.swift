import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import NightbellWire
import Testing

/// The daemon, the real `nightbell-monitor` and a terminal: an accessory named by a link below `/dev`, as
/// udev makes them.
@Suite(.serialized, .timeLimit(.minutes(40)))
struct RealObservationTests {
    private static let name = "org.example.tracker"

    /// A pseudo terminal, and a link to it.
    private final class Accessory {
        private let directory = deviceDirectory + "/\(UUID().uuidString)"
        var link: String { directory + "/reader" }
        private(set) var master: Int32 = -1

        init() throws {
            guard mkdir(directory, 0o755) == 0 else { throw Pair.failure("mkdir") }
        }

        /// Attaches it, or another one.
        func attach() throws {
            detach()
            var terminal: Int32 = -1
            var name = [CChar](repeating: 0, count: 64)
            guard openpty(&master, &terminal, &name, nil, nil) == 0 else { throw Pair.failure("openpty") }
            close(terminal)
            guard symlink(name, link) == 0 else { throw Pair.failure("symlink") }
        }

        /// The terminal hangs up.
        func detach() {
            unlink(link)
            if master >= 0 { close(master) }
            master = -1
        }

        func send(_ text: String) { _ = write(master, text, text.utf8.count) }

        deinit {
            detach()
            rmdir(directory)
        }
    }

    private func waitFor(_ source: String, _ daemon: DaemonProcess) throws {
        let observer = try WireClient(path: daemon.socketPath)
        let isKnown = try eventually(within: 20_000) {
            try observer.status().sources.first { $0.name == source }?.isAvailable == true
        }
        guard isKnown else { throw TestFailure("\(source) does not become known") }
    }

    /// GeoClue and BlueZ are mocks, the monitor is not. The signals of a peer that is not BlueZ wake no
    /// client.
    @Test func locationsAndBluetoothWake() throws {
        let services = try MockServices()
        let daemon = try DaemonProcess(
            suspension: "cgroup", before: "export DBUS_SYSTEM_BUS_ADDRESS='\(services.busAddress)'")
        let observer = try WireClient(path: daemon.socketPath)
        let client = try ScriptedClientProcess(
            path: daemon.socketPath, Self.name, "location bluetooth-central")
        for words in [
            "far significant", "home region 52 13 500", "band bluetooth \(MockServices.device)",
            "heart characteristic \(MockServices.characteristic)",
        ] { try client.command("observe " + words) }
        for source in ["location", "bluetooth"] { try waitFor(source, daemon) }
        try client.enterBackground()
        func asleep() throws {
            try observer.wait(for: Self.name, toBe: .suspended, path: daemon.socketPath)
        }
        try asleep()
        for (happening, observed) in [
            ("move 52 13", "far moved 52.0 13.0"), ("connect", "band connected"),
            ("notify 77", "heart value [77]"),
            ("move 52.1 13", "home exited"), ("notify 77", "heart value [77]"),
            ("disconnect", "band disconnected"),
        ] {
            try services.tell("forge 66")
            try services.tell(happening)
            #expect(try client.event("observed") == "observed " + observed)
            try asleep()
        }
        #expect(client.heard("observed").isEmpty)
        #expect(try observer.show(Self.name).counters.counts["wakes"] == 6)
    }

    @Test(
        .enabled(if: geteuid() == 0, "only root makes names below /dev"), arguments: FaultTests.ways)
    func dataAndReturnOfAnAccessoryWake(way: String) throws {
        let accessory = try Accessory()
        try accessory.attach()
        let daemon = try DaemonProcess(suspension: way)
        let observer = try WireClient(path: daemon.socketPath)
        let client = try ScriptedClientProcess(path: daemon.socketPath, Self.name, "external-accessory")
        try client.command("observe radio accessory \(accessory.link)")
        try client.command("open \(accessory.link) tty")
        try client.command("handover tty device")
        try waitFor("devices", daemon)
        try client.enterBackground()
        try observer.wait(for: Self.name, toBe: .suspended, path: daemon.socketPath)
        accessory.send("data\n")
        #expect(try client.event("wake").contains("reasons=socket sockets=tty:readable"))
        try client.command("read tty")
        #expect(try client.event("read").hasPrefix("read tty 5 "))
        try observer.wait(for: Self.name, toBe: .suspended, path: daemon.socketPath)
        accessory.detach()
        #expect(try client.event("observed") == "observed radio disconnected")
        try client.command("close tty")
        try observer.wait(for: Self.name, toBe: .suspended, path: daemon.socketPath)
        try accessory.attach()
        #expect(try client.event("observed").hasPrefix("observed radio connected /dev/pts/"))
        // The session is made again.
        try client.command("open \(accessory.link) tty")
        try client.command("handover tty device")
        try observer.wait(for: Self.name, toBe: .suspended, path: daemon.socketPath)
        accessory.send("more\n")
        while try !client.event("wake").contains("sockets=tty:readable") {}
        try client.command("read tty")
        #expect(try client.event("read").hasPrefix("read tty 5 "))
    }
}
