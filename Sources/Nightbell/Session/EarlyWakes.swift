/// Wakes that the client notices by itself: asleep, it has one of its parked sockets in hand before the supervisor's
/// message is made and sent. What was noticed early is not told again when the message comes. Pure.
package struct EarlyWakes {
    /// A client with more sockets waits for the message: each costs a system call when it goes to sleep.
    package static let socketLimit = 16

    /// The suspension that the client has agreed to, until it is over.
    package private(set) var readyEpoch: UInt64?
    private var readyAt: Int64 = 0
    /// The client's sockets that its own poll set watches, each under its ID.
    private var watched: [ParkedSocket] = []
    /// Those that have not been reported yet.
    private var unreported: [UInt64] = []
    /// What was noticed early, and the supervisor has not told yet.
    private var told: [Wake.SocketEvent] = []
    private var lastWakeID: UInt64 = 0

    package init() {}

    /// The client says that it is ready; these of its sockets are watched.
    package mutating func ready(epoch: UInt64, watching sockets: [ParkedSocket], at now: Int64) {
        readyEpoch = epoch
        readyAt = now
        watched = sockets
        unreported = sockets.map(\.id)
        told.removeAll(keepingCapacity: true)
        told.reserveCapacity(sockets.count)
    }

    /// A suspension is announced: whatever the supervisor tells from now on is news.
    package mutating func suspensionAnnounced() {
        readyEpoch = nil
        told.removeAll(keepingCapacity: true)
    }

    /// The socket is the supervisor's no more.
    package mutating func released(_ id: UInt64) {
        unreported.removeAll { $0 == id }
        watched.removeAll { $0.id == id }
    }

    /// Whether the poll set may have something to tell.
    package var isWatching: Bool { !unreported.isEmpty }

    /// A watched socket is reported, which happens once.
    package mutating func report(_ id: UInt64, _ conditions: SocketConditions) {
        reportNothing(id)
        // It may have been released since.
        guard let socket = watched.first(where: { $0.id == id }) else { return }
        told.append(.init(socket: socket, conditions: conditions))
    }

    /// A watched socket is reported, and nobody is to be told.
    package mutating func reportNothing(_ id: UInt64) { unreported.removeAll { $0 == id } }

    /// Something happened to a socket of this client. False: it has several, so which one must be found out.
    package mutating func reportOnly(_ conditions: SocketConditions) -> Bool {
        guard watched.count == 1 else { return false }
        told.append(.init(socket: watched[0], conditions: conditions))
        return true
    }

    /// The supervisor has spoken: what follows it will tell.
    package mutating func suspensionOver() { readyEpoch = nil }

    /// The supervisor that knew of all this is gone.
    package mutating func connectionLost() {
        readyEpoch = nil
        told = []
        lastWakeID = 0
    }

    /// The sockets reported have ended the suspension; nil: none was.
    package mutating func wake(budget: Duration, at now: Int64) -> Wake? {
        guard !told.isEmpty else { return nil }
        readyEpoch = nil
        return Wake(
            id: lastWakeID + 1, reasons: .socket, sockets: told, budget: budget,
            asleepFor: .nanoseconds(max(0, now - readyAt)))
    }

    /// What of the supervisor's wake has not been noticed before; nil: nothing.
    package mutating func remainder(of wake: Wake) -> Wake? {
        lastWakeID = wake.id
        guard !told.isEmpty else { return wake }
        var wake = wake
        wake.sockets = wake.sockets.compactMap { event in
            guard let place = told.firstIndex(where: { $0.socket == event.socket }) else { return event }
            // Told once, it is told: what happens later to the same socket is another matter.
            let news = event.conditions.subtracting(told.remove(at: place).conditions)
            return news.isEmpty ? nil : Wake.SocketEvent(socket: event.socket, conditions: event.conditions)
        }
        if wake.sockets.isEmpty { wake.reasons.remove(.socket) }
        return wake.reasons.isEmpty ? nil : wake
    }
}
