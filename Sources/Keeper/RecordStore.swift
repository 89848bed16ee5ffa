package import LinuxSystem

/// Records by key, some with a descriptor. Their contents are opaque here.
package struct RecordStore: ~Copyable, Sendable {
    /// A record that was removed from the store.
    package struct Kept: ~Copyable {
        package let record: [UInt8]
        package let descriptor: OwnedDescriptor?

        package consuming func takeDescriptor() -> OwnedDescriptor? { descriptor }
    }

    private var arena = RecordArena()

    package init() {}

    deinit {
        arena.forEach { _, descriptor in
            if descriptor != RecordArena.none {
                ForeignDescriptor.close(OwnedDescriptor(adopting: descriptor))
            }
        }
    }

    package var count: Int { arena.count }

    package var descriptorCount: Int { descriptors.count }

    /// Memory in use.
    package var byteCount: Int { arena.byteCount }

    /// Sorted, so that the same records are always replayed in the same order.
    package func keys(ofKind kind: UInt8) -> [RecordKey] { sortedKeys[kind] }

    /// The keys of all records, found in one pass, by kind.
    package var sortedKeys: SortedKeys {
        var keys = SortedKeys()
        arena.forEach { key, _ in keys.append(key) }
        keys.sort()
        return keys
    }

    package struct SortedKeys {
        private var ids = [[UInt64]](repeating: [], count: 256)

        fileprivate mutating func append(_ key: RecordKey) { ids[Int(key.kind)].append(key.id) }

        fileprivate mutating func sort() {
            for kind in ids.indices { ids[kind].sort() }
        }

        package subscript(kind: UInt8) -> [RecordKey] {
            ids[Int(kind)].map { RecordKey(kind: kind, id: $0) }
        }
    }

    package func record(_ key: RecordKey) -> [UInt8]? { arena.record(key).map { Array($0) } }

    /// The descriptor's number, which stays the store's.
    package func descriptor(_ key: RecordKey) -> CInt? {
        guard let descriptor = arena.descriptor(key), descriptor != RecordArena.none else { return nil }
        return descriptor
    }

    /// Hands out a record's descriptor; the record stays, without one.
    package mutating func takeDescriptor(_ key: RecordKey) -> OwnedDescriptor? {
        guard let descriptor = arena.takeDescriptor(key), descriptor != RecordArena.none else { return nil }
        return OwnedDescriptor(adopting: descriptor)
    }

    /// Stores a record; returns the descriptor of the one that it replaces.
    package mutating func put(
        _ key: RecordKey, _ record: [UInt8], _ descriptor: consuming OwnedDescriptor? = nil
    ) -> OwnedDescriptor? {
        put(key, record[...], descriptor)
    }

    private mutating func put(
        _ key: RecordKey, _ record: ArraySlice<UInt8>, _ descriptor: consuming OwnedDescriptor?
    ) -> OwnedDescriptor? {
        let number: CInt =
            switch consume descriptor {
            case .some(let descriptor): descriptor.take()
            case .none: RecordArena.none
            }
        guard let old = arena.set(key, number, record), old != RecordArena.none else { return nil }
        return OwnedDescriptor(adopting: old)
    }

    package mutating func update(_ key: RecordKey, _ record: [UInt8]) { update(key, record[...]) }

    private mutating func update(_ key: RecordKey, _ record: ArraySlice<UInt8>) {
        if let descriptor = arena.descriptor(key) { _ = arena.set(key, descriptor, record) }
    }

    /// Removes and returns a record.
    package mutating func removeValue(for key: RecordKey) -> Kept? {
        guard let record = record(key), let descriptor = remove(key) else { return nil }
        guard descriptor != RecordArena.none else { return Kept(record: record, descriptor: nil) }
        return Kept(record: record, descriptor: OwnedDescriptor(adopting: descriptor))
    }

    /// Returns the number of its descriptor; nil if there is no such record.
    private mutating func remove(_ key: RecordKey) -> CInt? {
        guard let descriptor = arena.descriptor(key) else { return nil }
        arena.remove(key)
        return descriptor
    }

    /// Applies one item of a packet; the descriptors come from the packet. Returns an item that is not about
    /// records.
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
                old = put(key, record, nil)
            }
            if let old { dispose(old) }
            return nil
        case .update(let key, let record):
            update(key, record)
            return nil
        case .remove(let key):
            if let descriptor = remove(key), descriptor != RecordArena.none {
                dispose(OwnedDescriptor(adopting: descriptor))
            }
            return nil
        case .ready, .quiesced, .failed, .upgradeWanted, .reloaded, .reload, .stop, .quiesce, .act,
            .cancelUpgrade:
            return item
        }
    }

    // MARK: Across execve

    private static let magic: [UInt8] = Array("nightbell-store\u{1}".utf8)

    /// All records and the numbers of their descriptors, for another program in this process, or in a child,
    /// that has the same descriptors open.
    package func image(adding additions: [Addition] = []) -> [UInt8] {
        var bytes = Self.magic
        var keys: [RecordKey] = []
        arena.forEach { key, _ in keys.append(key) }
        for key in keys.sorted() { bytes += arena.image(of: key) }
        for addition in additions {
            RecordArena.append(
                addition.key, addition.descriptor ?? RecordArena.none, addition.record[...], to: &bytes)
        }
        return bytes
    }

    /// A record that exists only in an image.
    package struct Addition {
        var key: RecordKey
        var record: [UInt8] = []
        var descriptor: CInt?
    }

    /// The numbers of all descriptors.
    package var descriptors: [CInt] {
        var descriptors: [CInt] = []
        arena.forEach { _, descriptor in
            if descriptor != RecordArena.none { descriptors.append(descriptor) }
        }
        return descriptors
    }

    /// Restores the records that `image` described. nil: it cannot be decoded, and no descriptor was taken
    /// over.
    package init?(image: [UInt8]) {
        guard image.starts(with: Self.magic) else { return nil }
        var rest = image[Self.magic.count...]
        var arena = RecordArena()
        while !rest.isEmpty {
            guard rest.count >= 17 else { return nil }
            let head = Array(rest.prefix(17))
            rest = rest.dropFirst(17)
            let length = Int(head[13..<17].number)
            guard length <= rest.count else { return nil }
            let descriptor = CInt(bitPattern: UInt32(truncatingIfNeeded: head[9..<13].number))
            _ = arena.set(
                RecordKey(kind: head[0], id: head[1..<9].number), descriptor, rest.prefix(length))
            rest = rest.dropFirst(length)
        }
        self.arena = arena
    }
}
