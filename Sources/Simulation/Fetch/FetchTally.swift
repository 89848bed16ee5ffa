/// The result of a `FetchWorld`.
package struct FetchTally: Sendable, Equatable {
    package struct Openings: Sendable, Equatable {
        package var fresh = 0
        package var all = 0

        package var share: Double { all > 0 ? Double(fresh) / Double(all) : 0 }
    }

    package var openings = Openings()
    /// By the name of how clients behave, in a fixed order.
    package private(set) var openingsByBehaviour: [(name: String, openings: Openings)]
    /// By the name of the kind of person.
    package private(set) var openingsByPerson: [(name: String, openings: Openings)]
    package private(set) var fetchesByBehaviour: [(name: String, fetches: Int)]
    /// Of each client on each day, sorted.
    package internal(set) var fetchesPerDay: [Int] = []
    /// Fetches before the shortest pause was over.
    package internal(set) var belowFloor = 0
    /// Fetches in the foreground, without a network or while memory and processors were short.
    package internal(set) var illTimed = 0
    /// Instants at which the machine was awake for another reason.
    package internal(set) var otherInstants = 0
    /// Instants at which it was woken for fetches alone.
    package internal(set) var extraInstants = 0

    package init() {
        openingsByBehaviour = FetchingClient.Behaviour.allCases.map { ($0.rawValue, Openings()) }
        openingsByPerson = Person.Kind.allCases.map { ("\($0)", Openings()) }
        fetchesByBehaviour = FetchingClient.Behaviour.allCases.map { ($0.rawValue, 0) }
    }

    mutating func count(_ isFresh: Bool, of client: FetchingClient) {
        openings.all += 1
        if isFresh { openings.fresh += 1 }
        for index in openingsByBehaviour.indices
        where openingsByBehaviour[index].name == client.behaviour.rawValue {
            openingsByBehaviour[index].openings.all += 1
            if isFresh { openingsByBehaviour[index].openings.fresh += 1 }
        }
        for index in openingsByPerson.indices
        where openingsByPerson[index].name == "\(client.person.kind)" {
            openingsByPerson[index].openings.all += 1
            if isFresh { openingsByPerson[index].openings.fresh += 1 }
        }
    }

    mutating func countFetch(of client: FetchingClient) {
        for index in fetchesByBehaviour.indices
        where fetchesByBehaviour[index].name == client.behaviour.rawValue {
            fetchesByBehaviour[index].fetches += 1
        }
    }

    mutating func finish() { fetchesPerDay.sort() }

    /// A percentile of the fetches of a client on a day.
    package func fetchesPerDay(percentile: Int) -> Int {
        guard !fetchesPerDay.isEmpty else { return 0 }
        return fetchesPerDay[min(fetchesPerDay.count * percentile / 100, fetchesPerDay.count - 1)]
    }

    package static func == (one: FetchTally, other: FetchTally) -> Bool {
        one.openings == other.openings && one.fetchesPerDay == other.fetchesPerDay
            && one.belowFloor == other.belowFloor && one.illTimed == other.illTimed
            && one.otherInstants == other.otherInstants && one.extraInstants == other.extraInstants
    }
}
