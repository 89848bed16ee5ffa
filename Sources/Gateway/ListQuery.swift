import HeapModule
import Hummingbird
import Nightbell
import Presentation
import StatusReports

/// Which clients a list has, and in which order.
struct ListQuery {
    enum Order: String, CaseIterable {
        /// By identifier.
        case identifier
        /// Those that are awake first, each part by how recently its state has changed.
        case recent
    }

    var state: ClientInfo.State?
    var search = ""
    var order = Order.identifier
    var after = ""
    var limit = 200

    static let mostClients = 1_000

    init(_ request: Request) throws(APIError) {
        let parameters = request.uri.queryParameters
        if let text = parameters["state"] {
            guard let state = ClientInfo.State.allCases.first(where: { $0.name == text }) else {
                let names = ClientInfo.State.allCases.map(\.name).joined(separator: ", ")
                throw .invalid("state: expected one of \(names)")
            }
            self.state = state
        }
        if let text = parameters["order"] {
            guard let order = Order(rawValue: String(text)) else {
                throw .invalid("order: expected identifier or recent")
            }
            self.order = order
        }
        if let text = parameters["limit"] {
            guard let limit = Int(text), (1...Self.mostClients).contains(limit) else {
                throw .invalid("limit: expected a number from 1 to \(Self.mostClients)")
            }
            self.limit = limit
        }
        search = parameters["search"].map(String.init) ?? ""
        after = parameters["after"].map(String.init) ?? ""
    }

    func page(of answer: RecentAnswer<[ClientInfo]>.Dated) -> JSON {
        let clients = answer.value
        // Their places: a client is too large to be moved about, and there may be ten thousand.
        var found = clients.indices.filter { index in
            (state == nil || clients[index].state == state)
                && (search.isEmpty || clients[index].identifier.contains(search))
        }
        let total = found.count
        switch order {
        case .identifier: if !after.isEmpty { found.removeAll { clients[$0].identifier <= after } }
        case .recent: found = mostRecent(found, of: clients)
        }
        let page = found.prefix(limit)
        let next =
            order == .identifier && page.count < found.count ? page.last.map { clients[$0].identifier } : nil
        return [
            "clients": .array(page.map { clients[$0].json(detailed: false) }),
            "total": .integer(Int64(total)), "next": next.map(JSON.string) ?? .null,
            "age_ms": .integer(answer.age),
            "as_of_unix_ns": .unsigned(answer.takenAtUnixNanoseconds),
        ]
    }

    /// The place of a client, in the order `recent`.
    private struct Recent: Comparable {
        let isAsleep: Bool
        let inState: Duration
        let place: Int

        static func < (one: Self, other: Self) -> Bool {
            if one.isAsleep != other.isAsleep { return other.isAsleep }
            return (one.inState, one.place) < (other.inState, other.place)
        }
    }

    /// The first ones, as many as a page has: all are not put in order for each page.
    private func mostRecent(_ places: [Int], of clients: [ClientInfo]) -> [Int] {
        var first = Heap<Recent>(minimumCapacity: limit)
        for place in places {
            let client = Recent(
                isAsleep: clients[place].state.isAsleep, inState: clients[place].inState, place: place)
            if first.count < limit {
                first.insert(client)
            } else if let last = first.max, client < last {
                first.replaceMax(with: client)
            }
        }
        var ordered: [Int] = []
        while let client = first.popMin() { ordered.append(client.place) }
        return ordered
    }
}

extension ClientInfo.State {
    /// It uses no processor time.
    var isAsleep: Bool {
        switch self {
        case .suspended, .dormant, .notRunning: true
        case .inactive, .active, .background, .suspending, .terminating, .launching, .unknown: false
        }
    }
}
