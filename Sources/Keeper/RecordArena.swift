/// Records side by side: with tens of thousands of them, a dictionary of arrays would be mostly overhead.
///
/// A record and its head, with its key, lie in a chunk, one after the other, as they do in an image. An
/// open-addressing table finds the place of each by its key's hash. A removed record stays where it is until
/// most of its chunk is unused; then the remaining records move, and the chunk's memory is freed.
struct RecordArena: Sendable {
    /// The number that stands for no descriptor.
    static var none: CInt { -1 }

    /// Small enough that moving the remaining records of one takes no noticeable time.
    private static let chunkLength = 65_536
    /// Longer records, with their heads, have a chunk of their own.
    private static let longestShared = chunkLength / 4
    /// Kind and ID of the key, the descriptor's number, and the length.
    private static let headLength = 1 + 8 + 4 + 4

    private struct Chunk: Sendable {
        var bytes: [UInt8] = []
        /// The number of bytes in records that have not been removed.
        var live = 0
    }

    private struct Place: Sendable, Equatable {
        static var none: Place { Place(chunk: .max, offset: 0) }

        var chunk: UInt32
        var offset: UInt32
    }

    private var chunks: [Chunk] = []
    /// Empty chunks.
    private var unused: [Int] = []
    /// The chunk that is being filled.
    private var current: Int?
    /// Full chunks with many removed records.
    private var suspects: [Int] = []
    /// At least a quarter of the slots are empty, so that probing ends soon.
    private var table = [Place](repeating: .none, count: 16)
    private(set) var count = 0

    // MARK: Reading

    func record(_ key: RecordKey) -> ArraySlice<UInt8>? {
        slot(of: key).map { whole(at: table[$0]).dropFirst(Self.headLength) }
    }

    func descriptor(_ key: RecordKey) -> CInt? { slot(of: key).map { descriptor(at: table[$0]) } }

    /// In no particular order.
    func forEach(_ body: (RecordKey, _ descriptor: CInt) -> Void) {
        for place in table where place != .none { body(key(at: place), descriptor(at: place)) }
    }

    /// The record with its head, as `append` writes it.
    func image(of key: RecordKey) -> ArraySlice<UInt8> {
        slot(of: key).map { whole(at: table[$0]) } ?? []
    }

    /// Memory allocated for records and places, used or not.
    var byteCount: Int { chunks.reduce(table.count * 8) { $0 + $1.bytes.capacity } }

    static func append(
        _ key: RecordKey, _ descriptor: CInt, _ record: ArraySlice<UInt8>, to bytes: inout [UInt8]
    ) {
        bytes.append(key.kind)
        bytes.append(number: key.id, bytes: 8)
        bytes.append(number: UInt64(UInt32(bitPattern: descriptor)), bytes: 4)
        bytes.append(number: UInt64(record.count), bytes: 4)
        bytes += record
    }

    // MARK: Writing

    /// Stores a record, replacing any under its key; returns the descriptor of the replaced one.
    mutating func set(_ key: RecordKey, _ descriptor: CInt, _ record: ArraySlice<UInt8>) -> CInt? {
        defer { tidy() }
        guard let slot = slot(of: key) else {
            if (count + 1) * 4 > table.count * 3 { resize(to: table.count * 3 / 2) }
            count += 1
            // First: storing it may move other records, but adds none.
            let place = store(key, descriptor, record)
            table[freeSlot(for: key)] = place
            return nil
        }
        let old = table[slot]
        let oldDescriptor = self.descriptor(at: old)
        if length(at: old) == record.count {
            overwrite(old, descriptor, record)
        } else {
            table[slot] = store(key, descriptor, record)
            discard(old, wholeLength(at: old))
        }
        return oldDescriptor
    }

    mutating func remove(_ key: RecordKey) {
        guard let slot = slot(of: key) else { return }
        let place = table[slot]
        takeOut(slot)
        count -= 1
        discard(place, wholeLength(at: place))
        if table.count > 16, count * 6 < table.count { resize(to: max(16, table.count / 3)) }
        tidy()
    }

    /// Returns the descriptor's number and stores `none` in its place.
    mutating func takeDescriptor(_ key: RecordKey) -> CInt? {
        guard let slot = slot(of: key) else { return nil }
        defer { overwrite(table[slot], Self.none) }
        return descriptor(at: table[slot])
    }

    private mutating func overwrite(_ place: Place, _ descriptor: CInt) {
        let start = Int(place.offset)
        var number = UInt32(bitPattern: descriptor)
        for index in start + 9..<start + 13 {
            chunks[Int(place.chunk)].bytes[index] = UInt8(truncatingIfNeeded: number)
            number >>= 8
        }
    }

    private mutating func overwrite(_ place: Place, _ descriptor: CInt, _ record: ArraySlice<UInt8>) {
        overwrite(place, descriptor)
        let start = Int(place.offset)
        let range = start + Self.headLength..<start + Self.headLength + record.count
        chunks[Int(place.chunk)].bytes.replaceSubrange(range, with: record)
    }

    private mutating func store(_ key: RecordKey, _ descriptor: CInt, _ record: ArraySlice<UInt8>) -> Place {
        let place = room(for: Self.headLength + record.count)
        Self.append(key, descriptor, record, to: &chunks[Int(place.chunk)].bytes)
        return place
    }

    // MARK: Chunks

