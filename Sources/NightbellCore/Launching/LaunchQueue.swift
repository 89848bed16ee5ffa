/// The clients to be launched. Urgent launches go before others, and administrators' before users'; each of
/// the four kinds has its own limit. Within a kind, users take turns, and each has a share of the limit: many
/// clients of one user, or programs that hang, delay no other user.
///
/// A client that need not be launched any more stays in the queue, and is skipped when its turn comes.
struct LaunchQueue: Sendable, Equatable {
    /// The class of a launch: it decides the order and the limit that the launch counts against.
    struct Kind: Sendable, Hashable {
        /// A peer or a request is waiting for it.
        var isUrgent = false
        /// A client of an administrator, or declared by one to be launched with the supervisor.
        var isPrivileged = false

        /// In the order of service.
        static let all = [
            Kind(isUrgent: true, isPrivileged: true), Kind(isUrgent: true),
            Kind(isPrivileged: true), Kind(),
        ]

        fileprivate var index: Int { (isUrgent ? 0 : 2) + (isPrivileged ? 0 : 1) }
    }

    private var rooms = [Room](repeating: Room(), count: Kind.all.count)

    mutating func append(_ client: ClientID, of user: UserID, _ kind: Kind) {
        rooms[kind.index].append(client, of: user)
    }

    /// The next client that may be launched now, whether it still has a reason to be or not.
    mutating func next(_ settings: Settings, isPressed: Bool, sharing: Bool) -> (
        client: ClientID, kind: Kind
    )? {
        for kind in Kind.all where kind.isUrgent || !isPressed {
            let launches = settings.launches
            let room = max(1, kind.isUrgent ? launches.concurrent : launches.concurrentInBackground)
            let share =
                kind.isUrgent ? launches.concurrentPerUser : launches.concurrentInBackgroundPerUser
            let client = rooms[kind.index].next(room) { user in
                settings.isAdministrator(user) || !sharing ? room : max(1, share)
            }
            if let client { return (client, kind) }
        }
        return nil
    }

    /// The client is launched: another user is next.
    mutating func passTurn(of user: UserID, _ kind: Kind) { rooms[kind.index].passTurn(of: user) }

    mutating func begin(_ user: UserID, _ kind: Kind) { rooms[kind.index].begin(user) }

    mutating func end(_ user: UserID, _ kind: Kind) { rooms[kind.index].end(user) }

    /// Whether a launch is queued that is not urgent and that its user's share permits.
    var hasOthers: Bool {
        Kind.all.contains { !$0.isUrgent && !rooms[$0.index].turns.isEmpty }
    }
}

/// The queued and the running launches of one kind.
private struct Room: Sendable, Equatable {
    private var users: [UserID: UserLine] = [:]
    private var underWay = 0
    /// Users with queued clients, each once. A user with no share left is removed when its turn comes.
    private(set) var turns = Line<UserID>()

    private struct UserLine: Sendable, Equatable {
        var clients = Line<ClientID>()
        var underWay = 0
        var isInTurns = false
    }

    mutating func append(_ client: ClientID, of user: UserID) {
        users[user, default: UserLine()].clients.append(client)
        enterTurns(user)
    }

    mutating func next(_ room: Int, share: (UserID) -> Int) -> ClientID? {
        guard underWay < room else { return nil }
        while let user = turns.first {
            if let line = users[user], !line.clients.isEmpty, line.underWay < share(user) {
                return users[user]?.clients.removeFirst()
            }
            turns.removeFirst()
            users[user]?.isInTurns = false
            tidy(user)
        }
        return nil
    }

    mutating func passTurn(of user: UserID) {
        guard turns.first == user else { return }
        turns.removeFirst()
        turns.append(user)
    }

    mutating func begin(_ user: UserID) {
        underWay += 1
        users[user, default: UserLine()].underWay += 1
    }

    mutating func end(_ user: UserID) {
        underWay -= 1
        users[user]?.underWay -= 1
        enterTurns(user)
        tidy(user)
    }

    private mutating func enterTurns(_ user: UserID) {
        guard let line = users[user], !line.isInTurns, !line.clients.isEmpty else { return }
        users[user]?.isInTurns = true
        turns.append(user)
    }

    /// Removes a user without queued or running launches.
    private mutating func tidy(_ user: UserID) {
        guard let line = users[user] else { return }
        if line.clients.isEmpty, line.underWay == 0, !line.isInTurns { users[user] = nil }
    }
}

/// First in, first out.
private struct Line<Element: Sendable & Equatable>: Sendable, Equatable {
    private var elements: [Element] = []
    private var start = 0

    var isEmpty: Bool { start == elements.count }
    var first: Element? { isEmpty ? nil : elements[start] }

    mutating func append(_ element: Element) { elements.append(element) }

    @discardableResult
    mutating func removeFirst() -> Element {
        defer {
            start += 1
            // Moves no more elements than were removed before: amortized constant time.
            if start == elements.count || start > 64 && start * 2 > elements.count {
                elements.removeFirst(start)
                start = 0
            }
        }
        return elements[start]
    }
}
