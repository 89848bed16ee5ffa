/// Checks the contents of a client's packet without decoding it.
///
/// Decoding costs a thousand times as much as receiving if a packet consists of the smallest of fields:
/// 64,000 empty sockets fit into one. So lengths and counts are checked first, in one pass over the tags.
package struct PacketScan {
    /// The reason not to decode a packet.
    package enum Refusal: Error, Equatable {
        /// It is no message.
        case malformed
        /// It exceeds a limit.
        case excessive(String)
    }

    /// The number that an answer carries.
    package private(set) var request: UInt64 = 0
    /// The number of sockets in a HandOver; nil: it is another message.
    package private(set) var sockets: Int?
    /// Whether only a client may send this message.
    package private(set) var isForClients = false

    private var fields = 0
    private var profileBytes = 0

    /// The limit of fields that are checked one by one.
    package static let maximumFields = 8_192
    /// The kernel's limit for the descriptors of one packet.
    package static let maximumSockets = 253
    /// The limit of messages with few fields: an identifier, a name, some numbers.
    package static let maximumBodyBytes = 1_024
    /// The texts of a notification, or the identifiers of many.
    package static let maximumNotificationBytes = 10_240
    /// A launch specification, and the rest.
    package static let maximumHelloBytes = WireLaunchSpecification.maximumBytes + 4_096
    /// All profiles of a HandOver together.
    package static let maximumProfileBytes = 65_536

    package init(_ bytes: [UInt8]) throws(Refusal) {
        var reader = PacketReader(bytes)
        while !reader.isAtEnd {
            let (field, end) = try next(&reader)
            guard let end else {
                if field == 1 { request = number }
                continue
            }
            try look(at: field, &reader, end)
            reader.skip(to: end)
        }
    }

    /// The value of the last field, if it was a number.
    private var number: UInt64 = 0

    /// Reads the header of a field, and its value if that has no length.
    ///
    /// - Returns: the end of the value, if it has a length; otherwise the value has been read.
    private mutating func next(_ reader: inout PacketReader) throws(Refusal) -> (UInt64, end: Int?) {
        fields += 1
        guard fields <= Self.maximumFields else {
            throw .excessive("a packet has at most \(Self.maximumFields) fields")
        }
        guard let tag = reader.varint(), tag >> 3 != 0 else { throw .malformed }
        switch tag & 7 {
        case 0:
            guard let value = reader.varint() else { throw .malformed }
            number = value
        case 1: try skip(8, &reader)
        case 2:  // Hello; its field 5 is the launch specification
            guard let end = reader.end() else { throw .malformed }
            return (tag >> 3, end)
        case 5: try skip(4, &reader)
        default: throw .malformed  // Groups, which the schema does not use.
        }
        return (tag >> 3, nil)
    }

    private func skip(_ count: Int, _ reader: inout PacketReader) throws(Refusal) {
        guard reader.skip(count) else { throw .malformed }
    }

    private mutating func look(
        at field: UInt64, _ reader: inout PacketReader, _ end: Int
    ) throws(Refusal) {
        let length = end - reader.position
        switch field {
        case 2:
            guard length <= Self.maximumHelloBytes else {
                throw .excessive("Hello holds at most \(Self.maximumHelloBytes) bytes")
            }
            try each(&reader, end) { (scan, field, reader, end) throws(Refusal) in
                if field == 5 { try scan.count(&reader, end) }
            }
        case 3:  // HandOver; its field 1 is a socket
            isForClients = true
            sockets = sockets ?? 0
            try each(&reader, end) { (scan, field, reader, end) throws(Refusal) in
                if field == 1 { try scan.lookAtSocket(&reader, end) }
            }
        case 14:  // ReadyToSuspend
            isForClients = true
            try count(&reader, end)
        case 16:  // SaveState, which has a limit of its own
            isForClients = true
        case 27, 28:  // ScheduleNotification and CancelNotifications
            isForClients = true
            guard length <= Self.maximumNotificationBytes else {
                let most = Self.maximumNotificationBytes
                throw .excessive("a message of this kind holds at most \(most) bytes")
            }
            try count(&reader, end)
        case 4...25, 29:  // other messages of clients
            isForClients = true
            try requireShort(length)
        case 30, 32...127:  // RestartNoted, and administration
            try requireShort(length)
        default:
            // From another version: it is skipped, and refused if the packet has no other field.
            break
        }
    }

    private func requireShort(_ length: Int) throws(Refusal) {
        guard length <= Self.maximumBodyBytes else {
            throw .excessive("a message of this kind holds at most \(Self.maximumBodyBytes) bytes")
        }
    }

    private mutating func lookAtSocket(_ reader: inout PacketReader, _ end: Int) throws(Refusal) {
        let known = (sockets ?? 0) + 1
        sockets = known
        guard known <= Self.maximumSockets else {
            throw .excessive("a HandOver has at most \(Self.maximumSockets) sockets")
        }
        try each(&reader, end) { (scan, field, reader, end) throws(Refusal) in
            guard field == 8 else { return }
            scan.profileBytes += end - reader.position
            guard scan.profileBytes <= Self.maximumProfileBytes else {
                let most = Self.maximumProfileBytes
                throw .excessive("the profiles of a HandOver have at most \(most) bytes together")
            }
        }
    }

    /// Calls `body` with each field of a message that has a length.
    private mutating func each(
        _ reader: inout PacketReader, _ end: Int,
        _ body: (inout PacketScan, UInt64, inout PacketReader, Int) throws(Refusal) -> Void
    ) throws(Refusal) {
        while reader.position < end {
            let (field, fieldEnd) = try next(&reader)
            guard let fieldEnd else { continue }
            guard fieldEnd <= end else { throw .malformed }
            try body(&self, field, &reader, fieldEnd)
            reader.skip(to: fieldEnd)
        }
        guard reader.position == end else { throw .malformed }
    }

    private mutating func count(_ reader: inout PacketReader, _ end: Int) throws(Refusal) {
        try each(&reader, end) { (_, _, _, _) throws(Refusal) in }
    }
}
