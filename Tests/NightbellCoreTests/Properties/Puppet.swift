import NightbellCore

/// A simulated client process: what the outside knows of it, kept apart from what the core believes.
final class Puppet {
    enum Behaviour: CaseIterable {
        /// Answers within milliseconds and reads what it was woken for.
        case prompt
        /// Takes up to twice its budgets and leaves things unread.
        case slow
        /// Answers nothing.
        case hung
    }

    /// Something it is going to do, as soon as its time has come and it is not stopped.
    enum Deed {
        case say(ClientMessage)
        case read
        case exit
    }

    /// What the kernel does with its process.
    enum Execution {
        case running
        case stopping
        case stopped
    }

    struct Obligation {
        var number: UInt64
        var until: Instant
    }

    let client: ClientID
    let user: UserID
    let behaviour: Behaviour
    var execution = Execution.running
    var isKilled = false
    var agenda: [(due: Instant, deed: Deed)] = []
    var cables: [Cable] = []
    var tasks: [UInt64] = []
    var mediaUntil = Instant(nanoseconds: .min)
    var lastEpoch: UInt64 = 0
    var lastWakeID: UInt64 = 0

    // What it owes the supervisor, and until when.
    var entering: Obligation?
    var preparing: Obligation?
    var openWake: Obligation?
    var overruns: [Step: UInt64] = [:]
    /// Since when its background tasks have counted, and when it was warned.
    var tasksSince: Instant?
    var warnedAt: Instant?
    var tasksAreOver = false

    var timeout: Duration?
    var lastRun = Instant(nanoseconds: 0)
    var backgroundSince = Instant(nanoseconds: 0)
    var wakes: UInt64 = 0

    init(_ client: ClientID, user: UserID, behaviour: Behaviour) {
        self.client = client
        self.user = user
        self.behaviour = behaviour
    }

    func holds(at now: Instant) -> Bool { !tasks.isEmpty || now < mediaUntil }

    /// The window of its next keep-alive run, from the rules and not from the core.
    func window(_ settings: Settings.KeepAlive) -> (earliest: Instant, latest: Instant)? {
        guard let timeout else { return nil }
        let lead = min(settings.lead, timeout / 2)
        let latest = max(lastRun + timeout, backgroundSince + lead)
        return (latest - max(timeout / 10, lead), latest)
    }
}

/// A socket of a puppet, with the peer at its other end and the supervisor's duplicate.
final class Cable {
    let token: SocketToken
    var unread = 0
    var peerClosed = false
    var isWatched = false
    /// It fired; the event waits to be delivered.
    var isQueued = false
    /// The owner was told of its end.
    var isEnded = false

    init(_ token: SocketToken) {
        self.token = token
    }

    var conditions: Conditions {
        var conditions: Conditions = unread > 0 || peerClosed ? .readable : []
        if peerClosed { conditions.insert(.peerClosed) }
        return conditions
    }
}
