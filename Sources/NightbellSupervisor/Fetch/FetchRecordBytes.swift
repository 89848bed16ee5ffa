import Keeper
import LinuxSystem
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// The state of a client's fetches, as a record of the keeper and as an entry of the file.
enum FetchRecordBytes {
    static func bytes(of fetch: RecoverySnapshot.Fetch) -> [UInt8] {
        var stored = StoredFetch(fetch.state, shift: .zero)
        stored.isSimulated = fetch.state.isSimulated
        if let run = fetch.run {
            stored.run = .with {
                $0.wake = run.wakeID
                $0.beganNs = run.began.nanoseconds
                $0.untilNs = run.until.nanoseconds
            }
        }
        return stored.record
    }

    static func fetch(_ key: RecordKey, _ record: [UInt8]) throws(RecordError) -> RecoverySnapshot.Fetch {
        let stored = try StoredFetch(key, record)
        guard var state = FetchState(stored, shift: .zero) else {
            throw RecordError(key: key, problem: "has a habit of another format")
        }
        state.isSimulated = stored.isSimulated
        let run = Supervision.FetchRun(
            wakeID: stored.run.wake, began: Instant(nanoseconds: stored.run.beganNs),
            until: Instant(nanoseconds: stored.run.untilNs))
        return RecoverySnapshot.Fetch(
            ownership: key.id, state: state, run: stored.hasRun ? run : nil)
    }
}

extension StoredFetch {
    /// - Parameter shift: added to all times.
    init(_ state: FetchState, shift: Duration) {
        self.init()
        switch state.interval {
        case .never: intervalNs = -1
        case .minimum: intervalNs = 0
        case .atLeast(let duration): intervalNs = duration.nanoseconds
        }
        habit = state.habit.bytes.asField
        score = UInt32(state.score.value)
        overruns = UInt32(state.score.overruns)
        wasInterrupted = state.score.wasInterrupted
        if let last = state.lastFetch { lastFetchNs = (last + shift).nanoseconds }
        leftForegroundNs = (state.leftForeground + shift).nanoseconds
        if let last = state.lastOpening { lastOpeningNs = (last + shift).nanoseconds }
        day = state.day
        fetchesOnDay = UInt32(state.fetchesOnDay)
    }
}

extension FetchState {
    /// nil: its habit has another format.
    init?(_ stored: StoredFetch, shift: Duration) {
        guard let habit = Habit(bytes: Array(stored.habit)) else { return nil }
        let interval: FetchInterval =
            switch stored.intervalNs {
            case ..<0: .never
            case 0: .minimum
            default: .atLeast(.nanoseconds(stored.intervalNs))
            }
        self.init(
            interval: interval, leftForeground: Instant(nanoseconds: stored.leftForegroundNs) - shift)
        self.habit = habit
        score = FetchScore(
            value: UInt16(clamping: stored.score), overruns: UInt8(clamping: stored.overruns),
            wasInterrupted: stored.wasInterrupted)
        if stored.hasLastFetchNs { lastFetch = Instant(nanoseconds: stored.lastFetchNs) - shift }
        if stored.hasLastOpeningNs { lastOpening = Instant(nanoseconds: stored.lastOpeningNs) - shift }
        day = stored.day
        fetchesOnDay = UInt8(clamping: stored.fetchesOnDay)
    }

    /// The clock may have been moved backwards while no supervisor ran: then its times would be in the
    /// future.
    func clamped(to now: Instant) -> FetchState {
        var state = self
        state.lastFetch = lastFetch.map { min($0, now) }
        state.lastOpening = lastOpening.map { min($0, now) }
        state.leftForeground = min(leftForeground, now)
        return state
    }
}

extension WireFetchObstacle {
    init(_ obstacle: FetchObstacle) {
        self =
            switch obstacle {
            case .networkDown: .networkDown
            case .shortage: .shortage
            case .machineSleeps: .machineSleeps
            case .places: .places
            case .placesOfUser: .placesOfUser
            }
    }
}

extension WireClientInfo.Fetch {
    init(_ fetch: ClientView.Fetch, at now: Instant) {
        self.init()
        switch fetch.state.interval {
        case .never: minimumIntervalMs = -1
        case .minimum: minimumIntervalMs = 0
        case .atLeast(let duration): minimumIntervalMs = Int64(clamping: duration.wireMilliseconds)
        }
        score = UInt32(fetch.state.score.percent)
        if let window = fetch.window { nextInMs = window.latest.since(now).wireMilliseconds }
        isFetching = fetch.isRunning
        if let obstacle = fetch.obstacle { self.obstacle = WireFetchObstacle(obstacle) }
        if let last = fetch.state.lastFetch { lastAgoMs = now.since(last).wireMilliseconds }
        observedDays = UInt32(fetch.state.habit.observedDays)
        usualHours = fetch.usualHours.map(UInt32.init)
        unfinishedInRow = UInt32(fetch.state.score.overruns)
    }
}
