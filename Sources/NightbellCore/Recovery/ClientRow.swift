/// The frequently changing state of a client, as it lies in the shared memory that outlives the supervisor:
/// fixed types in this order, without gaps. Its fields are only valid together.
package struct ClientRow: Sendable, Equatable, BitwiseCopyable {
    /// Of this layout.
    package var version = Self.currentVersion
    /// `StageNumber`.
    var stage: UInt8
    /// Suspensions that failed in a row, at most 255.
    var failedSuspensions: UInt8
    /// Wakes beyond the limit, at most 255.
    package var excessWakes: UInt8
    /// Of `StoredReasons`; `flags` has the rest.
    private var lastWakeReasonBits: UInt16
    private var launchReasonBits: UInt16
    /// Launches in a row after crashes.
    var relaunchesInRow: UInt8
    package var failuresAtStart: UInt8
    package var flags: Flags
    /// Of the client's number: its slot may have been another client's.
    var generation: UInt32
    var nextTask: UInt32
    /// Between checks of a freeze, in nanoseconds.
    var freezePause: UInt32
    /// The end of the stage's time, or when the client fell asleep.
    var until: StoredInstant
    /// The end of an open wake, or the next check of a freeze.
    var secondUntil: StoredInstant
    var holdUntil: StoredInstant
    /// The number of the open wake or of the suspension under way, or the reason of the termination.
    var number: UInt64
    package var lastEpoch: UInt64
    package var lastWakeID: UInt64
    /// In nanoseconds.
    var lastAsleepFor: Int64
    var enteredStateAt: StoredInstant
    var backgroundSince: StoredInstant
    /// In nanoseconds; 0 without a keep-alive.
    var keepAliveTimeout: Int64
    /// When its keep-alive handler last ran; missing without a keep-alive.
    var keepAliveBase: StoredInstant
    var mediaUntil: StoredInstant
    /// The end of the time for background tasks; missing while none of it is used.
    var tasksUntil: StoredInstant
    /// The number of the last request.
    var lastRequest: UInt64

    static let currentVersion: UInt8 = 5

    package struct Flags: OptionSet, Sendable, BitwiseCopyable {
        package let rawValue: UInt16

        package init(rawValue: UInt16) { self.rawValue = rawValue }

        /// The end of the time for background tasks was announced.
        static let expirationNotified = Flags(rawValue: 1)
        static let hibernates = Flags(rawValue: 2)
        static let isInBackground = Flags(rawValue: 4)
        package static let neverSpoke = Flags(rawValue: 8)
        static let isRejoined = Flags(rawValue: 16)
        static let isUrgent = Flags(rawValue: 32)
        package static let hasSettled = Flags(rawValue: 64)
        /// Two bits with the number of a `PathInspection`.
        static let pathInspection = Flags(rawValue: 128 | 256)
        static let lastWakeForNotification = Flags(rawValue: 512)
        static let launchForNotification = Flags(rawValue: 1_024)
        static let isLeft = Flags(rawValue: 2_048)
        /// Three bits with the number of launches without the program.
        static let allMisses = Flags(rawValue: 4_096 | 8_192 | 16_384)

        fileprivate init(_ inspection: PathInspection) { rawValue = UInt16(inspection.rawValue) << 7 }

        fileprivate init(misses: UInt8) { rawValue = UInt16(misses) << 12 & Flags.allMisses.rawValue }

        package var misses: UInt8 { UInt8(intersection(.allMisses).rawValue >> 12) }

        package var inspection: PathInspection? {
            PathInspection(rawValue: UInt8(intersection(.pathInspection).rawValue >> 7))
        }
    }

    /// The stages of a life cycle; these numbers are stored.
    enum StageNumber: UInt8 {
        case notRunning = 0
        case inactive = 1
        case active = 2
        case background = 3
        case preparing = 4
        case freezing = 5
        case suspended = 6
        case noticed = 7
        case killed = 8
        case resting = 9
        case waiting = 10
        case queued = 11
        case launching = 12
    }

    /// Reasons of a wake, as a row keeps them: there is room for 16 of them, and a flag for the last one.
    package struct StoredReasons {
        let lowerBits: UInt16
        let hasNotification: Bool

        package init(_ reasons: WakeReasons) {
            lowerBits = UInt16(truncatingIfNeeded: reasons.rawValue)
            hasNotification = reasons.contains(.notification)
        }

        fileprivate init(_ lowerBits: UInt16, hasNotification: Bool) {
            self.lowerBits = lowerBits
            self.hasNotification = hasNotification
        }

        package var reasons: WakeReasons {
            let lower = WakeReasons(rawValue: UInt32(lowerBits))
            return hasNotification ? lower.union(.notification) : lower
        }
    }

    var lastWakeReasons: WakeReasons {
        StoredReasons(lastWakeReasonBits, hasNotification: flags.contains(.lastWakeForNotification)).reasons
    }

    var launchReasons: WakeReasons {
        StoredReasons(launchReasonBits, hasNotification: flags.contains(.launchForNotification)).reasons
    }

    /// Whether it is about this client, and not about one before it in the same slot.
    package func isAbout(_ client: ClientID) -> Bool { generation == client.id.generation }

    /// Whether the client was suspended or being frozen.
    var mayBeFrozen: Bool {
        switch StageNumber(rawValue: stage) {
        case .freezing, .suspended: true
        case .notRunning, .inactive, .active, .background, .preparing, .noticed, .killed, .resting, .waiting,
            .queued, .launching, nil:
            false
        }
    }
}

