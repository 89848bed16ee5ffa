import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import Testing

/// A peer's attack on a sleeper costs the supervisor a bounded amount of time and memory, and ends in a wake.
@Suite(.serialized, .timeLimit(.minutes(40))) struct HostilePeerTests {
    private static let name = "org.example.phone"
    private static let million = 1_000_000

    struct Attack: Sendable, CustomTestStringConvertible {
        let profile: String
        let beginning: [UInt8]
        let filler: UInt8

        init(_ profile: String, _ beginning: String, _ filler: Character = "x") {
            self.init(profile, Array(beginning.utf8), filler.asciiValue ?? 0)
        }

        init(_ profile: String, _ beginning: [UInt8], _ filler: UInt8) {
            (self.profile, self.beginning, self.filler) = (profile, beginning, filler)
        }

        var testDescription: String { "\(profile): \(beginning.prefix(16))" }

        func bytes(_ count: Int) -> [UInt8] {
            beginning + [UInt8](repeating: filler, count: count - beginning.count)
        }
    }

    /// Each begins like noise and never ends.
    static let attacks = [
        Attack("sip", "OPTIONS sip:"), Attack("sip", "OPTIONS sip:a@b SIP/2.0\r\nVia: "),
        Attack("sip", "OPTIONS sip:a@b SIP/2.0\r\nContent-Length: 99999999999999999999\r\n\r\n"),
        Attack("sip", "\r", "\r"), Attack("xmpp", "<iq type='get' id='"), Attack("xmpp", "<iq><iq>", "<"),
        Attack("xmpp", " ", " "), Attack("irc", "PING :"), Attack("irc", ":", ":"),
        Attack("imap", "* OK Still here"), Attack("lines", "ping"), Attack("lines", "", "p"),
        Attack("websocket", [0x89, 127, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], 0),
        Attack("websocket", [0x89, 126, 0xFF, 0xFF], 0), Attack("websocket", [0x8A, 125], 0x8A),
        Attack("mqtt", [0xD0, 0xFF, 0xFF, 0xFF, 0x7F], 0), Attack("mqtt", [0xD0], 0xFF),
        Attack("stun", [0x01, 0x01, 0xFF, 0xFC, 0x21, 0x12, 0xA4, 0x42], 0),
    ]

    /// A sleeper that reads after each wake, and the process that watches its connection.
    private struct SupervisedClient {
        let daemon: DaemonProcess
        let scripted: ScriptedClientProcess
        let peer: Int32
        let worker: pid_t
        private let before: Cost

        init(_ profile: String, _ flags: String) throws {
            daemon = try DaemonProcess(suspension: "cgroup", "--set wakes.limit=100000 " + flags)
            scripted = try ScriptedClientProcess(path: daemon.socketPath, HostilePeerTests.name)
            peer = try scripted.connect("flow")
            try scripted.command("handover flow voip profile=\(profile)")
            try scripted.command("auto-read on")
            try scripted.enterBackground()
            try WireClient(path: daemon.socketPath).wait(
                for: HostilePeerTests.name, toBe: .suspended, path: daemon.socketPath)
            worker = try daemon.worker()
            before = try Cost(of: worker)
        }

        func info() throws -> WireClientInfo {
            try WireClient(path: daemon.socketPath).show(HostilePeerTests.name)
        }

        /// Waits until the owner has read so much.
        func reads(_ count: Int) throws {
            var left = count
            while left > 0 {
                // read NAME COUNT TIME
                left -= Int(try scripted.event("read").split(separator: " ")[2]) ?? 0
            }
            #expect(left == 0)
        }

        func cost() throws -> Cost { try Cost(of: worker) - before }
    }

    /// A process's resource usage, as the kernel reports it.
    private struct Cost {
        var seconds: Double
        /// The peak of its memory.
        var kibibytes: Int

        init(of pid: pid_t) throws {
            let stat = try String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8)
            let fields = stat.split(separator: ")").last?.split(separator: " ") ?? []
            // utime and stime are the 14th and the 15th field; the name is the second.
            let ticks = (Int(fields[11]) ?? 0) + (Int(fields[12]) ?? 0)
            seconds = Double(ticks) / Double(sysconf(Int32(_SC_CLK_TCK)))
            let status = try String(contentsOfFile: "/proc/\(pid)/status", encoding: .utf8)
            let line = status.split(separator: "\n").first { $0.hasPrefix("VmHWM:") }
            kibibytes = Int(line?.split(whereSeparator: \.isWhitespace)[1] ?? "") ?? 0
        }

        static func - (left: Cost, right: Cost) -> Cost {
            var cost = left
            cost.seconds -= right.seconds
            cost.kibibytes -= right.kibibytes
            return cost
        }
    }

    private func expectModest(_ cost: Cost, seconds: Double = 1) {
        guard !isSanitized else { return }
        #expect(cost.seconds < seconds, "\(cost)")
        #expect(cost.kibibytes < 2_048, "\(cost)")
    }

    @Test(arguments: attacks) func messageOfAMillionBytesWakes(_ attack: Attack) throws {
        let scene = try SupervisedClient(attack.profile, "--set offload.partialTimeout=1s")
        defer { close(scene.peer) }
        try scene.peer.sayAll(attack.bytes(Self.million))
        try scene.scripted.event("wake")
        // The noise is consumed; the rest is in its socket, all of it.
        let info = try scene.info()
        #expect(info.counters["wakes"] >= 1)
        expectModest(try scene.cost())
    }

    @Test func everyByteBelongsToTheOwner() throws {
        let scene = try SupervisedClient("sip", "--set offload.partialTimeout=1s")
        defer { close(scene.peer) }
        try scene.peer.sayAll(Attack("sip", "OPTIONS sip:").bytes(Self.million))
        try scene.reads(Self.million)
        #expect(try scene.info().offload.absorbed == 0)
        expectModest(try scene.cost())
    }

    /// Byte by byte, slowly enough that the supervisor sees each one alone.
    @Test func aSlowPingHasATimeLimit() throws {
        let scene = try SupervisedClient("sip", "--set offload.partialTimeout=1s")
        defer { close(scene.peer) }
        var isOn: CInt = 1
        setsockopt(scene.peer, Int32(IPPROTO_TCP), TCP_NODELAY, &isOn, socklen_t(MemoryLayout<CInt>.size))
        let bytes = Attack("sip", "OPTIONS sip:").bytes(4_000)
        var sent = 0
        while sent < bytes.count, try scene.info().counters["wakes"] == 0 {
            // Each answer is of a later turn than the inspection of the byte before.
            try scene.peer.sayAll([bytes[sent]])
            sent += 1
        }
        #expect(sent > 0)
        try scene.scripted.event("wake")
        try scene.reads(sent)
        expectModest(try scene.cost(), seconds: 5)
    }

    @Test(arguments: [("sip", "\r\n\r\n"), ("lines", "nop\n"), ("irc", "PING :a\r\n"), ("xmpp", " ")])
    func floodOfPingsWakes(profile: String, ping: String) throws {
        let scene = try SupervisedClient(profile, "--set offload.noiseInterval=10s")
        defer { close(scene.peer) }
        // The answers stay unread.
        try scene.peer.sayAll(Array(String(repeating: ping, count: Self.million / ping.utf8.count).utf8))
        #expect(try scene.scripted.event("wake").contains("flooded"))
        // No more than one burst was absorbed, and a little for the time that has passed.
        let offload = try scene.info().offload
        #expect(offload.answered + offload.absorbed < 64, "\(offload)")
        expectModest(try scene.cost())
    }
}

extension Int32 {
    /// Sends everything, however long that takes the other side.
    fileprivate func sayAll(_ bytes: [UInt8]) throws {
        var position = 0
        while position < bytes.count {
            let sent = bytes.withUnsafeBytes {
                send(
                    self, $0.baseAddress?.advanced(by: position), bytes.count - position, Int32(MSG_NOSIGNAL))
            }
            guard sent > 0 else { throw Pair.failure("send") }
            position += sent
        }
    }
}
