/// Pending work, served round-robin by user.
///
/// A turn of the loop has a limited time for it, because fired sockets wait meanwhile; the rest stays in here
/// until the next turn. A user that has used up its share, with one costly packet or with a thousand
/// connections, waits until the others have had theirs.
package struct Backlog<Element>: ~Copyable {
    private struct User {
        /// Oldest first; the elements before `next` are done.
        var waiting: [Element] = []
        var next = 0
        /// The rest of its share, in nanoseconds; negative: it is in debt.
        var credit: Int64 = 0

        mutating func removeFirst() -> Element {
            defer {
                next += 1
                if next == waiting.count {
                    // The room for a burst is not kept: thousands of sockets may be armed at once, and then
                    // none for hours.
                    waiting.removeAll(keepingCapacity: waiting.capacity <= Backlog.keptCapacity)
                    next = 0
                } else if next >= 64 && next > waiting.count / 2 {
                    waiting.removeFirst(next)
                    next = 0
                }
            }
            return waiting[next]
        }
    }

    /// Users that have elements in here, or had some recently.
    private var users: [UInt32: User] = [:]
    /// Users that have elements in here, in round-robin order.
    private var ring: [UInt32] = []
    private var position = 0
    package private(set) var count = 0

    /// The time that a user may use before the next user's turn, in nanoseconds.
    package static var share: Int64 { 100_000 }
    /// A debt is capped at this many shares.
    private static var longestDebt: Int64 { 64 }
    /// An empty queue keeps room for this many elements.
    private static var keptCapacity: Int { 128 }
    /// At most this many users without elements are remembered.
    private static var mostUsers: Int { 64 }

    package init() {}

    package var isEmpty: Bool { count == 0 }

    package mutating func append(_ element: Element, of uid: UInt32) {
        users[uid, default: User()].waiting.append(element)
        count += 1
        if users[uid]?.waiting.count == 1 { ring.append(uid) }
    }

    package mutating func takeNext() -> (element: Element, uid: UInt32)? {
        guard count > 0 else { return nil }
        while true {
            if position >= ring.count { position = 0 }
            guard let user = users.index(forKey: ring[position]) else {
                preconditionFailure("a user in the ring has something in here")
            }
            if ring.count > 1, users.values[user].credit <= 0 {
                users.values[user].credit += Self.share
                position += 1
                continue
            }
            count -= 1
            let uid = ring[position]
            let element = users.values[user].removeFirst()
            if users.values[user].waiting.isEmpty {
                ring.remove(at: position)
                users.values[user].credit = min(0, users.values[user].credit)
            }
            return (element, uid)
        }
    }

    /// Charges the time that the last element took to its user.
    package mutating func charge(_ uid: UInt32, nanoseconds: Int64) {
        guard let user = users.index(forKey: uid) else { return }
        let credit = users.values[user].credit - nanoseconds
        users.values[user].credit = max(credit, -Self.longestDebt * Self.share)
    }

    /// Forgets all debts once nothing is waiting.
    package mutating func endTurn() {
        guard count == 0 else { return }
        if users.count > Self.mostUsers { return users = [:] }
        for user in users.indices { users.values[user].credit = 0 }
    }
}
