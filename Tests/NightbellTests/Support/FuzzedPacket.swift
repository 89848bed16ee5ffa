import NightbellWire
import SwiftProtobuf

/// What a fuzzer made up for the decoders of the control protocol: a byte that chooses the message, and a packet.
struct FuzzedPacket {
    /// A promise that was not kept.
    struct Broken: Error, CustomStringConvertible {
        let description: String
    }

    private let selector: UInt8
    private let packet: [UInt8]

    /// Nothing, if there is no byte, or one for somebody else.
    init?(_ bytes: [UInt8]) {
        guard let selector = bytes.first, selector % 8 < 4 else { return nil }
        self.selector = selector % 8
        packet = Array(bytes.dropFirst())
    }

    /// Decodes it; throws if a promise is not kept.
    func play() throws {
        switch selector {
        case 0:
            let message = try check(WireClientMessage.self)
            guard let fast = HandOverPacket(packet) else { return }
            try expect(message?.request == fast.request && message?.handOver == fast.handOver, fast, message)
        case 1:
            let message = try check(WireSupervisorMessage.self)
            guard let fast = WireWake(packet: packet) else { return }
            try expect(message?.wake == fast && message?.request == 0, fast, message)
        case 2:
            try check(WireLaunchSpecification.self)
        default:
            try check(WireProfile.self)
        }
    }

    /// What can be decoded can be encoded, and is the same after that.
    @discardableResult
    private func check<Message: SwiftProtobuf.Message & Equatable>(_ type: Message.Type) throws -> Message? {
        guard let message = try? Message(serializedBytes: packet) else { return nil }
        let encoded: [UInt8] = try message.serializedBytes()
        let decoded = try Message(serializedBytes: encoded)
        if decoded != message { throw Broken(description: "\(message) became \(decoded)") }
        return message
    }

    /// What a decoder written by hand takes, the general one takes for the same.
    private func expect(_ condition: Bool, _ fast: Any, _ general: Any?) throws {
        if !condition {
            throw Broken(description: "by hand \(fast), else \(general.map { "\($0)" } ?? "nothing")")
        }
    }
}
