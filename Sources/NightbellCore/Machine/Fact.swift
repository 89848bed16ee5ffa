/// How a thing outside the supervisor is now, as its source reports it.
///
/// A fact says how things are and not what has happened to them: the core finds the difference to what it
/// knew. So a fact may be reported again at any time, and a source may be replaced.
package enum Fact: Sendable, Equatable {
    /// The network, once it has settled; nil: unknown.
    case network(NetworkFact?)
    /// nil: unknown. `isLow`: the machine's batteries together are nearly empty; they may be charged all the same.
    case power(isOnBattery: Bool?, isLow: Bool? = nil)
    /// The machine is about to sleep. `isDelayed`: it waits a few seconds at most, for `Action.allowSleep`.
    case sleepImminent(isDelayed: Bool)
    /// The machine is awake, or does not go to sleep after all.
    case resumed
    /// Local time is elapsed time plus this. It changes with the clock and with daylight saving time.
    case wallClock(offset: Duration)
    /// Whether memory or processors are short, so that optional work had better wait.
    case shortage(Bool)
    /// The users with an open home.
    case unlocked(Knowledge<Set<UserID>>)
    /// nil: unknown.
    case position(Position?)
    /// The observed Bluetooth devices that are known to be connected or not, by object path.
    case bluetooth([String: Presence])
    /// An observed Bluetooth characteristic has notified. Unlike the others, it is not reported again.
    case characteristic(String, [UInt8])
    /// The observed accessories that are known to be attached or not, by name.
    case accessories([String: Presence])
    /// All transfers of a session are finished, or one needs credentials.
    case transfers(EndedTransfers)
    /// Whether a user has transfers that wait for a good moment.
    case discretionaryTransfers(of: UserID, Bool)
    /// The pushes that wait for a client.
    case pushes(WaitingPushes)
    /// The push service has gone, or another one reports from here on: nothing is known of waiting pushes.
    case pushServiceChanged
    /// The clients of a user that have media.
    case media(of: UserID, Knowledge<MediaFact>)
    /// The time of day, for notifications.
    case clock(NotificationClock)
    /// About the notification server in a user's session.
    case notifications(of: UserID, NotificationFact)
}

/// The end of the transfers of a session, or their stop for credentials.
package struct EndedTransfers: Sendable, Hashable {
    package var user: UserID
    package var client: ClientIdentifier
    package var session: String
    /// Counts the ends of the session, from 1 on.
    package var number: UInt64
    /// All of them were discretionary: a client that sleeps may be told with another wake of the machine.
    package var mayWait: Bool

    package init(
        of user: UserID, _ client: ClientIdentifier, session: String, number: UInt64, mayWait: Bool = false
    ) {
        self.user = user
        self.client = client
        self.session = session
        self.number = number
        self.mayWait = mayWait
    }
}

/// A value that may not be known.
package enum Knowledge<Value: Sendable & Equatable>: Sendable, Equatable {
    /// Its source has not reported it yet.
    case unknown
    /// No source can report it.
    case unavailable
    case known(Value)

    package var value: Value? {
        switch self {
        case .unknown, .unavailable: nil
        case .known(let value): value
        }
    }
}

/// The network of the machine.
package struct NetworkFact: Sendable, Equatable {
    /// Differs between networks with different addresses or default routes; never 0.
    package var fingerprint: UInt64
    /// Differs after each change of a route, an address or a link.
    package var generation: UInt64
    /// The machine has an address and a default route.
    package var isUp: Bool
    /// nil: unknown.
    package var isMetered: Bool?

    package init(fingerprint: UInt64, generation: UInt64 = 0, isUp: Bool, isMetered: Bool? = nil) {
        self.fingerprint = max(1, fingerprint)
        self.generation = generation
        self.isUp = isUp
        self.isMetered = isMetered
    }
}
