/// Decodes the packet of a HandOver only: starting clients hand over thousands of sockets, and the general
/// decoder takes longer than all other work of the supervisor for a socket. `nil`: it is another message, or
/// contains something unknown here, and is left to the general decoder.
package struct HandOverPacket {
    package private(set) var request: UInt64 = 0
    package private(set) var handOver = WireHandOver()

    /// - Parameter count: the number of sockets, to make room for them.
    package init?(_ bytes: [UInt8], count: Int = 0) {
        var reader = PacketReader(bytes)
        var isHandOver = false
        handOver.sockets.reserveCapacity(count)
        while !reader.isAtEnd {
            switch reader.varint() {
            case 1 << 3:
                guard let number = reader.varint() else { return nil }
                request = number
            case 3 << 3 | 2:
                // A message in two parts would have to be merged.
                guard !isHandOver, let end = reader.end(), readSockets(&reader, end) else { return nil }
                isHandOver = true
            default:
                return nil
            }
        }
        guard isHandOver else { return nil }
    }

    private mutating func readSockets(_ reader: inout PacketReader, _ end: Int) -> Bool {
        var last = 0..<0
        while reader.position < end {
            guard reader.varint() == 1 << 3 | 2, let socketEnd = reader.end(), socketEnd <= end else {
                return false
            }
            let encoding = reader.position..<socketEnd
            if let known = handOver.sockets.last, reader.areEqual(encoding, last) {
                // As a rule a client's sockets are alike. A copy shares the storage of the first one.
                handOver.sockets.append(known)
                reader.skip(to: socketEnd)
                continue
            }
            last = encoding
            var socket = WireHandOver.Socket()
            while reader.position < socketEnd {
                switch reader.varint() {
                case 1 << 3:
                    guard let tag = reader.number(), let known = WireSocketTag(rawValue: tag)
                    else {
                        return false
                    }
                    socket.tag = known
                case 2 << 3 | 2:
                    guard let nameEnd = reader.end(), nameEnd <= socketEnd,
                        let name = reader.text(until: nameEnd)
                    else { return false }
                    socket.name = name
                case 3 << 3:
                    guard let survives = reader.varint() else { return false }
                    socket.survives = survives != 0
                case 4 << 3:
                    guard let routed = reader.varint() else { return false }
                    socket.routed = routed != 0
                default:
                    return false
                }
            }
            guard reader.position == socketEnd else { return false }
            handOver.sockets.append(socket)
        }
        return reader.position == end
    }
}

/// Encodes the packet of a HandedOver in which every socket is adopted. The bytes are the same as from
/// `WireSupervisorMessage`.
package struct HandedOverPacket {
    private var body: [UInt8] = []

    package init(capacity: Int) {
        body.reserveCapacity(11 * capacity)
    }

    package mutating func add(token: UInt64) {
        // An adoption of nine bytes: its token. No token is 0.
        body.append(1 << 3 | 2)
        body.append(9)
        body.append(1 << 3 | 1)
        for byte in UInt64(0)..<8 { body.append(UInt8(truncatingIfNeeded: token >> (8 * byte))) }
    }

    package consuming func finish(request: UInt64) -> [UInt8] {
        var packet: [UInt8] = []
        packet.reserveCapacity(body.count + 16)
        if request != 0 {
            packet.append(1 << 3)
            packet.appendVarint(request)
        }
        packet.append(5 << 3 | 2)
        packet.appendVarint(UInt64(body.count))
        packet += body
        return packet
    }
}
