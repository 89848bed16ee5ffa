/// How soon a push has to be handled, by the words of its sender (RFC 8030, section 5.3). The numbers are
/// stored.
package enum PushUrgency: UInt8, Sendable, Hashable, CaseIterable, Comparable {
    /// On power and on a network that is not metered.
    case veryLow = 1
    /// On power, or on such a network and on a battery that is not low.
    case low = 2
    /// On power, or on a battery that is not low.
    case normal = 3
    /// At any time.
    case high = 4

    package static func < (one: Self, other: Self) -> Bool { one.rawValue < other.rawValue }

    /// Unknown facts forbid nothing.
    package func isTimely(isOnBattery: Bool?, isBatteryLow: Bool?, isMetered: Bool?) -> Bool {
        let (hasPower, hasNetwork) = (isOnBattery != true, isMetered != true)
        // One that is low and being charged is on power.
        let isRunningOut = isOnBattery == true && isBatteryLow == true
        return switch self {
        case .veryLow: hasPower && hasNetwork
        case .low: !isRunningOut && (hasPower || hasNetwork)
        case .normal: !isRunningOut
        case .high: true
        }
    }
}

/// The pushes that wait for a client at the push service.
package struct WaitingPushes: Sendable, Hashable {
    package var user: UserID
    package var client: ClientIdentifier
    /// Another one whenever the client has a reason to be told again.
    package var number: UInt64
    /// The greatest of those that wait; nil: none waits any more.
    package var urgency: PushUrgency?

    package init(of user: UserID, _ client: ClientIdentifier, number: UInt64, urgency: PushUrgency?) {
        self.user = user
        self.client = client
        self.number = number
        self.urgency = urgency
    }
}

/// The memory of an observation of pushes.
package struct PushMemory: Sendable, Equatable {
    /// The pushes that a client is handling. Its budget counts running time, as all budgets do.
    package struct Run: Sendable, Equatable {
        /// The wake that told the client of them.
        package var wakeID: UInt64
        package var until: Instant
        /// `PushMemory.number` when it was told; never stored.
        package var number: UInt64?

        package init(wakeID: UInt64, until: Instant) {
            self.wakeID = wakeID
            self.until = until
        }
    }

    /// By the last report of the push service: its number, and the greatest urgency of those that wait (nil:
    /// none waits). Forgotten with the service, which reports everything when it is back; never stored.
    package var number: UInt64?
    package var waiting: PushUrgency?
    /// When the client was told in the background within the last hour, as often as it may be, in elapsed
    /// time, oldest first.
    package var told: [Instant] = []
    package var run: Run?
    /// The client has not handled what it was told of, and is told again from then on, in elapsed time.
    package var retryAt: Instant?

    package static let period = Duration.seconds(3_600)

    package init() {}

    mutating func noteTold(_ limit: Int, at elapsed: Instant) {
        told.removeAll { elapsed.since($0) >= Self.period }
        told.append(elapsed)
        told.removeFirst(max(0, told.count - max(1, limit)))
        retryAt = nil
    }

    /// Whether it knows something by the service, or because of it.
    var isOfService: Bool { number != nil || waiting != nil || run?.number != nil || retryAt != nil }

    /// The service has gone, or the memory passes to another observation.
    mutating func forgetService() {
        number = nil
        waiting = nil
        run?.number = nil
    }

    /// When the client may be told again in the background, if it may be so often in an hour.
    func permittedAt(_ limit: Int, at elapsed: Instant) -> Instant? {
        let recent = told.filter { elapsed.since($0) < Self.period }
        guard recent.count >= max(1, limit) else { return nil }
        return recent[recent.count - max(1, limit)] + Self.period
    }
}

/// Why a client is not told of the pushes that wait for it.
package enum PushObstacle: Sendable, Equatable {
    /// It is handling others.
    case underWay
    /// It has failed to handle them; until then, in elapsed time.
    case failed(until: Instant)
    /// It was told so often in the last hour as it may be; until then, in elapsed time.
    case tooMany(until: Instant)
    /// Their urgency asks for power, for a battery that is not low, or for a network that is not metered.
    case conditions

    var until: Instant? {
        switch self {
        case .failed(let until), .tooMany(let until): until
        case .underWay, .conditions: nil
        }
    }
}
