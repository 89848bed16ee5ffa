import Glibc
import LinuxSystem
import NightbellWire
import SwiftProtobuf

/// A client that sleeps and is woken as agreed, but never reads its sockets.
struct HostileSleeper: ~Copyable {
    private let socket: SeqPacketSocket
    private var packet = PacketBuffer(capacity: 131_072)

    init(_ socketPath: String) throws(SystemError) {
        socket = try SeqPacketSocket.connect(path: socketPath)
    }

    mutating func register(_ hello: WireHello) throws {
        try Self.send(.hello(hello), on: socket, request: 1)
        _ = try receive(within: 10_000)
    }

    /// Hands over one socket, which stays the caller's.
    mutating func handOver(_ descriptor: CInt, _ profile: WireProfile?) throws {
        var handOver = WireHandOver()
        handOver.sockets = [WireHandOver.Socket()]
        handOver.sockets[0].tag = .voip
        if let profile { handOver.sockets[0].profile = profile }
        try Self.send(.handOver(handOver), on: socket, request: 1, descriptors: [descriptor])
        _ = try receive(within: 10_000)
    }

    /// Leaves the foreground, and sleeps and wakes until it is over.
    mutating func sleep(until isOver: () -> Bool) throws {
        try Self.send(.enterBackground(WireEnterBackground()), on: socket)
        try Self.send(.backgroundEntered(WireBackgroundEntered()), on: socket)
        while !isOver() {
            switch try receive(within: 100) {
            case .prepareToSuspend(let message):
                var ready = WireReadyToSuspend()
                ready.epoch = message.epoch
                try Self.send(.readyToSuspend(ready), on: socket)
            case .wake(let wake):
                var done = WireWakeDone()
                done.wakeID = wake.wakeID
                try Self.send(.wakeDone(done), on: socket)
            default: break
            }
        }
    }

    /// nil: no message came in time.
    private mutating func receive(
        within milliseconds: CInt
    ) throws -> WireSupervisorMessage.OneOf_Body? {
        guard !Poll.wait(socket.rawValue, for: .readable, timeoutMilliseconds: milliseconds).isEmpty else {
            return nil
        }
        guard case .packet = try socket.receive(into: &packet) else {
            throw LoadError.supervisor("it ended the connection of a sleeper")
        }
        return try WireSupervisorMessage(serializedBytes: packet.bytes).body
    }

    private static func send(
        _ body: WireClientMessage.OneOf_Body, on socket: borrowing SeqPacketSocket, request: UInt64 = 0,
        descriptors: [CInt] = []
    ) throws {
        var message = WireClientMessage()
        message.request = request
        message.body = body
        let bytes: [UInt8] = try message.serializedBytes()
        while try !socket.send(bytes, descriptors: descriptors) {
            _ = Poll.wait(socket.rawValue, for: .writable, timeoutMilliseconds: 100)
        }
    }
}
