import Identifiers
import NightbellWire
import SwiftProtobuf

extension Client.Configuration {
    /// The client's first message.
    ///
    /// - Parameter wantsNetworkChanges: whether there is a handler for them.
    func hello(wantsNetworkChanges: Bool) throws(NightbellError) -> WireHello {
        try Self.check(identifier: identifier)
        var hello = WireHello()
        hello.version = 1
        hello.identifier = identifier
        hello.modes = modes.map(\.wire).sorted { $0.rawValue < $1.rawValue }
        hello.wakeLimitPolicy = wakeLimitPolicy.wire
        // This process would read it, and another one is suspended.
        hello.wantsWakeWord = program == nil
        hello.takesSocketsBack = true
        hello.exitsOnSuspend = exitsOnSuspend
        hello.wantsNetworkChanges = wantsNetworkChanges
        if let program {
            hello.program = .with {
                $0.processID = UInt32(program.processID)
                $0.startTime = program.startTime
                if program.isSuspendedBySystemd { $0.suspendedBy = .systemd }
            }
        } else if let launch = Environment.launch() {
            hello.launch = launch
        }
        return hello
    }

    static func check(identifier: String) throws(NightbellError) {
        guard IdentifierRule.permits(identifier) else {
            // A long one says nothing more.
            throw NightbellError(
                .invalidIdentifier, "“\(identifier.prefix(128))”: expected \(IdentifierRule.text)")
        }
    }
}

extension Environment {
    /// How `nightbell run` started this program, so that the supervisor can start it again. A value that is
    /// malformed or longer than the supervisor's limit counts as absent: the client must not fail because of
    /// it.
    static func launch() -> WireLaunchSpecification? {
        guard let text = value("NIGHTBELL_LAUNCH"), let bytes = decodeBase64(text),
            bytes.count <= WireLaunchSpecification.maximumBytes
        else { return nil }
        return try? WireLaunchSpecification(serializedBytes: bytes)
    }

    /// RFC 4648, section 4; nil if it is not base64.
    package static func decodeBase64(_ text: String) -> [UInt8]? {
        var bytes: [UInt8] = []
        var bits: UInt32 = 0
        var count = 0
        var padding = 0
        for character in text.utf8 {
            let value: UInt8
            switch character {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"): value = character - UInt8(ascii: "A")
            case UInt8(ascii: "a")...UInt8(ascii: "z"): value = character - UInt8(ascii: "a") + 26
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = character - UInt8(ascii: "0") + 52
            case UInt8(ascii: "+"): value = 62
            case UInt8(ascii: "/"): value = 63
            case UInt8(ascii: "="):
                padding += 1
                continue
            default: return nil
            }
            if padding > 0 { return nil }
            bits = bits << 6 | UInt32(value)
            count += 1
            if count % 4 != 1 {
                bytes.append(UInt8(truncatingIfNeeded: bits >> (6 - 2 * UInt32((count - 1) % 4))))
            }
        }
        guard (count + padding) % 4 == 0, padding <= 2 else { return nil }
        return bytes
    }
}
