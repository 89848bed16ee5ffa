/// Encodes the packet of a wake by hand: it is on the critical path of a wake, and the general encoder takes
/// as long as the kernel needs to schedule the sleeper. The bytes are the same as from
/// `WireSupervisorMessage`.
package struct WakePacket {
    private var body: [UInt8] = []

    /// `reasons` has the bit `n - 1` for the wire's number `n`.
    package init(wakeID: UInt64, reasons: UInt32) {
        body.reserveCapacity(64)
        append(field: 1, wakeID)
        guard reasons != 0 else { return }
        body.append(2 << 3 | 2)
        body.append(UInt8(reasons.nonzeroBitCount))
        for bit in UInt8(0)..<32 where reasons & (1 << bit) != 0 { body.append(bit + 1) }
    }

    /// `conditions` has one bit for each flag of the wire's message, in its order, the lowest first.
    package mutating func add(token: UInt64, conditions: UInt8) {
        body.append(3 << 3 | 2)
        body.append(UInt8((token == 0 ? 0 : 9) + 2 * conditions.nonzeroBitCount))
        if token != 0 {
            body.append(1 << 3 | 1)
            for byte in UInt64(0)..<8 { body.append(UInt8(truncatingIfNeeded: token >> (8 * byte))) }
        }
        for bit in UInt8(0)..<8 where conditions & (1 << bit) != 0 {
            body.append((bit + 2) << 3)
            body.append(1)
        }
    }

    package consuming func finish(
        budgetMilliseconds: UInt64, asleepNanoseconds: UInt64, isRepeated: Bool = false
    ) -> [UInt8] {
        append(field: 4, budgetMilliseconds)
        append(field: 5, asleepNanoseconds)
        append(field: 6, isRepeated ? 1 : 0)
        var packet: [UInt8] = []
        packet.reserveCapacity(body.count + 6)
        // Field 19 of SupervisorMessage, length-delimited: a tag of two bytes.
        packet.appendVarint(19 << 3 | 2)
        packet.appendVarint(UInt64(body.count))
        packet += body
        return packet
    }

    private mutating func append(field: UInt8, _ value: UInt64) {
        // Zero is the default of a missing field.
        guard value != 0 else { return }
        body.append(field << 3)
        body.appendVarint(value)
    }
}

extension WireWake {
    /// Decodes the packet of a wake only: it is on the critical path of a wake, and the general decoder takes
    /// several times as long. `nil`: it is another message, or contains something unknown here, and is left
    /// to the general decoder.
    package init?(packet bytes: [UInt8]) {
        var reader = PacketReader(bytes)
        guard reader.varint() == 19 << 3 | 2, let end = reader.end(), end == bytes.count else { return nil }
        self.init()
        while !reader.isAtEnd {
            guard let tag = reader.varint() else { return nil }
            let isRead: Bool
            switch tag {
            case 1 << 3: isRead = reader.varint().map { wakeID = $0 } != nil
            case 2 << 3 | 2: isRead = readReasons(&reader)
            case 3 << 3 | 2: isRead = readSocket(&reader)
            case 4 << 3: isRead = reader.varint().map { budgetMs = $0 } != nil
            case 5 << 3: isRead = reader.varint().map { asleepNs = $0 } != nil
            case 6 << 3: isRead = reader.varint().map { repeated = $0 != 0 } != nil
            default: isRead = false
            }
            guard isRead else { return nil }
        }
    }

    private mutating func readReasons(_ reader: inout PacketReader) -> Bool {
        guard let end = reader.end() else { return false }
        while reader.position < end {
            guard let number = reader.number(), let reason = WireWakeReason(rawValue: number)
            else {
                return false
            }
            reasons.append(reason)
        }
        return reader.position == end
    }

    private mutating func readSocket(_ reader: inout PacketReader) -> Bool {
        guard let end = reader.end() else { return false }
        var socket = WireWake.Socket()
        while reader.position < end {
            guard let tag = reader.varint() else { return false }
            if tag == 1 << 3 | 1 {
                guard let token = reader.fixed64() else { return false }
                socket.token = token
                continue
            }
            guard let value = reader.varint(), value <= 1 else { return false }
            switch tag {
            case 2 << 3: socket.readable = value == 1
            case 3 << 3: socket.peerClosed = value == 1
            case 4 << 3: socket.hangUp = value == 1
            case 5 << 3: socket.error = value == 1
            case 6 << 3: socket.unanswered = value == 1
            case 7 << 3: socket.flooded = value == 1
            case 8 << 3: socket.unanswerable = value == 1
            case 9 << 3: socket.pathLost = value == 1
            default: return false
            }
        }
        sockets.append(socket)
        return reader.position == end
    }
}
