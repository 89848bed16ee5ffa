import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire

/// A client that sleeps with a connection to a real server, without our code on the other side.
final class ServerScene {
    static let name = "org.example.phone"

    /// The duration of its sleep: `NIGHTBELL_SERVER_SECONDS`, or long enough for a few pings.
    static func seconds(atLeast least: Int) -> Int {
        ProcessInfo.processInfo.environment["NIGHTBELL_SERVER_SECONDS"].flatMap(Int.init) ?? least
    }

    let daemon: DaemonProcess
    let scripted: ScriptedClientProcess
    /// Input that has been read and not been waited for.
    private var heard: [UInt8] = []

    init() throws {
        daemon = try DaemonProcess(suspension: "cgroup", "--set wakes.limit=100000")
        scripted = try ScriptedClientProcess(path: daemon.socketPath, Self.name)
    }

    // MARK: The client, awake

    func connect(_ port: UInt16, datagram: Bool = false) throws {
        try scripted.command("\(datagram ? "connected-udp" : "connect-tcp") \(port) flow")
    }

    func say(_ text: String) throws { try say(Array(text.utf8)) }

    func say(_ bytes: [UInt8]) throws {
        try scripted.command(
            "write-hex flow " + bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined())
    }

    /// Reads up to the end of this text, and no further; returns everything read until then.
    @discardableResult
    func hears(_ text: String) throws -> String {
        let wanted = Array(text.utf8)
        while true {
            if let end = heard.end(of: wanted) {
                defer { heard.removeFirst(end) }
                return String(decoding: heard.prefix(end), as: UTF8.self)
            }
            let hex = try scripted.command("read-hex flow")
            guard hex != "nothing", !hex.isEmpty else {
                throw TestFailure("the server says \(String(decoding: heard, as: UTF8.self)), not \(text)")
            }
            heard += stride(from: 0, to: hex.utf8.count, by: 2).compactMap { offset in
                UInt8(hex.dropFirst(offset).prefix(2), radix: 16)
            }
        }
    }

    func hears(bytes: Int) throws -> [UInt8] {
        while heard.count < bytes {
            let hex = try scripted.command("read-hex flow")
            guard hex != "nothing", !hex.isEmpty else { throw TestFailure("the server says only \(heard)") }
            heard += stride(from: 0, to: hex.utf8.count, by: 2).compactMap { offset in
                UInt8(hex.dropFirst(offset).prefix(2), radix: 16)
            }
        }
        defer { heard.removeFirst(bytes) }
        return Array(heard.prefix(bytes))
    }

    // MARK: Asleep

    /// Falls asleep, with a profile if one is given.
    func sleep(_ profile: String?, _ delegate: String? = nil) throws {
        try scripted.command("handover flow voip " + (profile.map { "profile=\($0)" } ?? ""))
        if let delegate { try scripted.command("delegate flow \(delegate)") }
        try scripted.command("auto-read hex")
        try scripted.enterBackground()
        try suspended()
    }

    func suspended() throws {
        try WireClient(path: daemon.socketPath).wait(
            for: Self.name, toBe: .suspended, path: daemon.socketPath)
    }

    func info() throws -> WireClientInfo { try WireClient(path: daemon.socketPath).show(Self.name) }

    /// Lets time pass. The caller detects an early end.
    func pass(seconds: Int) throws {
        let end = BootClock.now() + Int64(seconds) * 1_000_000_000
        while BootClock.now() < end {
            // The test client prints nothing while it sleeps; if it is woken, it does.
            let left = CInt(clamping: (end - BootClock.now()) / 1_000_000 + 1)
            _ = Poll.wait(
                scripted.child.channel.rawValue, for: .peerClosed, timeoutMilliseconds: min(left, 1_000))
        }
    }

    /// Asleep all the time, with its pings handled.
    func staysAsleep(seconds: Int) throws -> WireOffloadCounters {
        try pass(seconds: seconds)
        let info = try info()
        guard info.state == .suspended, info.counters["wakes"] == 0 else {
            throw TestFailure(
                "\(info.state), \(info.counters["wakes"]) wakes, \(info.offload), \(scripted.heard("wake"))")
        }
        return info.offload
    }

