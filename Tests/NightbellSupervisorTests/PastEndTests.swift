import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import NightbellWire
import Testing

/// A stream's end is reported once; bytes wake their owner all the same: unread ones before the end, and
/// those that the next writer puts into a FIFO.
@Suite struct PastEndTests {
    private let name = "org.example.phone"

    /// A FIFO; its `reader` is handed over.
    private final class Pipe {
        private let directory: TemporaryDirectory
        private var path: String { directory.file("fifo") }
        let reader: Int32

        init() throws {
            directory = try TemporaryDirectory()
            let path = directory.file("fifo")
            _ = try systemCall("mkfifo") { mkfifo(path, 0o600) }
            reader = try systemCall("open") { open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) }
        }

        deinit { close(reader) }

        /// For the caller to close.
        func opened() throws -> Int32 {
            let path = path
            return try systemCall("open") { open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC) }
        }

        /// All available bytes.
        func read() -> String {
            var buffer = [UInt8](repeating: 0, count: 64)
            let count = Glibc.read(reader, &buffer, buffer.count)
            return String(decoding: buffer[..<max(0, count)], as: UTF8.self)
        }
    }

    private func say(_ text: String, to writer: Int32) throws {
        _ = try systemCall("write") { write(writer, text, text.utf8.count) }
    }

    private func sleepAgain(_ client: WireClient, after wake: WireWake, _ path: String) throws {
        try client.finish(wake)
        try client.ready(try client.prepare())
        try client.wait(for: name, toBe: .suspended, path: path)
    }

    /// Returns the wake that reports the end, after any for bytes before it.
    private func end(_ client: WireClient, _ path: String, _ read: () -> String) throws -> WireWake {
        while true {
            let wake = try client.wake()
            #expect(wake.sockets.count == 1)
            if wake.sockets[0].peerClosed || wake.sockets[0].hangUp { return wake }
            _ = read()
            try client.finish(wake)
            try client.ready(try client.prepare())
        }
    }

    @Test(.timeLimit(.minutes(40))) func theNextWriterOfAFifoWakes() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, name, modes: [.externalAccessory])
        let fifo = try Pipe()
        let token = try client.handOver(fifo.reader, .device)
        try client.goToSleep()
        for round in 0..<3 {
            try client.wait(for: name, toBe: .suspended, supervisor)
            let count = try client.show(name).counters["wakes"]
            // Without a byte it reports no more than the end already reported.
            if round > 0 { close(try fifo.opened()) }
            do {
                let writer = try fifo.opened()
                defer { close(writer) }
                try say("tick", to: writer)
                let wake = try client.wake()
                #expect(wake.sockets.map(\.token) == [token] && wake.sockets[0].readable)
                #expect(!wake.sockets[0].hangUp && fifo.read() == "tick")
                #expect(try client.show(name).counters["wakes"] == count + 1)
                try sleepAgain(client, after: wake, supervisor.socketPath)
            }
            let wake = try client.wake()
            #expect(wake.sockets.map(\.token) == [token] && wake.sockets[0].hangUp)
            try client.finish(wake)
            try client.ready(try client.prepare())
        }
        try supervisor.stop()
    }

    @Test(.timeLimit(.minutes(40)), arguments: [WakeTests.Kind.tcp, .unix])
    func bytesLeftBeforeTheEndWakeAgain(kind: WakeTests.Kind) throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, name)
        let pair = try kind.make()
        let token = try client.handOver(pair.near)
        try client.goToSleep()
        try client.wait(for: name, toBe: .suspended, supervisor)
        try pair.send("last words")
        pair.closeFar()
        var wake = try end(client, supervisor.socketPath) { "" }
        for _ in 0..<3 {
            var byte: UInt8 = 0
            #expect(recv(pair.near, &byte, 1, Int32(MSG_DONTWAIT)) == 1)
            try client.finish(wake)
            try client.ready(try client.prepare())
            wake = try client.wake()
            #expect(wake.sockets.map(\.token) == [token])
            #expect(wake.sockets[0].readable && wake.sockets[0].peerClosed)
        }
        #expect(pair.received() == "t words")
        // Only the end is left, which it knows of.
        let count = try client.show(name).counters["wakes"]
        for _ in 0..<2 {
            try sleepAgain(client, after: wake, supervisor.socketPath)
            wake = try requestedWake(client)
            #expect(wake.sockets.isEmpty)
        }
        #expect(try client.show(name).counters["wakes"] == count + 2)
        try supervisor.stop()
    }

    private func requestedWake(_ client: WireClient) throws -> WireWake {
        var request = WireWakeClient()
        request.identifier = name
        #expect(try client.ask(.wakeClient(request)) == .done(WireDone()))
        return try client.wake()
    }

    /// The next worker knows whether the end was reported, and whether there was a writer since.
    @Test(.timeLimit(.minutes(40))) func anotherWorkerGoesOnFromThere() throws {
        let daemon = try DaemonProcess(suspension: "none")
        let client = try WireClient(path: daemon.socketPath)
        try client.hello(name, modes: [.externalAccessory])
        let fifo = try Pipe()
        let token = try client.handOver(fifo.reader, .device)
        try client.goToSleep()
        for _ in 0..<2 {
            do {
                let writer = try fifo.opened()
                defer { close(writer) }
                try client.wait(for: name, toBe: .suspended, path: daemon.socketPath)
                try say("tick", to: writer)
                let wake = try client.wake()
                #expect(wake.sockets.map(\.token) == [token] && fifo.read() == "tick")
                try sleepAgain(client, after: wake, daemon.socketPath)
                try daemon.killWorker()
            }
            let wake = try client.wake()
            #expect(wake.sockets.map(\.token) == [token] && wake.sockets[0].hangUp)
            try sleepAgain(client, after: wake, daemon.socketPath)
            let count = try client.show(name).counters["wakes"]
            try daemon.killWorker()
            try client.wait(for: name, toBe: .suspended, path: daemon.socketPath)
            #expect(try client.show(name).counters["wakes"] == count)
        }
    }
}
