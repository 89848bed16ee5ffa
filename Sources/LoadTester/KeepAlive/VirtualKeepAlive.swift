import NightbellCore
import Simulation

/// The supervisor's core under a virtual clock: a day of a thousand clients passes in seconds.
///
/// The clients are perfect: each answers after a fixed time. The run measures the core's choice of instants.
struct VirtualKeepAlive {
    struct Settings {
        var clients: Int
        var hours: Double
        var shortest: Duration = .seconds(600)
        var longest: Duration = .seconds(1_800)
        var tolerance = 0.1
        var seed: UInt64
    }

    struct Outcome {
        /// Instants at which at least one handler ran.
        var instants: [Int64] = []
        var runs = 0
        /// Runs after the end of their window plus clients that still wait for an overdue run, as this model
        /// sees them, and late runs as the core counts them.
        var late = 0
        var lateByCore = 0
        /// The same with one timer for each client.
        var uncoalescedInstants = 0
        var uncoalescedRuns = 0
        /// By how much of the timeout each run was early.
        var earliness = Latencies()
        var earliest = 0.0
        /// The least time that was left when a handler ran, in seconds.
        var leastLeft = Double.infinity
    }

    /// How long a client takes to answer.
    private static let answerTime: Duration = .milliseconds(5)

    private let settings: Settings
    private var supervision: Supervision
    private var actions = ActionBuffer()
    private var now = Instant(nanoseconds: 0)
    private var queue = DeadlineQueue()
    /// The next events of each client, fed at the instant in the queue.
    private var replies: [UInt32: [Event]] = [:]
    private var timeouts: [UInt32: Duration] = [:]
    private var lastRun: [UInt32: Instant] = [:]
    private var outcome = Outcome()

    init(_ settings: Settings) {
        self.init(settings, core: Self.core(settings))
    }

    /// With a core that may refuse its clients' requests.
    init(_ settings: Settings, core: NightbellCore.Settings) {
        self.settings = settings
        supervision = Supervision(settings: core)
    }

    /// Settings of the core that permit everything this run asks for.
    static func core(_ settings: Settings) -> NightbellCore.Settings {
        var core = NightbellCore.Settings()
        core.keepAlive.tolerance = settings.tolerance
        core.keepAlive.minimumTimeout = min(settings.shortest, core.keepAlive.minimumTimeout)
        core.quotas.clientsPerUser = settings.clients
        return core
    }

    /// Runs through all the hours.
    mutating func run(_ progress: Progress) throws(LoadError) -> Outcome {
        var random = SplitMix64(seed: settings.seed)
        let end = Instant(nanoseconds: Int64(settings.hours * 3.6e12))
        // Clients start within the first ten minutes.
        let starts = (0..<settings.clients).map { _ in
            Instant(nanoseconds: Int64.random(in: 0..<600_000_000_000, using: &random))
        }.sorted()
        var started = 0
        while true {
            let nextStart = started < starts.count ? starts[started] : Instant(nanoseconds: .max)
            let next =
                [nextStart, supervision.nextDeadline, queue.first?.instant].compactMap { $0 }.min() ?? end
            guard next < end else { break }
            if next > now, next.nanoseconds / 3_600_000_000_000 != now.nanoseconds / 3_600_000_000_000 {
                progress.show("hour \(next.nanoseconds / 3_600_000_000_000) of \(Int(settings.hours))")
            }
            now = max(now, next)
            if nextStart <= now {
                let timeout = Duration.nanoseconds(
                    Int64.random(
                        in: settings.shortest.wholeNanoseconds...settings.longest.wholeNanoseconds,
                        using: &random))
                try start(started, timeout)
                countUncoalesced(timeout, from: now, to: end)
                started += 1
            }
            while let slot = queue.popDue(at: now) {
                for event in replies.removeValue(forKey: slot) ?? [] { feed(event) }
            }
            if let deadline = supervision.nextDeadline, deadline <= now { feed(.timer) }
            endTurn()
        }
        outcome.late += overdue(at: end)
        outcome.lateByCore = Int(supervision.counters[.keepAliveLate])
        return outcome
    }

