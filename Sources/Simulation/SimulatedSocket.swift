import NightbellCore

/// A client's socket, with the peer at its other end and the supervisor's duplicate.
final class SimulatedSocket {
    let token: SocketToken
    unowned let owner: SimulatedClient
    let isStream: Bool
    let survives: Bool
    /// Another process may open its other end again.
    let isDevice: Bool
    var unread = 0
    /// The data to read, if the edge has a profile to inspect it with.
    var inbox: [Piece] = [] {
        didSet { unread = inbox.count }
    }
    var isPeerClosed = false
    var isReset = false
    /// An error that the next read clears: a datagram socket is told of an unreachable peer.
    var hasError = false

    /// The address of the machine that it is bound to; nil: one that is always there.
    var address: Int?
    /// There is no route to its peer.
    var isUnreachable = false
    /// Its owner was told that it cannot work over the present network.
    var isPathTold = false
    /// The supervisor's one-shot watch is armed.
    var isWatched = false
    /// The watch is for bytes only: the owner was told of the end.
    var isForBytes = false
    /// It fired, and its event is still in the queue.
    var isQueued = false
    /// The owner was told of its end. Unread bytes wake the owner again.
    var isEnded = false
    /// A watch for bytes has fired since the owner was told of the end.
    var hasFiredForBytes = false
    /// The time since which something waits in it while its owner sleeps.
    var waitingSince: Instant?

    /// Whether it has a profile; the terms say when pings are sent, if they are.
    let hasProfile: Bool
    var terms: PingTerms?
    /// The core has got these terms.
    var hasTerms = false
    /// The edge handles its pings.
    var isOffloaded = false
    /// One of our pings waits for its answer; the latest time of the answer, and its actual time.
    var isAwaiting = false
    var answerUntil: Instant?
    var pongDue: Instant?
    /// The time of the last ping, or of the hand-over.
    var pingedAt = Instant(nanoseconds: 0)
    /// The next ping is not sent before this.
    var restedAt = Instant(nanoseconds: 0)
    var partialSince: Instant?
    /// Its owner was woken while only the beginning of a message was there: the watch is renewed.
    var hasLeftBeginning = false
    var renewedAtStep = 0
    var expectedOffload = OffloadCounters()
    /// Conditions that the kernel does not report and the owner has to be told.
    var found: Conditions = []

    /// One write of a peer.
    enum Piece: Sendable {
        case ping, filler, pong
        /// The beginning of a filler.
        case partial
        case news
    }

    init(
        _ token: SocketToken, of owner: SimulatedClient, isStream: Bool, survives: Bool,
        isDevice: Bool, hasProfile: Bool = false
    ) {
        self.token = token
        self.owner = owner
        self.isStream = isStream
        self.survives = survives
        self.isDevice = isDevice
        self.hasProfile = hasProfile
    }

    /// Whether something in it must wake its owner.
    var mustWake: Bool {
        if isEnded { return unread > 0 }
        guard isOffloaded else { return !conditions.isEmpty }
        if isPeerClosed || isReset || hasError { return true }
        return inbox.contains(.news) || (!isAwaiting && inbox.contains(.pong))
    }

    func stopDealing() {
        isOffloaded = false
        hasTerms = false
        isAwaiting = false
        answerUntil = nil
        partialSince = nil
    }

    var conditions: Conditions {
        var conditions: Conditions = unread > 0 || isPeerClosed ? .readable : []
        if isPeerClosed { conditions.insert(.peerClosed) }
        if isReset { conditions.formUnion([.readable, .hangUp, .error]) }
        if hasError { conditions.insert(.error) }
        return conditions
    }

    /// The owner reads everything.
    func read() {
        inbox = []
        unread = 0
        hasError = false
        waitingSince = nil
    }
}
