import LinuxSystem

/// All connections, by slot, with a count for each uid. Keys are never reused.
struct ConnectionTable: ~Copyable {
    private var slots: [Connection?] = []
    private var generations: [UInt32] = []
    private var free: [UInt32] = []
    private var perUser: [UInt32: Int] = [:]
    private(set) var count = 0

    /// The key that the next connection will have.
    var nextKey: UInt64 {
        let slot = free.last ?? UInt32(slots.count)
        let generation = Int(slot) < generations.count ? generations[Int(slot)] : 1
        return UInt64(generation) << 32 | UInt64(slot)
    }

    mutating func insert(_ connection: Connection) {
        precondition(connection.key == nextKey, "a connection is made with the next key")
        let slot = Int(connection.slot)
        if free.popLast() == nil {
            slots.append(connection)
            generations.append(1)
        } else {
            slots[slot] = connection
        }
        count += 1
        perUser[connection.credentials.uid, default: 0] += 1
    }

    mutating func remove(_ connection: Connection) {
        let slot = Int(connection.slot)
        guard slots[slot] === connection else { return }
        slots[slot] = nil
        generations[slot] &+= 1
        free.append(connection.slot)
        count -= 1
        let left = (perUser[connection.credentials.uid] ?? 1) - 1
        perUser[connection.credentials.uid] = left == 0 ? nil : left
    }

    subscript(key: UInt64) -> Connection? {
        let slot = Int(UInt32(truncatingIfNeeded: key))
        guard slot < slots.count, let connection = slots[slot], connection.key == key else { return nil }
        return connection
    }

    /// The connection that a loop event is about, unless it is gone.
    subscript(token: WatchToken) -> Connection? {
        guard Int(token.slot) < slots.count, let connection = slots[Int(token.slot)],
            token.names(connection.key)
        else { return nil }
        return connection
    }

    func count(ofUser uid: UInt32) -> Int { perUser[uid] ?? 0 }

    var all: some Sequence<Connection> { slots.lazy.compactMap { $0 } }
}
