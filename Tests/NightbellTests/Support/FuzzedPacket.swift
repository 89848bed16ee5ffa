import NightbellWire
import SwiftProtobuf

/// Fuzzed input for the decoders of the control protocol: a byte that chooses the message, and a packet.
struct FuzzedPacket {
    /// A violated invariant.
    struct Broken: Error, CustomStringConvertible {
        let description: String
    }

    private let selector: UInt8
    private let packet: [UInt8]

    /// Nil without a byte, or with one for another decoder.
    init?(_ bytes: [UInt8]) {
        guard let selector = bytes.first, selector % 8 < 4 else { return nil }
        self.selector = selector % 8
        packet = Array(bytes.dropFirst())
    }

    /// Decodes it; throws if an invariant is violated.
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

    /// A decoded message can be encoded, and is unchanged by that.
    @discardableResult
    private func check<Message: SwiftProtobuf.Message & Equatable>(_ type: Message.Type) throws -> Message? {
        guard let message = try? Message(serializedBytes: packet) else { return nil }
        let encoded: [UInt8] = try message.serializedBytes()
        let decoded = try Message(serializedBytes: encoded)
        if decoded != message { throw Broken(description: "\(message) became \(decoded)") }
        return message
    }

    /// If a hand-written decoder accepts a packet, the general one returns the same message.
    private func expect(_ condition: Bool, _ fast: Any, _ general: Any?) throws {
        if !condition {
            throw Broken(description: "by hand \(fast), else \(general.map { "\($0)" } ?? "nothing")")
        }
    }
}
