/// An address from which a client wants the content anew once in each interval, whether it runs or not.
package struct Subscription: Hashable, Sendable {
    package var url: TransferURL
    /// In seconds.
    package var interval: Int64

    package init(_ url: TransferURL, interval: Int64) {
        self.url = url
        self.interval = interval
    }
}

/// When the issues of subscriptions are to be begun.
///
/// All times are those of the clock on the wall, in seconds since 1970: an issue of each day comes each day,
/// also to a machine that is off at night. A clock that is set back delays no issue by more than its interval.
package struct SubscriptionPlan: Sendable {
    /// By client.
    package private(set) var subscriptions: [String: Subscription] = [:]
    /// When the last issue of each client was begun. It outlives the subscription: one that is taken up again
    /// begins nothing early.
    package private(set) var begun: [String: Int64]
    private struct Postponement {
        /// When it could not be begun.
        var at: Int64
        /// How often, one time after the other.
        var count: Int64

        var due: Int64 {
            at
                + min(
                    SubscriptionPlan.firstRetryPause << min(count - 1, SubscriptionPlan.mostDoublings),
                    SubscriptionPlan.longestRetryPause)
        }
    }

    /// The issues that could not be begun. Each is tried again after a pause, and by the next process.
    private var postponed: [String: Postponement] = [:]

    /// In seconds. It doubles each time that the issue cannot be begun again: as long as there is no room, nothing is won
    /// by asking often.
    package static let firstRetryPause: Int64 = 300
    private static let longestRetryPause: Int64 = 3_600
    private static let mostDoublings: Int64 = 4

    /// - Parameter begun: when the last issue of each client was begun.
    package init(begun: [String: Int64] = [:]) { self.begun = begun }

    package mutating func replace(with subscriptions: [String: Subscription]) {
        self.subscriptions = subscriptions
    }

    /// Takes note of the time. An issue that was begun later than now counts as begun now, from here on: the
    /// clock was set back.
    ///
    /// - Returns: the clients of such issues.
    package mutating func follow(_ now: Int64) -> [String] {
        let later = begun.filter { $0.value > now }.keys.sorted()
        for client in later { begun[client] = now }
        for (client, postponement) in postponed where postponement.at > now { postponed[client]?.at = now }
        return later
    }

    /// The clients with an issue that is to be begun now, sorted.
    package func due(at now: Int64) -> [String] {
        subscriptions.keys.filter { due(of: $0) <= now }.sorted()
    }

    private func due(of client: String) -> Int64 {
        let retry = postponed[client]?.due ?? .min
        guard let begun = begun[client], let subscription = subscriptions[client] else { return retry }
        return max(begun + subscription.interval, retry)
    }

    /// The next issue of this client is begun.
    package mutating func begin(_ client: String, at now: Int64) {
        begun[client] = now
        postponed[client] = nil
    }

    /// The next issue of this client is due, and cannot be begun now.
    package mutating func postpone(_ client: String, at now: Int64) {
        postponed[client] = Postponement(at: now, count: (postponed[client]?.count ?? 0) + 1)
    }

    /// When to look again; nil: there are no subscriptions.
    package var nextDue: Int64? { subscriptions.keys.map { due(of: $0) }.min() }
}
