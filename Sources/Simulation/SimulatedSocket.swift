import NightbellCore

/// A socket of a client, with the peer at its other end and the supervisor's duplicate.
final class SimulatedSocket {
    let token: SocketToken
    unowned let owner: SimulatedClient
    let isStream: Bool
    let survives: Bool
    var unread = 0
    /// What there is to read, where the edge has a profile to look at it with.
    var inbox: [Piece] = [] {
        didSet { unread = inbox.count }
    }
    var isPeerClosed = false
    var isReset = false
    /// An error that the next read takes away: a datagram socket hears of an unreachable peer.
    var hasError = false

    /// The supervisor's one-shot watch is armed.
    var isWatched = false
    /// The watch is for bytes only: the owner was told of the end.
    var isForBytes = false
    /// It fired, and the event waits to be delivered.
    var isQueued = false
    /// The owner was told of its end. Bytes that it left unread wake it again.
    var isEnded = false
    /// A watch for bytes has fired since the owner was told.
    var hasFiredForBytes = false
    /// Since when something waits in it while its owner sleeps.
    var waitingSince: Instant?

    /// It has a profile; then when pings are sent, if they are.
    let hasProfile: Bool
    var terms: PingTerms?
    /// The core was told of these terms.
    var hasTerms = false
    /// The edge deals with its pings.
    var isDealtWith = false
    /// A ping of ours waits for its answer, until when it may take, and when it comes.
    var isAwaiting = false
    var answerUntil: Instant?
    var pongDue: Instant?
    /// The last ping, or the hand-over.
    var pingedAt = Instant(nanoseconds: 0)
    /// The next ping does not come before this.
    var restedAt = Instant(nanoseconds: 0)
    var partialSince: Instant?
    /// Its owner was woken while there was only the beginning of a message: the watch is made anew.
    var hasLeftBeginning = false
    var renewedAtStep = 0
    var expectedOffload = OffloadCounters()
    /// What the kernel does not tell, and its owner has to be told.
    var found: Conditions = []

    /// What a peer says in one go.
    enum Piece: Sendable {
        case ping, filler, pong
        /// The beginning of a filler.
        case partial
        case news
    }

    init(
        _ token: SocketToken, of owner: SimulatedClient, isStream: Bool, survives: Bool,
        hasProfile: Bool = false
    ) {
        self.token = token
        self.owner = owner
        self.isStream = isStream
        self.survives = survives
        self.hasProfile = hasProfile
    }

    /// Whether something in it must wake its owner.
    var mustWake: Bool {
        if isEnded { return unread > 0 }
        guard isDealtWith else { return !conditions.isEmpty }
        if isPeerClosed || isReset || hasError { return true }
        return inbox.contains(.news) || (!isAwaiting && inbox.contains(.pong))
    }

    func stopDealing() {
        isDealtWith = false
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

    /// The owner reads all there is.
    func read() {
        inbox = []
        unread = 0
        hasError = false
        waitingSince = nil
    }
}
