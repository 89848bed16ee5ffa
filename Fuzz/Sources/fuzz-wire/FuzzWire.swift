import NightbellWire
import SwiftProtobuf

/// What libFuzzer calls for each input: a byte that chooses the message, and a packet.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = unsafe Array(UnsafeBufferPointer(start: start, count: count))
    guard let selector = bytes.first else { return 0 }
    let packet = Array(bytes.dropFirst())
    switch selector % 3 {
    case 0: check(WireClientMessage.self, packet)
    case 1:
        check(WireSupervisorMessage.self, packet)
        checkWake(packet)
    default: check(WireLaunchSpecification.self, packet)
    }
    return 0
}

/// What can be decoded can be encoded, and is the same after that.
private func check<Message: SwiftProtobuf.Message & Equatable>(_ type: Message.Type, _ packet: [UInt8]) {
    guard let message = try? Message(serializedBytes: packet) else { return }
    do {
        let encoded: [UInt8] = try message.serializedBytes()
        let decoded = try Message(serializedBytes: encoded)
        precondition(decoded == message, "\(message) became \(decoded)")
    } catch {
        fatalError("\(message) can be decoded, and then: \(error)")
    }
}

/// What the fast decoder of wakes takes, the general one takes for the same.
private func checkWake(_ packet: [UInt8]) {
    guard let wake = WireWake(packet: packet) else { return }
    let message = try? WireSupervisorMessage(serializedBytes: packet)
    precondition(message?.wake == wake, "\(wake) for one, \(String(describing: message)) for the other")
}
