/// Messages between worker and keeper. One packet holds any number of them.
package enum ChannelItem: Sendable, Equatable {
    // From the worker.

    /// Store this record, replacing any under the same key. With a descriptor it takes the packet's next one.
    case put(RecordKey, record: ArraySlice<UInt8>, hasDescriptor: Bool)
    /// Replace the record and keep its descriptor. Does nothing if there is no such record.
    case update(RecordKey, record: ArraySlice<UInt8>)
    case remove(RecordKey)
    /// It serves; or, if it must wait, it could serve.
    case ready
    /// It stops acting until it is told to, and all its records have been sent. Answers the `quiesce` with
    /// this number.
    case quiesced(UInt64)
    /// It cannot serve; carries the reason.
    case failed(code: Int32, String)
    /// An authorised client has asked for an upgrade.
    case upgradeWanted
    /// It has read its configuration again; later workers are to do so as well.
    case reloaded

    // From the keeper.

    /// Thaw all clients and end.
    case stop
    /// Answer with `quiesced`, and do nothing more.
    case quiesce(UInt64)
    /// Start acting: the previous worker is gone.
    case act
    /// Read the configuration again.
    case reload
    /// Continue: there is no other worker after all; carries the reason.
    case cancelUpgrade(String)
}

/// Why a packet of the channel cannot be decoded.
package enum ChannelError: Error, Sendable, Hashable {
    /// It ends within an item, or has bytes left over.
    case wrongLength
    /// Another version of the program wrote it.
    case version(UInt8)
    case unknownItem(UInt8)
    /// It came with fewer descriptors than it names, or more.
    case wrongDescriptors
}

/// A packet under construction.
package struct ChannelPacket: Sendable {
    /// The version of the packets themselves, not of the records in them.
    package static let version: UInt8 = 1
    /// Passes through a socket's queue as one packet with the kernel's default sizes, with some room left.
    package static let capacity = 160 * 1_024
    /// The limit for combining records in one packet, so that memory for more is not needed: a longer record
    /// is sent alone. Enough for as many sockets as a packet has descriptors, with names of full length.
    package static let longestTogether = 32_768
    /// Up to this size the memory is reused.
    package static let usualLength = 4_096
    /// The longest record.
    package static let longestRecord = capacity - headerLength - itemLength

    private static let headerLength = 4
    private static let itemLength = 16

    package private(set) var bytes: [UInt8]
    /// They remain the caller's.
    package private(set) var descriptors: [CInt] = []
    package private(set) var count = 0

    package init() {
        bytes = [Self.version, 0, 0, 0]
        bytes.reserveCapacity(Self.usualLength)
    }

    package var isEmpty: Bool { count == 0 }

    /// Whether a record of this length, with a descriptor, no longer fits.
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
        case .cancelUpgrade(let text): append(19, RecordKey(kind: 0, id: 0), Array(text.utf8)[...])
        }
    }

    /// The memory of a packet of the usual size is reused, that of a large one is freed.
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
            // At once, and so large that it is given back as a whole: growing step by step fragments the
            // heap.
            bytes.reserveCapacity(Self.longestTogether)
        }
        let head = UInt64(code) | UInt64(key.kind) << 8 | (flag ? 1 << 16 : 0)
        let words = (
            (head | UInt64(record.count) << 32).littleEndian, key.id.littleEndian
        )
        unsafe Swift.withUnsafeBytes(of: words) { unsafe bytes.append(contentsOf: $0) }
        unsafe record.withUnsafeBytes { unsafe bytes.append(contentsOf: $0) }
    }

    /// The items of a packet, which must end exactly with the last one.
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
        case 19: .cancelUpgrade(String(decoding: record, as: UTF8.self))
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

    /// Reads a number that `append` has written.
    func number(at start: Int, bytes: Int) -> UInt64 {
        if bytes == 8, start >= 0, start + 8 <= count {
            return unsafe withUnsafeBytes {
                unsafe UInt64(littleEndian: $0.loadUnaligned(fromByteOffset: start, as: UInt64.self))
            }
        }
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
    /// The bytes as a number, the least significant first.
    package var number: UInt64 { reversed().reduce(0) { $0 << 8 | UInt64($1) } }
}
