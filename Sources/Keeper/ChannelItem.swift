/// What worker and keeper tell each other. One packet holds any number of them.
package enum ChannelItem: Sendable, Equatable {
    // From the worker.

    /// Keep this, in place of what was kept under the key. With a descriptor it takes the packet's next one.
    case put(RecordKey, record: ArraySlice<UInt8>, hasDescriptor: Bool)
    /// Keep another record with the descriptor that is there. Nothing is there: nothing happens.
    case update(RecordKey, record: ArraySlice<UInt8>)
    case remove(RecordKey)
    /// It serves, or, told to wait, it could.
    case ready
    /// It acts no more until it is told to, and everything that it did has been said. Answers the `quiesce` of this
    /// number.
    case quiesced(UInt64)
    /// It cannot serve, and why.
    case failed(code: Int32, String)
    /// Somebody who may has asked for the program to be replaced.
    case upgradeWanted
    /// It has read its configuration again; those after it are to have that one as well.
    case reloaded

    // From the keeper.

    /// Thaw everybody and end.
    case stop
    /// Say `quiesced`, and do nothing more.
    case quiesce(UInt64)
    /// Act: the worker before is gone.
    case act
    /// Read the configuration again.
    case reload
    /// Go on acting: there is no other worker after all, and why.
    case goOn(String)
}

/// Why a packet of the channel cannot be understood.
package enum ChannelError: Error, Sendable, Hashable {
    /// It ends in the middle of something, or after the end.
    case wrongLength
    /// Another version of the program made it.
    case version(UInt8)
    case unknownItem(UInt8)
    /// Fewer descriptors came with it than it speaks of, or more.
    case wrongDescriptors
}

/// A packet in the making.
package struct ChannelPacket: Sendable {
    /// Of the packets themselves, not of the records in them.
    package static let version: UInt8 = 1
    /// What goes through a socket's queue as one packet with the kernel's default sizes, and some room.
    package static let capacity = 160 * 1_024
    /// What is said together, so that memory for more is not needed: a longer record goes alone. As many sockets as
    /// there can be descriptors in a packet, with names as long as they may be.
    package static let longestTogether = 32_768
    /// What memory is kept for.
    package static let usualLength = 4_096
    /// The longest record.
    package static let longestRecord = capacity - headerLength - itemLength

    private static let headerLength = 4
    private static let itemLength = 16

    package private(set) var bytes: [UInt8]
    /// They stay whose they are.
    package private(set) var descriptors: [CInt] = []
    package private(set) var count = 0

    package init() {
        bytes = [Self.version, 0, 0, 0]
        bytes.reserveCapacity(Self.usualLength)
    }

    package var isEmpty: Bool { count == 0 }

    /// Whether there is no room for a record of this length, with a descriptor, any more.
    package func isFull(for length: Int, maximumDescriptors: Int) -> Bool {
        !isEmpty && bytes.count + Self.itemLength + length > Self.longestTogether
            || descriptors.count >= maximumDescriptors
    }

    package mutating func append(_ item: ChannelItem, descriptor: CInt? = nil) {
        count += 1
        switch item {
        case .put(let key, let record, let hasDescriptor):
            precondition(hasDescriptor == (descriptor != nil), "a record that says so has a descriptor")
            if let descriptor { descriptors.append(descriptor) }
            append(1, key, record, flag: hasDescriptor)
        case .update(let key, let record): append(2, key, record)
        case .remove(let key): append(3, key, [])
        case .ready: append(4)
        case .quiesced(let number): append(5, RecordKey(kind: 0, id: number))
        case .failed(let code, let text):
            append(6, RecordKey(kind: 0, id: UInt64(UInt32(bitPattern: code))), Array(text.utf8)[...])
        case .upgradeWanted: append(7)
        case .reloaded: append(8)
        case .stop: append(16)
        case .reload: append(20)
        case .quiesce(let number): append(17, RecordKey(kind: 0, id: number))
        case .act: append(18)
        case .goOn(let text): append(19, RecordKey(kind: 0, id: 0), Array(text.utf8)[...])
        }
    }

    /// The memory of a packet of the usual size is used again, that of a large one is not kept.
    package mutating func removeAll() {
        guard bytes.capacity < 2 * Self.usualLength else { return self = ChannelPacket() }
        bytes.removeSubrange(Self.headerLength...)
        descriptors.removeAll(keepingCapacity: true)
        count = 0
    }

    private mutating func append(
        _ code: UInt8, _ key: RecordKey = RecordKey(kind: 0, id: 0), _ record: ArraySlice<UInt8> = [],
        flag: Bool = false
    ) {
        if bytes.count + Self.itemLength + record.count > Self.usualLength {
            // At once, and so large that it is given back as a whole: growing step by step leaves pieces behind.
            bytes.reserveCapacity(Self.longestTogether)
        }
        let head = UInt64(code) | UInt64(key.kind) << 8 | (flag ? 1 << 16 : 0)
        bytes.append(number: head | UInt64(record.count) << 32, bytes: 8)
        bytes.append(number: key.id, bytes: 8)
        bytes += record
    }

    /// What a packet says, to the last byte.
    package static func items(in bytes: [UInt8]) throws(ChannelError) -> [ChannelItem] {
        guard bytes.count >= headerLength else { throw .wrongLength }
        guard bytes[0] == version else { throw .version(bytes[0]) }
        var items: [ChannelItem] = []
        var position = headerLength
        while position < bytes.count {
            let start = position + itemLength
            guard start <= bytes.count else { throw .wrongLength }
            let length = Int(bytes.number(at: position + 4, bytes: 4))
            guard length <= bytes.count - start else { throw .wrongLength }
            let key = RecordKey(kind: bytes[position + 1], id: bytes.number(at: position + 8, bytes: 8))
            let record = bytes[start..<start + length]
            items.append(try item(bytes[position], key, record, flag: bytes[position + 2] == 1))
            position = start + length
        }
        return items
    }

    private static func item(
        _ code: UInt8, _ key: RecordKey, _ record: ArraySlice<UInt8>, flag: Bool
    ) throws(ChannelError) -> ChannelItem {
        switch code {
        case 1: .put(key, record: record, hasDescriptor: flag)
        case 2: .update(key, record: record)
        case 3: .remove(key)
        case 4: .ready
        case 5: .quiesced(key.id)
        case 6:
            .failed(
                code: Int32(bitPattern: UInt32(truncatingIfNeeded: key.id)),
                String(decoding: record, as: UTF8.self))
        case 7: .upgradeWanted
        case 8: .reloaded
        case 16: .stop
        case 17: .quiesce(key.id)
        case 18: .act
        case 19: .goOn(String(decoding: record, as: UTF8.self))
        case 20: .reload
        default: throw .unknownItem(code)
        }
    }
}

extension [UInt8] {
    /// Least significant byte first.
    package mutating func append(number: UInt64, bytes: Int) {
        unsafe Swift.withUnsafeBytes(of: number.littleEndian) { unsafe append(contentsOf: $0.prefix(bytes)) }
    }

    /// What `append` has written there.
    func number(at start: Int, bytes: Int) -> UInt64 {
        var number: UInt64 = 0
        var index = start + bytes
        while index > start {
            index -= 1
            number = number << 8 | UInt64(self[index])
        }
        return number
    }
}

extension ArraySlice<UInt8> {
    /// As a number of so many bytes, the least significant first.
    package var number: UInt64 { reversed().reduce(0) { $0 << 8 | UInt64($1) } }
}
