/// Wakes that the client detects by itself: after suspension it sees an event on a parked socket before the
/// supervisor's message is encoded and sent. An event detected early is not reported again by the message.
/// Pure.
package struct EarlyWakes {
    /// A client with more sockets waits for the message: each costs a system call before a suspension.
    package static let socketLimit = 16

    /// The suspension that the client has agreed to, until it is over.
    package private(set) var readyEpoch: UInt64?
    private var readyAt: Int64 = 0
    /// The client's sockets in its own poll set, by ID.
    private var watched: [ParkedSocket] = []
    /// Those that have not been reported yet.
    private var unreported: [UInt64] = []
    /// Events detected early that the supervisor has not reported yet.
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

    /// A suspension is announced: all later reports of the supervisor are new.
    package mutating func suspensionAnnounced() {
        readyEpoch = nil
        told.removeAll(keepingCapacity: true)
    }

    /// The socket was released.
    package mutating func released(_ id: UInt64) {
        unreported.removeAll { $0 == id }
        watched.removeAll { $0.id == id }
    }

    /// Whether the poll set may report an event.
    package var isWatching: Bool { !unreported.isEmpty }

    /// Records the event of a watched socket; each socket has at most one.
    package mutating func report(_ id: UInt64, _ conditions: SocketConditions) {
        reportNothing(id)
        // It may have been released since.
        guard let socket = watched.first(where: { $0.id == id }) else { return }
        told.append(.init(socket: socket, conditions: conditions))
    }

    /// Drops a watched socket without reporting an event.
    package mutating func reportNothing(_ id: UInt64) { unreported.removeAll { $0 == id } }

    /// Records an event on a socket of this client. False: it has several sockets, so the poll set has to be
    /// read.
    package mutating func reportOnly(_ conditions: SocketConditions) -> Bool {
        guard watched.count == 1 else { return false }
        told.append(.init(socket: watched[0], conditions: conditions))
        return true
    }

    /// The supervisor has sent a message that ends the suspension.
    package mutating func suspensionOver() { readyEpoch = nil }

    /// The connection that these events belong to has ended.
    package mutating func connectionLost() {
        readyEpoch = nil
        told = []
        lastWakeID = 0
    }

    /// The wake for the events that ended the suspension; nil: none did.
    package mutating func wake(budget: Duration, at now: Int64) -> Wake? {
        guard !told.isEmpty else { return nil }
        readyEpoch = nil
        return Wake(
            id: lastWakeID + 1, reasons: .socket, sockets: told, budget: budget,
            asleepFor: .nanoseconds(max(0, now - readyAt)))
    }

    /// The part of the supervisor's wake that was not detected early; nil: nothing.
    package mutating func remainder(of wake: Wake) -> Wake? {
        lastWakeID = wake.id
        guard !told.isEmpty else { return wake }
        var wake = wake
        wake.sockets = wake.sockets.compactMap { event in
            guard let place = told.firstIndex(where: { $0.socket == event.socket }) else { return event }
            // An early event is subtracted once: a later event on the same socket is a new one.
            let news = event.conditions.subtracting(told.remove(at: place).conditions)
            return news.isEmpty ? nil : Wake.SocketEvent(socket: event.socket, conditions: event.conditions)
        }
        if wake.sockets.isEmpty { wake.reasons.remove(.socket) }
        return wake.reasons.isEmpty ? nil : wake
    }
}
