import Glibc
import LinuxSystem
import NightbellCore

/// All connections, by slot, with a count for each uid, and those of clients. Keys are never reused.
struct ConnectionTable: ~Copyable {
    private var slots: [Connection?] = []
    private var generations: [UInt32] = []
    private var free: [UInt32] = []
    private var perUser: [UInt32: Int] = [:]
    private(set) var count = 0
    /// The connections of clients, by the slot of their ID.
    private var ofClients: [Connection?] = []
    /// The slot of each process's first client, and those of its others: there are some only if clients are not
    /// suspended.
    private var firstClients: [pid_t: UInt32] = [:]
    private var otherClients: [pid_t: [UInt32]] = [:]
    /// Connections that have not sent anything yet.
    var silent = SilentConnections()
    /// Clients that have hung up and may be about to end, in that order.
    var hungUp: [(key: UInt64, until: Instant)] = []
    /// Units of systemd that may have been left frozen, in the order of their times.
    var abandoned: [AbandonedUnit] = []
    /// Connections that watch, in the order in which they began.
    private(set) var watchers: [Connection] = []
    var protocolErrors: UInt64 = 0

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

    mutating func beginWatching(_ connection: Connection) { watchers.append(connection) }

    mutating func endWatching(_ connection: Connection) { watchers.removeAll { $0 === connection } }

    /// Many connections may come and go behind one that is silent.
    mutating func forgetSpoken() {
        guard silent.count > 2 * count + 64 else { return }
        var rest = SilentConnections()
        swap(&rest, &silent)
        rest.removeAll { self[$0]?.hasSpoken ?? true }
        silent = rest
    }

    // MARK: Clients

    /// nil: it has no process, or not yet.
    subscript(client: ClientID) -> Connection? {
        guard Int(client.slot) < ofClients.count, let connection = ofClients[Int(client.slot)],
            connection.client?.id == client
        else { return nil }
        return connection
    }

    /// The client in this slot, if it has a process.
    func client(inSlot slot: UInt32) -> ClientID? {
        Int(slot) < ofClients.count ? ofClients[Int(slot)]?.client?.id : nil
    }

    /// The clients that a process is.
    func clients(in process: pid_t) -> [ClientID] {
        guard let first = firstClients[process] else { return [] }
        return ([first] + (otherClients[process] ?? [])).compactMap { client(inSlot: $0) }
    }

    func hasClient(in process: pid_t) -> Bool { firstClients[process] != nil }

    var clientProcessCount: Int { firstClients.count }

    mutating func attach(_ connection: Connection, to client: ClientID, in process: pid_t) {
        while ofClients.count <= Int(client.slot) { ofClients.append(nil) }
        ofClients[Int(client.slot)] = connection
        guard let first = firstClients[process] else { return firstClients[process] = client.slot }
        if first != client.slot, otherClients[process]?.contains(client.slot) != true {
            otherClients[process, default: []].append(client.slot)
        }
    }

    mutating func detach(_ client: ClientID, in process: pid_t) {
        ofClients[Int(client.slot)] = nil
        var slots = otherClients.removeValue(forKey: process) ?? []
        if firstClients[process] == client.slot {
            firstClients[process] = slots.popLast()
        } else {
            slots.removeAll { $0 == client.slot }
        }
        if !slots.isEmpty { otherClients[process] = slots }
    }
}