    /// Clients that wait for an overdue run: a run that never comes records nothing itself.
    private func overdue(at end: Instant) -> Int {
        timeouts.count { slot, timeout in lastRun[slot].map { end.since($0) > timeout } ?? true }
    }

    private mutating func start(_ index: Int, _ timeout: Duration) throws(LoadError) {
        guard let identifier = ClientIdentifier("org.nightbell.load.v\(index)") else {
            throw .missing("an identifier")
        }
        let key = RequestKey(connection: UInt64(index), request: 1)
        supervision.handle(
            .registration(Registration(identifier: identifier, user: 1_000, modes: .voip), key), at: now,
            into: &actions)
        guard
            case .registered(let client, _)? = actions.actions.first(where: { action in
                if case .registered = action { true } else { false }
            })
        else { throw .supervisor("the core refused a client") }
        actions.removeAll()
        timeouts[client.slot] = timeout
        lastRun[client.slot] = now
        feed(.message(.setKeepAliveTimeout(timeout), from: client, key))
        feed(.message(.enterBackground, from: client, key))
    }

    /// One timer for each client, set again whenever it fires: no two fire at the same nanosecond.
    private mutating func countUncoalesced(_ timeout: Duration, from start: Instant, to end: Instant) {
        let runs = Int((end.nanoseconds - start.nanoseconds) / timeout.wholeNanoseconds)
        outcome.uncoalescedRuns += runs
        outcome.uncoalescedInstants += runs
    }

    private mutating func feed(_ event: Event) {
        supervision.handle(event, at: now, into: &actions)
        perform()
    }

    private mutating func endTurn() {
        supervision.endTurn(at: now, into: &actions)
        perform()
    }

    private mutating func perform() {
        while !actions.actions.isEmpty {
            var work = ActionBuffer()
            swap(&work, &actions)
            for action in work.actions { perform(action) }
        }
    }

    private mutating func perform(_ action: Action) {
        let key = RequestKey(connection: 0, request: 0)
        switch action {
        case .notify(let client, .didEnterBackground):
            reply(client, .message(.backgroundEntered, from: client, key))
        case .notify(let client, .prepareToSuspend(let epoch, _)):
            reply(client, .message(.readyToSuspend(epoch: epoch, notIdle: []), from: client, key))
        case .notify(let client, .wake(let wake)):
            if wake.reasons.contains(.keepAlive) { recordRun(client) }
            reply(client, .message(.wakeDone(wakeID: wake.wakeID), from: client, key))
        case .freeze(let client, let epoch), .checkFreeze(let client, let epoch):
            supervision.handle(.frozen(client, epoch: epoch), at: now, into: &actions)
        case .registered, .refuseRegistration, .answer, .handedOver, .commandAnswer, .notify, .arm,
            .armPastEnd, .close, .thaw, .kill, .forget, .trace, .beginOffload, .endOffload, .ping,
            .lookForAnswer, .makeDormant, .launch, .rejoined, .declared, .storeState, .dropState,
            .inspectPaths:
            break
        }
    }

    private mutating func reply(_ client: ClientID, _ event: Event) {
        replies[client.slot, default: []].append(event)
        queue.set(client.slot, to: now + Self.answerTime)
    }

    private mutating func recordRun(_ client: ClientID) {
        guard let timeout = timeouts[client.slot], let last = lastRun[client.slot] else { return }
        let gap = now.since(last)
        outcome.runs += 1
        if outcome.instants.last != now.nanoseconds { outcome.instants.append(now.nanoseconds) }
        if gap > timeout { outcome.late += 1 }
        let left = (timeout - gap).inSeconds
        outcome.leastLeft = min(outcome.leastLeft, left)
        outcome.earliest = max(outcome.earliest, left / timeout.inSeconds)
        outcome.earliness.record(nanoseconds: (timeout - gap).wholeNanoseconds)
        lastRun[client.slot] = now
    }
}
