/// Everything that is counted, of each client and of all. To add a counter, add it here, as the last one;
/// there is room for `Counters.capacity` of them.
package enum Counter: Int, Sendable, Hashable, CaseIterable {
    // The order is that of the recovery records: the first six also a client has that was never woken.
    case suspensions
    case socketsAdopted
    case launches
    /// Its process failed.
    case crashes
    case hibernations
    case endedUnderPressure
    /// A wake with several reasons counts once here, and once for each of them. One that the next worker
    /// repeats counts again.
    case wakes
    case wakesSocket
    case wakesKeepAlive
    case wakesRequest
    case wakesClientMessage
    case suspensionsForced
    case suspensionsCancelled
    /// The kernel did not confirm in time, or refused.
    case suspensionsFailed
    case keepAliveRuns
    case keepAliveLate
    case overrunsEnteringBackground
    case overrunsPrepare
    case overrunsWake
    case overrunsBackgroundTasks
    case overrunsTermination
    case wakeLimitExceeded
    case socketsRefused
    case overrunsLaunch
    /// It was not launched again after too many consecutive failures.
    case gaveUp
    /// Pings that went unanswered, and connections that the kernel has given up.
    case wakesPathLost
    /// The machine has moved.
    case wakesLocation
    case wakesBluetooth
    case wakesDevice
    /// The transfers of a session are finished.
    case wakesTransfer
    /// Messages have arrived at the push service.
    case wakesPush
    /// One of its notifications was activated, or came while it was in the foreground.
    case wakesNotification

    static func overrun(of step: Step) -> Counter {
        switch step {
        case .enteringBackground: .overrunsEnteringBackground
        case .prepareToSuspend: .overrunsPrepare
        // A fetch, or a push, is a wake with a longer budget.
        case .wake, .fetch, .push: .overrunsWake
        case .backgroundTasks: .overrunsBackgroundTasks
        case .termination: .overrunsTermination
        case .launch: .overrunsLaunch
        }
    }

    /// The name on the wire and in JSON, such as `wakes_path_lost`.
    package var name: String {
        "\(self)".reduce(into: "") { name, character in
            if character.isUppercase { name.append("_") }
            name += character.lowercased()
        }
    }
}

/// Event counts, of one client or of several.
package struct Counters: Sendable, Equatable {
    /// The greatest number of counters. A greater one changes the layout of the shared state: then
    /// `ClientStatistics` and `SharedStateTable` change too, and the version of that layout.
    package static let capacity = 32

    /// By the numbers of the counters.
    private var values = InlineArray<32, UInt64>(repeating: 0)
    /// The time spent suspended, in nanoseconds; of finished sleeps only.
    package var asleepNanoseconds: UInt64 = 0

    package init() {}

    package subscript(counter: Counter) -> UInt64 {
        get { values[counter.rawValue] }
        set { values[counter.rawValue] = newValue }
    }

    /// Counts in place: a subscript that is read and set may copy all the others.
    mutating func count(_ counter: Counter) { values[counter.rawValue] += 1 }

    package static func == (one: Counters, other: Counters) -> Bool {
        one.asleepNanoseconds == other.asleepNanoseconds
            && one.values.indices.allSatisfy { one.values[$0] == other.values[$0] }
    }

    package static func += (left: inout Counters, right: Counters) {
        for index in left.values.indices { left.values[index] += right.values[index] }
        left.asleepNanoseconds += right.asleepNanoseconds
    }

    /// Whether no counter is behind that of `other`.
    package func isAtLeast(_ other: Counters) -> Bool {
        asleepNanoseconds >= other.asleepNanoseconds
            && values.indices.allSatisfy { values[$0] >= other.values[$0] }
    }
}

/// The resources used by all clients of one uid.
package struct UserUsage: Sendable, Equatable {
    package var clients = 0
    package var sockets = 0
    package var observations = 0
    package var stateBytes = 0
    /// Identifiers that belong to this uid, in use or not.
    package var identifiers = 0
    package var wakes: UInt64 = 0
    var givenUp = GivenUpIdentifiers()
    var wakesInPeriod = 0
    var periodEnd = Instant(nanoseconds: .min)

    /// Counts a wake by traffic; returns whether this uid has had more than `limit` of them in this period.
    mutating func countWake(limit: Int, period: Duration, at now: Instant) -> Bool {
        wakes += 1
        if now >= periodEnd {
            periodEnd = now + period
            wakesInPeriod = 0
        }
        wakesInPeriod += 1
        return wakesInPeriod > limit
    }
}
