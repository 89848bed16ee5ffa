package import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import Testing

/// A supervisor of a test's own, started as users start it.
package final class Fixture {
    package let directory: TemporaryDirectory
    package let manager: Listener
    package private(set) var daemon: Program
    private let start: () throws -> Program
    package var socket: String { directory.file("nightbell.sock") }

    /// Starts `nightbelld` and waits until it has notified its service manager.
    package init(
        _ arguments: [String] = [], environment: [String: String] = [:], program: String = "nightbelld"
    ) throws {
        directory = try TemporaryDirectory()
        manager = try Listener()
        var environment = environment
        environment["NOTIFY_SOCKET"] = manager.address
        let all =
            [
                "--system", "--runtime-directory", directory.path, "--keep-alive-minimum-timeout", "1s",
                "--set", "wakes.linger=50ms",
                // Memory pressure on this machine must not affect a test.
                "--set", "memoryPressure.file=",
            ] + arguments
        start = { [environment] in try Program(program, all, environment: environment) }
        daemon = try start()
        do {
            try manager.heard("READY=1")
        } catch {
            throw Program.Failure(description: "\(error): \(daemon.errors)")
        }
    }

    /// An orderly stop, and another supervisor with the same directories.
    package func restart() throws {
        daemon.send(signal: SIGTERM)
        _ = try daemon.outcome()
        daemon = try start()
        guard try eventually(within: 30_000, { try nightbell("status").code == 0 }) else {
            throw Program.Failure(description: "it does not start again: \(daemon.errors)")
        }
    }

    /// An orderly stop, so that its cgroups are removed.
    deinit {
        daemon.send(signal: SIGTERM)
        _ = try? daemon.outcome()
        let left = cgroupsLeft(by: directory.path)
        if !left.isEmpty { Issue.record("left behind: \(left)") }
    }

    /// Runs `nightbell` against this supervisor.
    package func nightbell(_ arguments: String...) throws -> Program.Outcome {
        try Program.run("nightbell", arguments, environment: ["NIGHTBELL_SOCKET": socket])
    }

    /// Starts a client through `nightbell run` that has a parked socket.
    package func client(_ identifier: String) throws -> Program {
        let scripted = try Program(
            "nightbell",
            ["run", "--socket", socket, "--identifier", identifier, "--", Program.product("scripted-client")])
        try scripted.say("hello \(identifier) voip")
        try scripted.say("unix-pair a")
        try scripted.say("handover a voip")
        try scripted.say("echo parked")
        try scripted.wrote("ok parked")
        return scripted
    }

    /// Sends a client to the background and waits until it is suspended.
    package func suspended(_ identifier: String) throws -> Program {
        let scripted = try client(identifier)
        try scripted.say("background")
        try reaches("suspended", identifier)
        return scripted
    }

    /// The answer of `nightbell show --json`.
    package func shown(_ identifier: String) throws -> [String: Any] {
        let outcome = try nightbell("show", identifier, "--json")
        let object = try JSONSerialization.jsonObject(with: Data(outcome.output.utf8))
        return try #require(object as? [String: Any], "\(outcome)")
    }

    /// How often a client has been woken.
    package func wakes(_ identifier: String) throws -> Int {
        (try shown(identifier)["counters"] as? [String: Any])?["wakes"] as? Int ?? 0
    }

    package func reaches(_ state: String, _ identifier: String) throws {
        let reached = try eventually(within: 30_000) {
            try nightbell("show", identifier, "--json").output.contains("\"state\":\"\(state)\"")
        }
        guard reached else {
            throw Program.Failure(
                description: "\(identifier) is not \(state): \(try nightbell("list").output) \(daemon.errors)"
            )
        }
    }
}

/// A service manager, as far as `sd_notify` needs one.
package final class Listener {
    package let address: String
    private let descriptor: OwnedDescriptor
    private var messages: [String] = []

    /// An abstract address, which leaves no file behind.
    package init() throws {
        address = "@nightbell-test-\(getpid())-\(UInt64.random(in: 0 ... .max))"
        let type = CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue)
        descriptor = OwnedDescriptor(adopting: try systemCall("socket") { Glibc.socket(AF_UNIX, type, 0) })
        var name = sockaddr_un()
        name.sun_family = sa_family_t(AF_UNIX)
        let bytes = [0] + Array(address.utf8).dropFirst()
        withUnsafeMutableBytes(of: &name.sun_path) { $0.copyBytes(from: bytes) }
        let length = socklen_t(MemoryLayout<sa_family_t>.size + bytes.count)
        let rawValue = descriptor.rawValue
        _ = try systemCall("bind") {
            withUnsafePointer(to: &name) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(rawValue, $0, length) }
            }
        }
    }

    /// Waits for a message with this line.
    package func heard(_ line: String, within milliseconds: CInt = 30_000) throws {
        while !messages.contains(where: { $0.split(separator: "\n").contains(Substring(line)) }) {
            guard !Poll.wait(descriptor.rawValue, for: .readable, timeoutMilliseconds: milliseconds).isEmpty
            else {
                throw Program.Failure(description: "no message \(line) among: \(messages)")
            }
            var bytes = [UInt8](repeating: 0, count: 4_096)
            let rawValue = descriptor.rawValue
            let count = try systemCall("recv") { recv(rawValue, &bytes, bytes.count, 0) }
            messages.append(String(decoding: bytes.prefix(count), as: UTF8.self))
        }
    }
}
