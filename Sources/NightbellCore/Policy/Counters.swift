/// The event counters of one client, or of all clients together.
public struct Counters: Sendable, Equatable {
    public var wakes: UInt64 = 0
    public var wakesSocket: UInt64 = 0
    public var wakesKeepAlive: UInt64 = 0
    public var wakesRequest: UInt64 = 0
    public var wakesClientMessage: UInt64 = 0
    /// Pings that went unanswered, and connections that the kernel has given up.
    public var wakesPathLost: UInt64 = 0
    public var suspensions: UInt64 = 0
    public var suspensionsForced: UInt64 = 0
    public var suspensionsCancelled: UInt64 = 0
    /// The kernel did not confirm in time, or refused.
    public var suspensionsFailed: UInt64 = 0
    public var keepAliveRuns: UInt64 = 0
    public var keepAliveLate: UInt64 = 0
    public var overrunsEnteringBackground: UInt64 = 0
    public var overrunsPrepare: UInt64 = 0
    public var overrunsWake: UInt64 = 0
    public var overrunsBackgroundTasks: UInt64 = 0
    public var overrunsTermination: UInt64 = 0
    public var overrunsLaunch: UInt64 = 0
    public var wakeLimitExceeded: UInt64 = 0
    public var socketsAdopted: UInt64 = 0
    public var socketsRefused: UInt64 = 0
    public var launches: UInt64 = 0
    /// Its process failed.
    public var crashes: UInt64 = 0
    /// It was not launched again after too many consecutive failures.
    public var gaveUp: UInt64 = 0
    public var endedUnderPressure: UInt64 = 0
    public var hibernations: UInt64 = 0
    /// The time spent suspended, in nanoseconds; of finished sleeps only.
    public var asleepNanoseconds: UInt64 = 0

    public init() {}

    package static func += (left: inout Counters, right: Counters) {
        left.wakes += right.wakes
        left.wakesSocket += right.wakesSocket
        left.wakesKeepAlive += right.wakesKeepAlive
        left.wakesRequest += right.wakesRequest
        left.wakesClientMessage += right.wakesClientMessage
        left.wakesPathLost += right.wakesPathLost
        left.suspensions += right.suspensions
        left.suspensionsForced += right.suspensionsForced
        left.suspensionsCancelled += right.suspensionsCancelled
        left.suspensionsFailed += right.suspensionsFailed
        left.keepAliveRuns += right.keepAliveRuns
        left.keepAliveLate += right.keepAliveLate
        left.overrunsEnteringBackground += right.overrunsEnteringBackground
        left.overrunsPrepare += right.overrunsPrepare
        left.overrunsWake += right.overrunsWake
        left.overrunsBackgroundTasks += right.overrunsBackgroundTasks
        left.overrunsTermination += right.overrunsTermination
        left.overrunsLaunch += right.overrunsLaunch
        left.launches += right.launches
        left.crashes += right.crashes
        left.gaveUp += right.gaveUp
        left.endedUnderPressure += right.endedUnderPressure
        left.hibernations += right.hibernations
        left.wakeLimitExceeded += right.wakeLimitExceeded
        left.socketsAdopted += right.socketsAdopted
        left.socketsRefused += right.socketsRefused
        left.asleepNanoseconds += right.asleepNanoseconds
    }

    /// Wakes with these reasons; a wake with several counts once in `wakes` and once for each reason.
    mutating func countWake(_ reasons: WakeReasons) {
        wakes += 1
        if reasons.contains(.socket) { wakesSocket += 1 }
        if reasons.contains(.keepAlive) { wakesKeepAlive += 1 }
        if reasons.contains(.request) { wakesRequest += 1 }
        if reasons.contains(.clientMessage) { wakesClientMessage += 1 }
        if !reasons.isDisjoint(with: [.unanswered, .pathLost]) { wakesPathLost += 1 }
    }

    mutating func countOverrun(of step: Step) {
        switch step {
        case .enteringBackground: overrunsEnteringBackground += 1
        case .prepareToSuspend: overrunsPrepare += 1
        case .wake: overrunsWake += 1
        case .backgroundTasks: overrunsBackgroundTasks += 1
        case .termination: overrunsTermination += 1
        case .launch: overrunsLaunch += 1
        }
    }
}

/// The resources used by all clients of one uid.
public struct UserUsage: Sendable, Equatable {
    public var clients = 0
    public var sockets = 0
    public var stateBytes = 0
    /// Identifiers that belong to this uid, in use or not.
    public var identifiers = 0
    public var wakes: UInt64 = 0
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
