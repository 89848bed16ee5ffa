import Identifiers

// Inlinable: the edge's tables use them in each lookup.

/// Names a running client within one supervisor. Opaque; never used again for another client.
@usableFromInline package struct ClientID: Sendable, Hashable {
    @usableFromInline let id: SlotID

    init(_ id: SlotID) {
        self.id = id
    }

    /// Its index in the edge's tables. Reused for later clients.
    @inlinable package var slot: UInt32 { id.slot }

    @inlinable package var rawValue: UInt64 { id.rawValue }

    @inlinable package init(rawValue: UInt64) {
        id = SlotID(rawValue: rawValue)
    }
}

/// Names an adopted socket. Opaque to clients; never used again for another socket.
@usableFromInline package struct SocketToken: Sendable, Hashable {
    @usableFromInline let id: SlotID

    init(_ id: SlotID) {
        self.id = id
    }

    /// Its index in the edge's tables. Reused for later sockets.
    @inlinable package var slot: UInt32 { id.slot }

    /// How often that slot had been used before.
    @inlinable package var generation: UInt32 { id.generation }

    @inlinable package var rawValue: UInt64 { id.rawValue }

    @inlinable package init(rawValue: UInt64) {
        id = SlotID(rawValue: rawValue)
    }

    @inlinable package init(slot: UInt32, generation: UInt32) {
        id = SlotID(slot: slot, generation: generation)
    }
}

/// A Unix user ID, as reported by the kernel.
package typealias UserID = UInt32

/// The name that a client goes by, such as `org.example.phone.alice`.
package struct ClientIdentifier: Sendable, Hashable, CustomStringConvertible {
    package let description: String

    /// The identifiers that there can be, for people.
    package static let rule = IdentifierRule.text

    /// `nil`: no client can have it (`rule`).
    package init?(_ name: String) {
        guard IdentifierRule.permits(name) else { return nil }
        description = name
    }

    /// Takes a name that was checked before.
    init(known name: String) {
        description = name
    }
}
