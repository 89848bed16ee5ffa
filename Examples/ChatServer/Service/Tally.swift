internal import NightbellNIO
internal import Synchronization

/// Counters, for any thread.
final class Tally: Sendable {
    let connections = Atomic<Int>(0)
    let messages = Atomic<Int>(0)
    /// Of connections that are awake.
    let pingsSent = Atomic<Int>(0)
    let pongs = Atomic<Int>(0)

    /// As `GET /counters` shows it.
    func counters(_ hibernator: Hibernator?) -> ChatCounters {
        let supervision = hibernator?.supervision
        let connections = connections.load(ordering: .relaxed)
        let hibernated = supervision?.sockets ?? 0
        return ChatCounters(
            connections: connections, hibernated: hibernated, resident: max(0, connections - hibernated),
            hibernations: hibernator?.counters.hibernated ?? 0, wakes: hibernator?.counters.woken ?? 0,
            messages: messages.load(ordering: .relaxed),
            pingsSent: pingsSent.load(ordering: .relaxed) + Int(supervision?.pings.sent ?? 0),
            pongs: pongs.load(ordering: .relaxed) + Int(supervision?.pings.confirmed ?? 0),
            lost: hibernator?.counters.lost ?? 0)
    }
}

/// The counters of the server since its start.
public struct ChatCounters: Codable, Sendable, Equatable {
    public var connections: Int
    public var hibernated: Int
    public var resident: Int
    public var hibernations: Int
    public var wakes: Int
    public var messages: Int
    public var pingsSent: Int
    public var pongs: Int
    public var lost: Int

    private enum CodingKeys: String, CodingKey {
        case connections, hibernated, resident, hibernations, wakes, messages
        case pingsSent = "pings_sent"
        case pongs, lost
    }
}
