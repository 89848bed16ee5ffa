import NightbellWire
import SwiftProtobuf
import Testing

/// The packet of a wake has an encoder and a decoder of its own. They must agree with the general ones.
@Suite struct WakePacketTests {
    private static let numbers: [UInt64] = [0, 1, 127, 128, 16_384, 10_000, 1 << 32, 1 << 63, .max]

    /// The same wakes in each run.
    private struct Generator: RandomNumberGenerator {
        var state: UInt64

        mutating func next() -> UInt64 {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return state ^ (state >> 31)
        }
    }

    private static func wake(_ seed: Int) -> (message: WireWake, packet: [UInt8]) {
        var random = Generator(state: UInt64(seed))
        func number() -> UInt64 { numbers.randomElement(using: &random) ?? 0 }
        let reasons = UInt32.random(in: 0..<131_072, using: &random) & 0x1_7fff
        let sockets = (0..<seed % 5).map { _ in
            (token: number(), conditions: UInt8.random(in: 0...255, using: &random))
        }
        let message = WireWake.with { wake in
            wake.wakeID = number()
            wake.budgetMs = number()
            wake.asleepNs = number()
            wake.reasons = (1...17).filter { reasons & (1 << ($0 - 1)) != 0 }.compactMap(WireWakeReason.init)
            wake.sockets = sockets.map { socket in
                .with {
                    $0.token = socket.token
                    $0.readable = socket.conditions & 1 != 0
                    $0.peerClosed = socket.conditions & 2 != 0
                    $0.hangUp = socket.conditions & 4 != 0
                    $0.error = socket.conditions & 8 != 0
                    $0.unanswered = socket.conditions & 16 != 0
                    $0.flooded = socket.conditions & 32 != 0
                    $0.unanswerable = socket.conditions & 64 != 0
                    $0.pathLost = socket.conditions & 128 != 0
                }
            }
        }
        var packet = WakePacket(wakeID: message.wakeID, reasons: reasons)
        for socket in sockets { packet.add(token: socket.token, conditions: socket.conditions) }
        let bytes = packet.finish(
            budgetMilliseconds: message.budgetMs, asleepNanoseconds: message.asleepNs)
        return (message, bytes)
    }

    @Test(arguments: 0..<200) func encoderAndDecoderAgreeWithTheGeneralOnes(seed: Int) throws {
        let (wake, packet) = Self.wake(seed)
        let message = WireSupervisorMessage.with { $0.wake = wake }
        let general: [UInt8] = try message.serializedBytes()
        #expect(packet == general)
        #expect(try WireSupervisorMessage(serializedBytes: packet).wake == wake)
        #expect(WireWake(packet: packet) == wake)
    }

    @Test(arguments: 1..<50) func truncatedPacketsAreLeftToTheGeneralDecoder(seed: Int) throws {
        let packet = Self.wake(seed).packet
        for length in packet.indices { #expect(WireWake(packet: Array(packet[..<length])) == nil) }
        #expect(WireWake(packet: packet + [0]) == nil)
    }

    @Test(arguments: numbers) func thePacketOfReadinessIsTheGeneralOne(epoch: UInt64) throws {
        let message = WireClientMessage.with { $0.readyToSuspend = .with { $0.epoch = epoch } }
        let general: [UInt8] = try message.serializedBytes()
        #expect(unsafe ReadyPacket(epoch).withBytes { unsafe [UInt8]($0) } == general)
    }

    @Test func unknownFieldsAreLeftToTheGeneralDecoder() throws {
        // A field of a later version, and other messages.
        #expect(WireWake(packet: [0x9A, 0x01, 0x02, 0x38, 0x01]) == nil)
        let others: [WireSupervisorMessage] = [
            .with { $0.done = .init() }, .with { $0.prepareToSuspend = .with { $0.epoch = 3 } },
            .with {
                $0.request = 1
                $0.wake = .with { $0.wakeID = 4 }
            },
        ]
        for other in others { #expect(WireWake(packet: try other.serializedBytes()) == nil) }
        #expect(WireWake(packet: []) == nil)
    }
}