/// An instant that may be missing, in eight bytes.
struct StoredInstant: Sendable, Equatable, BitwiseCopyable {
    private let nanoseconds: Int64

    init(_ instant: Instant?) { nanoseconds = instant?.nanoseconds ?? .min }

    var instant: Instant? { nanoseconds == .min ? nil : Instant(nanoseconds: nanoseconds) }
}

extension Supervision {
    /// The state that another supervisor needs to recover a client.
    package func row(of id: ClientID) -> ClientRow { ClientRow(clients[id.id], id) }

    /// The counters and latest wakes of a client.
    package func statistics(of id: ClientID) -> ClientStatistics {
        ClientStatistics(clients[id.id].counterWords, clients[id.id].limiter)
    }

    /// The number of the last wake decided.
    package func wakeID(of client: ClientID) -> UInt64 { clients[client.id].lastWakeID }

    /// The background tasks that a client holds.
    package func tasks(of client: ClientID) -> [RecoverySnapshot.Task] {
        clients[client.id].assertions.tasks.map {
            RecoverySnapshot.Task(id: $0.id, request: $0.request, name: $0.name)
        }
    }

    /// The record that another supervisor needs to recover an ownership.
    package func owner(of identifier: ClientIdentifier) -> RecoverySnapshot.Owner? {
        owners[identifier].map {
            RecoverySnapshot.Owner(
                identifier: identifier, user: $0.user, number: $0.number, givenUp: $0.givenUp,
                isQuit: $0.isQuit)
        }
    }

    /// The sum of the counters of clients that are gone.
    package var statisticsOfGone: ClientStatistics.CounterWords { PackedCounters(goneCounters).words }

    /// The number of the last wake delivered, provided that all wakes decided before this turn were.
    package func toldWakeID(of client: ClientID) -> UInt64 {
        clients[client.id].lastWakeID - (clients[client.id].pendingWake == nil ? 0 : 1)
    }
}