    /// The place for the next record of this length.
    private mutating func room(for length: Int) -> Place {
        let chunk: Int
        if length > Self.longestShared {
            chunk = newChunk(length)
        } else if let current, chunks[current].bytes.count + length <= Self.chunkLength {
            chunk = current
        } else {
            if let current { suspects.append(current) }
            chunk = newChunk(Self.chunkLength)
            current = chunk
        }
        chunks[chunk].live += length
        return Place(chunk: UInt32(chunk), offset: UInt32(chunks[chunk].bytes.count))
    }

    private mutating func newChunk(_ length: Int) -> Int {
        if unused.isEmpty {
            chunks.append(Chunk())
            unused.append(chunks.count - 1)
        }
        let chunk = unused.removeLast()
        chunks[chunk].bytes.reserveCapacity(length)
        return chunk
    }

    /// The record at this place has been removed.
    private mutating func discard(_ place: Place, _ length: Int) {
        let chunk = Int(place.chunk)
        chunks[chunk].live -= length
        if chunk != current { return suspects.append(chunk) }
        if chunks[chunk].live == 0 { chunks[chunk].bytes.removeAll(keepingCapacity: true) }
    }

    /// Moves the remaining records of chunks that are mostly unused.
    private mutating func tidy() {
        while let chunk = suspects.popLast() {
            guard chunk != current, !chunks[chunk].bytes.isEmpty,
                chunks[chunk].live * 2 < chunks[chunk].bytes.count
            else { continue }
            // Taken out: its records are read while others are written.
            let old = chunks[chunk]
            chunks[chunk] = Chunk()
            if old.live > 0 { move(old.bytes, from: UInt32(chunk)) }
            unused.append(chunk)
        }
    }

    private mutating func move(_ bytes: [UInt8], from chunk: UInt32) {
        var offset = 0
        while offset < bytes.count {
            let length = Self.headLength + Int(bytes.number(at: offset + 13, bytes: 4))
            let key = RecordKey(kind: bytes[offset], id: bytes.number(at: offset + 1, bytes: 8))
            // If this record was removed, the place may be another record's.
            if let slot = slot(of: key, at: Place(chunk: chunk, offset: UInt32(offset))) {
                let place = room(for: length)
                chunks[Int(place.chunk)].bytes += bytes[offset..<offset + length]
                table[slot] = place
            }
            offset += length
        }
    }

    // MARK: Reading a place

    private func key(at place: Place) -> RecordKey {
        let (chunk, start) = (Int(place.chunk), Int(place.offset))
        let id = chunks[chunk].bytes.number(at: start + 1, bytes: 8)
        return RecordKey(kind: chunks[chunk].bytes[start], id: id)
    }

    private func descriptor(at place: Place) -> CInt {
        let number = chunks[Int(place.chunk)].bytes.number(at: Int(place.offset) + 9, bytes: 4)
        return CInt(bitPattern: UInt32(truncatingIfNeeded: number))
    }

    private func length(at place: Place) -> Int {
        Int(chunks[Int(place.chunk)].bytes.number(at: Int(place.offset) + 13, bytes: 4))
    }

    private func wholeLength(at place: Place) -> Int { Self.headLength + length(at: place) }

    private func whole(at place: Place) -> ArraySlice<UInt8> {
        let start = Int(place.offset)
        return chunks[Int(place.chunk)].bytes[start..<start + wholeLength(at: place)]
    }

    // MARK: The table

    /// The first slot that is probed for a key.
    private func home(of key: RecordKey) -> Int {
        // The finaliser of MurmurHash3: IDs are small numbers in both halves.
        var hash = key.id ^ UInt64(key.kind) << 56
        hash = (hash ^ hash >> 33) &* 0xFF51_AFD7_ED55_8CCD
        hash = (hash ^ hash >> 33) &* 0xC4CE_B9FE_1A85_EC53
        hash ^= hash >> 33
        return Int(hash.multipliedFullWidth(by: UInt64(table.count)).high)
    }

    private func after(_ slot: Int) -> Int { slot + 1 == table.count ? 0 : slot + 1 }

    private func slot(of key: RecordKey) -> Int? {
        var slot = home(of: key)
        while table[slot] != .none {
            if self.key(at: table[slot]) == key { return slot }
            slot = after(slot)
        }
        return nil
    }

    /// As above, for a place that must not be read any more.
    private func slot(of key: RecordKey, at place: Place) -> Int? {
        var slot = home(of: key)
        while table[slot] != .none {
            if table[slot] == place { return slot }
            slot = after(slot)
        }
        return nil
    }

    private func freeSlot(for key: RecordKey) -> Int {
        var slot = home(of: key)
        while table[slot] != .none { slot = after(slot) }
        return slot
    }

    /// Entries behind it that it displaced move up, so that no probe sequence has a gap.
    private mutating func takeOut(_ slot: Int) {
        var gap = slot
        var next = after(gap)
        while table[next] != .none {
            let home = home(of: key(at: table[next]))
            // Whether the gap lies between its first slot and its present one, around the end of the table.
            let fromHome = (next - home + table.count) % table.count
            let fromGap = (next - gap + table.count) % table.count
            if fromHome >= fromGap {
                table[gap] = table[next]
                gap = next
            }
            next = after(next)
        }
        table[gap] = .none
    }

    private mutating func resize(to length: Int) {
        let old = table
        table = [Place](repeating: .none, count: length)
        for place in old where place != .none { table[freeSlot(for: key(at: place))] = place }
    }
}
