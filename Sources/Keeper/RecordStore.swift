package import Descriptors

/// Records by key, some with a descriptor. What is in them is nobody's business here.
package struct RecordStore: ~Copyable, Sendable {
    /// One record, taken out.
    package struct Kept: ~Copyable {
        package let record: [UInt8]
        package let descriptor: OwnedDescriptor?

        package consuming func takeDescriptor() -> OwnedDescriptor? { descriptor }
    }

    private struct Entry {
        static var none: CInt { -1 }

        var record: [UInt8]
        /// Ours to close.
        var descriptor: CInt
    }

    private var entries: [RecordKey: Entry] = [:]

    package init() {}

    deinit {
        for entry in entries.values where entry.descriptor != Entry.none {
            ForeignDescriptor.close(OwnedDescriptor(adopting: entry.descriptor))
        }
    }

    package var count: Int { entries.count }

    package var descriptorCount: Int { entries.values.count { $0.descriptor != Entry.none } }

    /// Sorted, so that the same records are always replayed in the same order.
    package func keys(ofKind kind: UInt8) -> [RecordKey] {
        entries.keys.filter { $0.kind == kind }.sorted()
    }

    package func record(_ key: RecordKey) -> [UInt8]? { entries[key]?.record }

    /// The descriptor's number, which stays the store's.
    package func descriptor(_ key: RecordKey) -> CInt? {
        guard let entry = entries[key], entry.descriptor != Entry.none else { return nil }
        return entry.descriptor
    }

    /// Keeps a record; gives back the descriptor of the one that it replaces.
    package mutating func put(
        _ key: RecordKey, _ record: [UInt8], _ descriptor: consuming OwnedDescriptor? = nil
    ) -> OwnedDescriptor? {
        let number: CInt =
            switch consume descriptor {
            case .some(let descriptor): descriptor.take()
            case .none: Entry.none
            }
        let old = entries.updateValue(Entry(record: record, descriptor: number), forKey: key)
        guard let old, old.descriptor != Entry.none else { return nil }
        return OwnedDescriptor(adopting: old.descriptor)
    }

    package mutating func update(_ key: RecordKey, _ record: [UInt8]) {
        entries[key]?.record = record
    }

    /// Takes a record out.
    package mutating func take(_ key: RecordKey) -> Kept? {
        guard let entry = entries.removeValue(forKey: key) else { return nil }
        guard entry.descriptor != Entry.none else { return Kept(record: entry.record, descriptor: nil) }
        return Kept(record: entry.record, descriptor: OwnedDescriptor(adopting: entry.descriptor))
    }

    /// Does what one item of a packet says; the descriptors come from the packet. What is not about records is
    /// given back.
    package mutating func apply(
        _ item: ChannelItem, _ packet: inout PacketBuffer, dispose: (consuming OwnedDescriptor) -> Void
    ) throws(ChannelError) -> ChannelItem? {
        switch item {
        case .put(let key, let record, let hasDescriptor):
            let old: OwnedDescriptor?
            if hasDescriptor {
                guard packet.descriptorCount > 0 else { throw .wrongDescriptors }
                old = put(key, record, packet.takeDescriptor())
            } else {
                old = put(key, record)
            }
            if let old { dispose(old) }
            return nil
        case .update(let key, let record):
            update(key, record)
            return nil
        case .remove(let key):
            switch take(key) {
            case .some(let kept): if let descriptor = kept.takeDescriptor() { dispose(descriptor) }
            case .none: break
            }
            return nil
        case .ready, .quiesced, .failed, .upgradeWanted, .stop, .quiesce, .act, .goOn:
            return item
        }
    }

    // MARK: Across execve

    private static let magic: [UInt8] = Array("nightbell-store\u{1}".utf8)

    /// All records and the numbers of their descriptors, for another program in this process, or in a child, that
    /// has the same descriptors open.
    package func image(adding additions: [Addition] = []) -> [UInt8] {
        var bytes = Self.magic
        for key in entries.keys.sorted() {
            if let entry = entries[key] { Self.append(key, entry, to: &bytes) }
        }
        for addition in additions {
            let entry = Entry(record: addition.record, descriptor: addition.descriptor ?? Entry.none)
            Self.append(addition.key, entry, to: &bytes)
        }
        return bytes
    }

    /// What is only in an image.
    package struct Addition {
        var key: RecordKey
        var record: [UInt8] = []
        var descriptor: CInt?
    }

    private static func append(_ key: RecordKey, _ entry: Entry, to bytes: inout [UInt8]) {
        bytes.append(key.kind)
        bytes.append(number: key.id, bytes: 8)
        bytes.append(number: UInt64(UInt32(bitPattern: entry.descriptor)), bytes: 4)
        bytes.append(number: UInt64(entry.record.count), bytes: 4)
        bytes += entry.record
    }

    /// The numbers of all descriptors.
    package var descriptors: [CInt] {
        entries.values.map(\.descriptor).filter { $0 != Entry.none }
    }

    /// Takes over what `image` described. nil: it cannot be read, and no descriptor was taken over.
    package init?(image: [UInt8]) {
        guard image.starts(with: Self.magic) else { return nil }
        var rest = image[Self.magic.count...]
        var entries: [RecordKey: Entry] = [:]
        while !rest.isEmpty {
            guard rest.count >= 17 else { return nil }
            let head = Array(rest.prefix(17))
            rest = rest.dropFirst(17)
            let length = Int(head[13..<17].number)
            guard length <= rest.count else { return nil }
            let descriptor = CInt(bitPattern: UInt32(truncatingIfNeeded: head[9..<13].number))
            entries[RecordKey(kind: head[0], id: head[1..<9].number)] = Entry(
                record: Array(rest.prefix(length)), descriptor: descriptor)
            rest = rest.dropFirst(length)
        }
        self.entries = entries
    }
}