extension ClientRow {
    init(_ client: Client, _ id: ClientID) {
        let launches = client.launches
        let lastWake = StoredReasons(client.lastWakeReasons)
        let launch = StoredReasons(launches.reasons)
        stage = 0
        failedSuspensions = UInt8(clamping: client.backoff.failures)
        excessWakes = UInt8(clamping: client.limiter.excessWakes)
        lastWakeReasonBits = lastWake.lowerBits
        launchReasonBits = launch.lowerBits
        relaunchesInRow = launches.inRow
        failuresAtStart = launches.failuresAtStart
        flags = []
        generation = id.id.generation
        nextTask = UInt32(clamping: client.assertions.nextTask)
        freezePause = 0
        until = StoredInstant(nil)
        secondUntil = StoredInstant(nil)
        holdUntil = StoredInstant(nil)
        number = 0
        lastEpoch = client.lastEpoch
        lastWakeID = client.lastWakeID
        lastAsleepFor = client.lastAsleepFor.nanoseconds
        enteredStateAt = StoredInstant(client.enteredStateAt)
        backgroundSince = StoredInstant(client.backgroundSince)
        keepAliveTimeout = client.keepAlive?.timeout.nanoseconds ?? 0
        keepAliveBase = StoredInstant(client.keepAlive?.base)
        mediaUntil = StoredInstant(client.assertions.mediaUntil)
        tasksUntil = StoredInstant(nil)
        lastRequest = client.lastRequest
        if case .running(let until, let isNotified) = client.assertions.time {
            tasksUntil = StoredInstant(until)
            if isNotified { flags.insert(.expirationNotified) }
        }
        if client.hibernates { flags.insert(.hibernates) }
        if launches.isInBackground { flags.insert(.isInBackground) }
        if launches.neverSpoke { flags.insert(.neverSpoke) }
        if launches.isRejoined { flags.insert(.isRejoined) }
        if launches.kind.isUrgent { flags.insert(.isUrgent) }
        if launches.hasSettled { flags.insert(.hasSettled) }
        if launches.isLeft { flags.insert(.isLeft) }
        if lastWake.hasNotification { flags.insert(.lastWakeForNotification) }
        if launch.hasNotification { flags.insert(.launchForNotification) }
        flags.formUnion(Flags(client.pathInspection))
        flags.formUnion(Flags(misses: launches.misses))
        store(client.lifecycle.stage)
    }

    private mutating func store(_ stage: Lifecycle.Stage) {
        func note(_ number: StageNumber) { self.stage = number.rawValue }
        switch stage {
        case .notRunning: note(.notRunning)
        case .inactive: note(.inactive)
        case .active: note(.active)
        case .background(let background):
            note(.background)
            until = StoredInstant(background.enteringUntil)
            secondUntil = StoredInstant(background.wake?.until)
            number = background.wake?.wakeID ?? 0
            holdUntil = StoredInstant(background.holdUntil)
        case .suspending(let suspending):
            number = suspending.epoch
            switch suspending.phase {
            case .preparing(let end):
                note(.preparing)
                until = StoredInstant(end)
            case .freezing(let end, let lookAt, let pause):
                note(.freezing)
                until = StoredInstant(end)
                secondUntil = StoredInstant(lookAt)
                freezePause = UInt32(clamping: pause.nanoseconds)
            }
        case .suspended(let since):
            note(.suspended)
            until = StoredInstant(since)
        case .terminating(.noticed(let end, let reason)):
            note(.noticed)
            until = StoredInstant(end)
            number = UInt64(reason.rawValue)
        case .terminating(.killed(let reason)):
            note(.killed)
            number = UInt64(reason.rawValue)
        case .dormant(.resting): note(.resting)
        case .dormant(.waiting(let end)):
            note(.waiting)
            until = StoredInstant(end)
        case .dormant(.queued): note(.queued)
        case .launching(let end):
            note(.launching)
            until = StoredInstant(end)
        }
    }
}

