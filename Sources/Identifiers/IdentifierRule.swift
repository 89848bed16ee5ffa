/// The identifiers that clients may go by, such as `org.example.phone.alice`. Everything that takes one checks it here:
/// the supervisor, the client library, the command line, the push service and the gateway.
package enum IdentifierRule {
    /// For people.
    package static let text = "1 to 128 characters out of A-Z a-z 0-9 . _ -"
    private static let lengths = 1...128

    package static func permits(_ identifier: String) -> Bool {
        lengths.contains(identifier.utf8.count) && identifier.utf8.allSatisfy(isAllowed)
    }

    private static func isAllowed(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "-"):
            true
        default: false
        }
    }
}
