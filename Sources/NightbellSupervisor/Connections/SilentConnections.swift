import NightbellCore
import NightbellWire

/// Connections that have not sent anything yet, in the order of their arrival: each has the same time for it.
///
/// A connection that has sent something stays in here until all before it have, or are gone: only the first
/// sets the timer.
struct SilentConnections {
    private var entries: [(key: UInt64, until: Instant)] = []
    /// The number at the front that is no longer of interest.
    private var done = 0

    var count: Int { entries.count - done }
    var first: (key: UInt64, until: Instant)? { done < entries.count ? entries[done] : nil }
    var firstDeadline: Instant? { first?.until }

    mutating func append(_ key: UInt64, until: Instant) {
        entries.append((key, until))
    }

    mutating func removeFirst() {
        done += 1
        if done > entries.count / 2 {
            entries.removeFirst(done)
            done = 0
        }
    }

    mutating func removeAll(where isOver: (UInt64) -> Bool) {
        entries.removeFirst(done)
        done = 0
        entries.removeAll { isOver($0.key) }
    }
}

extension Supervisor {
    /// Each takes some 20 µs. The next turn begins at once if there are more.
    private static let disconnectedPerTurn = 16

    /// Disconnects connections that have been silent for too long. When all have sent something the timer is
    /// not set: an idle supervisor is not woken.
    func disconnectSilent() {
        for _ in 0..<Self.disconnectedPerTurn {
            guard let next = connections.silent.first else { break }
            guard let connection = connections[next.key], !connection.hasSpoken else {
                connections.silent.removeFirst()
                continue
            }
            guard next.until <= now else { break }
            connections.silent.removeFirst()
            let error = WireError(
                .helloRequired, "nothing was said within \(configuration.helloTimeout) of the connection")
            disconnect(connection, with: error)
        }
        connections.forgetSpoken()
    }
}
