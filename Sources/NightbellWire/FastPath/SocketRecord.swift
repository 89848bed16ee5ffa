/// Encodes and decodes a `StoredSocket` by hand, because there may be many thousands: with the general
/// decoder the recovery of 5,000 sockets takes a fifth longer. The bytes are the same.
package struct SocketRecord: Equatable {
    package var owner: UInt64 = 0
    package var tag = StoredSocket.Tag.unspecified
    package var isStream = false
    package var request: UInt64 = 0
    package var index: UInt32 = 0
    package var survives = false
    package var name = ""
    package var isRouted = false

    package init() {}

    package var bytes: [UInt8] {
        var bytes: [UInt8] = []
        // More would be kept for each socket.
        bytes.reserveCapacity(24 + name.utf8.count)
        func append(_ field: UInt8, _ value: UInt64) {
            // Zero is the default of a missing field.
            guard value != 0 else { return }
            bytes.append(field << 3)
            bytes.appendVarint(value)
        }
        append(1, owner)
        append(2, UInt64(tag.rawValue))
        append(3, isStream ? 1 : 0)
        append(4, request)
        append(5, UInt64(index))
        append(6, survives ? 1 : 0)
        if !name.isEmpty {
            bytes.append(7 << 3 | 2)
            bytes.appendVarint(UInt64(name.utf8.count))
            bytes += name.utf8
        }
        append(8, isRouted ? 1 : 0)
        return bytes
    }

    /// nil: it contains something unknown here, and is left to the general decoder.
    package init?(_ bytes: [UInt8]) {
        var reader = PacketReader(bytes)
        while !reader.isAtEnd {
            guard let field = reader.varint() else { return nil }
            if field == 7 << 3 | 2 {
                guard let end = reader.end(), let text = reader.text(until: end) else { return nil }
                name = text
                continue
            }
            guard let value = reader.varint() else { return nil }
            switch field {
            case 1 << 3: owner = value
            case 2 << 3:
                guard let tag = StoredSocket.Tag(rawValue: Int(clamping: value)) else { return nil }
                self.tag = tag
            case 3 << 3: isStream = value != 0
            case 4 << 3: request = value
            case 5 << 3: index = UInt32(truncatingIfNeeded: value)
            case 6 << 3: survives = value != 0
            case 8 << 3: isRouted = value != 0
            default: return nil
            }
        }
    }
}
