/// The names that clients give.
package enum TransferNames {
    /// Whether the supervisor could know a client by it.
    package static func isClient(_ name: String) -> Bool {
        (1...128).contains(name.utf8.count)
            && name.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"),
                    UInt8(ascii: "-"):
                    true
                default: false
                }
            }
    }

    /// Whether a session or a task may have it. The store would cut it at a zero byte, and take it for another
    /// one.
    package static func isText(_ name: String) -> Bool { name.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F } }
}
