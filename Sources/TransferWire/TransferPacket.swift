/// The packets between the transfer process and its clients.
package enum TransferPacket {
    /// In bytes, in both directions.
    package static let maximumBytes = 65_536
    /// In bytes: of the names of clients, sessions and tasks.
    package static let maximumNameBytes = 255

    /// Whether a name has no control characters. The store would cut it at a zero byte, and take it for another
    /// one.
    package static func isName(_ text: String) -> Bool { text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F } }
}
