import NightbellCore

/// A socket of a client, with the peer at its other end and the supervisor's duplicate.
final class SimulatedSocket {
    let token: SocketToken
    unowned let owner: SimulatedClient
    let isStream: Bool
    let survives: Bool
    var unread = 0
    var isPeerClosed = false
    var isReset = false
    /// An error that the next read takes away: a datagram socket hears of an unreachable peer.
    var hasError = false

    /// The supervisor's one-shot watch is armed.
    var isWatched = false
    /// It fired, and the event waits to be delivered.
    var isQueued = false
    /// The owner was told of its end.
    var isEnded = false
    /// Since when something waits in it while its owner sleeps.
    var waitingSince: Instant?

    init(_ token: SocketToken, of owner: SimulatedClient, isStream: Bool, survives: Bool) {
        self.token = token
        self.owner = owner
        self.isStream = isStream
        self.survives = survives
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
        unread = 0
        hasError = false
        waitingSince = nil
    }
}
