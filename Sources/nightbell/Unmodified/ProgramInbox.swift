import Nightbell

/// Collects what the supervisor says, until the program's loop handles it.
final class ProgramInbox: @unchecked Sendable {
    // Sendable: everything happens on one thread, that of `Client.processPending`.

    enum Event {
        case suspended
        case cancelled
        case woken
        case disconnected
        case reconnected
        case toTerminate
    }

    private var events: [Event] = []

    func takeAll() -> [Event] {
        defer { events.removeAll() }
        return events
    }

    var handlers: Client.Handlers {
        var handlers = Client.Handlers { _ in self.events.append(.woken) }
        handlers.programSuspended = { self.events.append(.suspended) }
        handlers.suspendCancelled = { self.events.append(.cancelled) }
        handlers.connectionLost = { _ in self.events.append(.disconnected) }
        handlers.reconnected = { self.events.append(.reconnected) }
        handlers.willTerminate = { _ in self.events.append(.toTerminate) }
        return handlers
    }
}