    /// Expects one wake by a message; returns the client's input, which must end with this.
    func wakesOnce(for end: String) throws -> [UInt8] {
        try scripted.event("wake")
        var bytes: [UInt8] = []
        while !bytes.suffix(end.utf8.count).elementsEqual(end.utf8) {
            // read NAME COUNT TIME CONTENTS
            bytes += Self.bytes(try scripted.event("read").split(separator: " ").last ?? "")
        }
        let info = try info()
        guard info.counters["wakes"] == 1 else { throw TestFailure("\(info.counters["wakes"]) wakes") }
        return bytes
    }

    private static func bytes(_ hex: Substring) -> [UInt8] {
        let digits = Array(hex.utf8)
        return stride(from: 0, to: digits.count - 1, by: 2).compactMap { index in
            UInt8(String(decoding: digits[index...index + 1], as: UTF8.self), radix: 16)
        }
    }
}

extension [UInt8] {
    /// The end of the first occurrence of these bytes.
    fileprivate func end(of wanted: [UInt8]) -> Int? {
        guard count >= wanted.count else { return nil }
        return (0...(count - wanted.count)).first { self[$0..<($0 + wanted.count)].elementsEqual(wanted) }
            .map { $0 + wanted.count }
    }
}

/// A server program in a directory of its own, ended with the test.
final class RealServer {
    let directory: String
    let port: UInt16
    private let child: Child

    static func isInstalled(_ program: String) -> Bool { access(program, X_OK) == 0 }

    /// Writes its configuration and starts it, by a shell, in the foreground.
    ///
    /// - Parameter files: by name; `PORT` and `DIRECTORY` in them are replaced.
    init(
        _ command: String, files: [String: String], datagram: Bool = false, prepare: String = ":"
    ) throws {
        let directory = NSTemporaryDirectory() + "nightbell-server-\(UUID().uuidString)"
        self.directory = directory
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        try FileManager.default.setAttributes([.posixPermissions: 0o777], ofItemAtPath: directory)
        let (listener, address) = try Pair.listener()
        let port = UInt16(bigEndian: address.sin_port)
        self.port = port
        close(listener)
        func filled(_ text: String) -> String {
            text.replacingOccurrences(of: "PORT", with: "\(port)")
                .replacingOccurrences(of: "DIRECTORY", with: directory)
        }
        for (name, text) in files {
            try filled(text).write(toFile: "\(directory)/\(name)", atomically: true, encoding: .utf8)
        }
        let script = "cd '\(directory)'; \(filled(prepare)); exec \(filled(command)) >log 2>&1"
        child = try Child("/bin/bash", "--norc", "-c", script)
        if datagram { return }
        guard eventually(within: 20_000, { self.isListening }) else {
            let log = (try? String(contentsOfFile: "\(directory)/log", encoding: .utf8)) ?? ""
            throw TestFailure("the server does not listen: \(log.suffix(2_000))")
        }
    }

    private var isListening: Bool {
        do {
            close(try connected())
            return true
        } catch {
            return false
        }
    }

    /// Connects another client to the server: the test itself.
    func connected() throws -> Int32 {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        guard Pair.withAddress(address, { connect(descriptor, $0, $1) }) == 0 else {
            close(descriptor)
            throw Pair.failure("connect")
        }
        return descriptor
    }

    deinit {
        kill(child.pid, SIGTERM)
        if let handle = try? child.handle() {
            _ = Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 5_000)
        }
        child.end()
        try? FileManager.default.removeItem(atPath: directory)
    }
}

/// A second client of a server, in the test's own process.
final class SecondClient {
    let descriptor: Int32
    private var heard = ""

    init(_ server: RealServer) throws { descriptor = try server.connected() }

    func say(_ text: String) throws { try descriptor.say(text) }

    @discardableResult
    func hears(_ text: String) throws -> String {
        while !heard.contains(text) {
            guard Poll.wait(descriptor, for: .readable, timeoutMilliseconds: 10_000).contains(.readable)
            else {
                throw TestFailure("heard \(heard), not \(text)")
            }
            var buffer = [UInt8](repeating: 0, count: 4_096)
            let count = recv(descriptor, &buffer, buffer.count, 0)
            guard count > 0 else { throw TestFailure("heard \(heard), then the end") }
            heard += String(decoding: buffer[..<count], as: UTF8.self)
        }
        defer { heard = "" }
        return heard
    }

    deinit { close(descriptor) }
}