extension Client {
    /// Restores what a previous supervisor stored. False: another version has stored it, or it makes no
    /// sense.
    mutating func restore(
        _ row: ClientRow, _ statistics: ClientStatistics, tasks: [Assertions.Task], _ settings: Settings.Wakes
    ) -> Bool {
        guard row.version == ClientRow.currentVersion, let stage = Lifecycle.Stage(row),
            let inspection = row.flags.inspection
        else { return false }
        pathInspection = inspection
        lifecycle = Lifecycle(restoring: stage)
        backoff = Backoff(failures: Int(row.failedSuspensions))
        lastWakeReasons = row.lastWakeReasons
        hibernates = row.flags.contains(.hibernates)
        lastEpoch = row.lastEpoch
        lastWakeID = row.lastWakeID
        lastAsleepFor = .nanoseconds(row.lastAsleepFor)
        enteredStateAt = row.enteredStateAt.instant ?? enteredStateAt
        backgroundSince = row.backgroundSince.instant ?? backgroundSince
        keepAlive = row.keepAliveBase.instant.map {
            KeepAlive(timeout: .nanoseconds(row.keepAliveTimeout), base: $0)
        }
        let time = row.tasksUntil.instant.map {
            Assertions.Time.running(until: $0, notified: row.flags.contains(.expirationNotified))
        }
        assertions = Assertions(
            tasks: tasks, nextTask: max(UInt64(row.nextTask), (tasks.map(\.id).max() ?? 0) + 1),
            mediaUntil: row.mediaUntil.instant, time: time ?? .full)
        lastRequest = row.lastRequest
        launches.restore(row)
        packedCounters = PackedCounters(words: statistics.counters)
        limiter = WakeLimiter(recent: statistics.latestWakes, excess: Int(row.excessWakes), settings)
        activity.tidy()
        return true
    }
}

extension Client.Launches {
    fileprivate mutating func restore(_ row: ClientRow) {
        reasons = row.launchReasons
        isInBackground = row.flags.contains(.isInBackground)
        neverSpoke = row.flags.contains(.neverSpoke)
        isRejoined = row.flags.contains(.isRejoined)
        kind.isUrgent = row.flags.contains(.isUrgent)
        hasSettled = row.flags.contains(.hasSettled)
        isLeft = row.flags.contains(.isLeft)
        inRow = row.relaunchesInRow
        failuresAtStart = row.failuresAtStart
        misses = min(row.flags.misses, Supervision.mostMisses)
    }
}

extension Lifecycle.Stage {
    /// nil: the row is none that this program writes.
    fileprivate init?(_ row: ClientRow) {
        let until = row.until.instant
        let reason = TerminationReason(rawValue: UInt8(clamping: row.number))
        switch (ClientRow.StageNumber(rawValue: row.stage), until) {
        case (.notRunning, _): self = .notRunning
        case (.inactive, _): self = .inactive
        case (.active, _): self = .active
        case (.background, _):
            let wake = row.secondUntil.instant.map {
                Lifecycle.Background.OpenWake(wakeID: row.number, until: $0)
            }
            self = .background(
                Lifecycle.Background(enteringUntil: until, wake: wake, holdUntil: row.holdUntil.instant))
        case (.preparing, let until?):
            self = .suspending(Lifecycle.Suspending(epoch: row.number, phase: .preparing(until: until)))
        case (.freezing, let until?):
            guard let lookAt = row.secondUntil.instant else { return nil }
            let pause = Duration.nanoseconds(Int64(row.freezePause))
            self = .suspending(
                Lifecycle.Suspending(
                    epoch: row.number, phase: .freezing(until: until, lookAt: lookAt, pause: pause)))
        case (.suspended, let since?): self = .suspended(since: since)
        case (.noticed, let until?):
            guard let reason else { return nil }
            self = .terminating(.noticed(until: until, reason))
        case (.killed, _):
            guard let reason else { return nil }
            self = .terminating(.killed(reason))
        case (.resting, _): self = .dormant(.resting)
        case (.waiting, let until?): self = .dormant(.waiting(until: until))
        case (.queued, _): self = .dormant(.queued)
        case (.launching, _): self = .launching(until: until)
        case (.preparing, nil), (.freezing, nil), (.suspended, nil), (.noticed, nil), (.waiting, nil),
            (nil, _):
            return nil
        }
    }
}
