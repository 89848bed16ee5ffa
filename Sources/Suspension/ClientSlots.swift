/// The clients' records, by slot.
struct ClientSlots<Client: AnyObject> {
    private var clients: [Client?] = []

    subscript(slot: UInt32) -> Client? {
        get { slot < clients.count ? clients[Int(slot)] : nil }
        set {
            while clients.count <= slot { clients.append(nil) }
            clients[Int(slot)] = newValue
        }
    }

    @discardableResult mutating func remove(_ slot: UInt32) -> Client? {
        guard slot < clients.count else { return nil }
        defer { clients[Int(slot)] = nil }
        return clients[Int(slot)]
    }

    /// The used slots, in order.
    var slots: [UInt32] { clients.indices.filter { clients[$0] != nil }.map { UInt32($0) } }
}
