import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import SwiftProtobuf
import Testing

/// A larger receive buffer while the owner sleeps, if it asked for one, and the count of drops.
@Suite(.timeLimit(.minutes(40))) struct ReceiveBufferTests {
    private let name = "org.example.phone"
    /// As a program sets it; the kernel stores twice this value.
    private let small: Int32 = 8_192
    private let large: Int32 = 150_000

    private func buffer(of descriptor: Int32) -> Int32 {
        SocketOption.receiveBuffer.value(of: descriptor) ?? 0
    }

    private func pair() throws -> Pair {
        let pair = try Pair.udp(connected: true)
        SocketOption.receiveBuffer.set(small, on: pair.near)
        #expect(buffer(of: pair.near) == 2 * small)
        return pair
    }

    private func handOver(
        _ client: WireClient, _ descriptor: Int32, _ receiveBuffer: Int32
    ) throws -> WireHandedOver.Adoption {
        let message = WireHandOver.with {
            $0.sockets = [
                .with {
                    $0.tag = .voip
                    $0.receiveBuffer = UInt32(receiveBuffer)
                }
            ]
        }
        guard case .handedOver(let answer) = try client.ask(.handOver(message), descriptors: [descriptor])
        else { throw TestFailure("not handed over") }
        return try #require(answer.adoptions.first)
    }

    /// The client is told its state before the option is set.
    private func becomes(_ value: Int32, _ descriptor: Int32) -> Bool {
        eventually(within: 20_000) { buffer(of: descriptor) == value }
    }

    @Test func theBufferIsSetBackAndOtherSocketsAreUntouched() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, name)
        let (pair, other) = (try pair(), try pair())
        let token = try #require(try handOver(client, pair.near, large).result?.token)
        _ = try client.handOver(other.near)
        #expect(buffer(of: pair.near) == 2 * small)
        try client.goToSleep()
        for round in 1...3 {
            try client.wait(for: name, toBe: .suspended, supervisor)
            #expect(becomes(2 * large, pair.near))
            #expect(buffer(of: other.near) == 2 * small)
            try pair.send("INVITE")
            let wake = try client.wake()
            #expect(wake.sockets.map(\.token) == [token] && wake.sockets[0].dropped == 0, "round \(round)")
            #expect(becomes(2 * small, pair.near))
            #expect(pair.received() == "INVITE")
            try client.finish(wake)
            try client.ready(try client.prepare())
        }
        let socket = try #require(try client.show(name).sockets.first { $0.token == token })
        #expect(socket.receiveBuffer == UInt32(large))
        try supervisor.stop()
    }

    /// It is the owner's option: a value set by another process is left alone, and so is one that is large
    /// enough.
    @Test func aValueSetByAnotherProcessIsLeftAlone() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, name)
        let (pair, roomy) = (try pair(), try pair())
        _ = try handOver(client, pair.near, large)
        SocketOption.receiveBuffer.set(large + 1_000, on: roomy.near)
        let room = buffer(of: roomy.near)
        _ = try handOver(client, roomy.near, large)
        try client.goToSleep()
        try client.wait(for: name, toBe: .suspended, supervisor)
        #expect(becomes(2 * large, pair.near))
        #expect(buffer(of: roomy.near) == room)
        SocketOption.receiveBuffer.set(20_000, on: pair.near)
        try pair.send("INVITE")
        let wake = try client.wake()
        // Requests after the wake are answered after it.
        #expect(try client.show(name).state == .background)
        #expect(buffer(of: pair.near) == 40_000 && buffer(of: roomy.near) == room)
        try client.finish(wake)
        try supervisor.stop()
    }

    @Test func onlyDatagramSocketsHaveAReceiveBuffer() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, name)
        for pair in [try Pair.tcp(), try Pair.unix(), try Pair.unix(SOCK_DGRAM)] {
            guard case .error(let error) = try handOver(client, pair.near, large).result else {
                throw TestFailure("adopted")
            }
            #expect(error.code == .invalidArgument && error.message.contains("UDP"))
        }
        #expect(try client.show(name).sockets.isEmpty)
        try supervisor.stop()
    }

    /// Sends more than the buffer holds, while the worker is kept from reporting it.
    private func flood(_ daemon: DaemonProcess, _ pair: Pair, count: Int) throws {
        let worker = try daemon.worker()
        #expect(stop(worker))
        defer { kill(worker, SIGCONT) }
        try #require(eventually { threads(of: worker, are: "T") })
        let datagram = [UInt8](repeating: 0x2E, count: 1_000)
        for _ in 0..<count { #expect(send(pair.far, datagram, datagram.count, 0) == datagram.count) }
    }

    private func receivedCount(_ pair: Pair) -> Int {
        var count = 0
        while !pair.received().isEmpty { count += 1 }
        return count
    }

    @Test func dropsAreReported() throws {
        let daemon = try DaemonProcess(suspension: "none")
        let client = try WireClient(path: daemon.socketPath)
        try client.hello(name)
        let (wide, narrow) = (try pair(), try pair())
        let tokens = try [(wide, large), (narrow, 1)].map { pair, size in
            try #require(try handOver(client, pair.near, size).result?.token)
        }
        try client.goToSleep()
        for pair in [wide, narrow] {
            try client.wait(for: name, toBe: .suspended, path: daemon.socketPath)
            #expect(becomes(2 * large, wide.near))
            try flood(daemon, pair, count: 50)
            let wake = try client.wake()
            let dropped = Int(try #require(wake.sockets.first).dropped)
            #expect(dropped == 50 - receivedCount(pair))
            #expect(pair === wide ? dropped == 0 : dropped > 30)
            let sockets = try client.show(name).sockets
            #expect(sockets.map(\.token) == tokens && sockets.map(\.receiveBuffer) == [UInt32(large), 1])
            #expect(sockets.map(\.dropped) == [0, pair === wide ? 0 : UInt64(dropped)])
            try client.finish(wake)
            try client.ready(try client.prepare())
        }
        // Drops of an earlier sleep are not reported again.
        try client.wait(for: name, toBe: .suspended, path: daemon.socketPath)
        try narrow.send("INVITE")
        #expect(try client.wake().sockets.map(\.dropped) == [0])
    }

    /// A buffer raised by one worker is set back by the next.
    @Test func anotherWorkerSetsItBack() throws {
        let daemon = try DaemonProcess(suspension: "none")
        let client = try WireClient(path: daemon.socketPath)
        try client.hello(name)
        let pair = try pair()
        _ = try handOver(client, pair.near, large)
        try client.goToSleep()
        for _ in 0..<3 {
            try client.wait(for: name, toBe: .suspended, path: daemon.socketPath)
            #expect(becomes(2 * large, pair.near))
            try daemon.killWorker()
            #expect(buffer(of: pair.near) == 2 * large)
            try pair.send("INVITE")
            let wake = try client.wake()
            #expect(becomes(2 * small, pair.near) && pair.received() == "INVITE")
            try daemon.killWorker()
            #expect(buffer(of: pair.near) == 2 * small)
            try client.finish(wake)
            try client.ready(try client.prepare())
        }
    }
}

extension WireHandedOver.Adoption.OneOf_Result {
    fileprivate var token: UInt64? {
        if case .token(let token) = self { token } else { nil }
    }
}
