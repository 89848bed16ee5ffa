/// The packets between the transfer process and its clients.
package enum TransferPacket {
    /// In bytes, in both directions.
    package static let maximumBytes = 65_536
    /// In bytes: of the names of clients, sessions and tasks.
    package static let maximumNameBytes = 255
}
