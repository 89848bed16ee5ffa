/// The result of a `TransferDay`.
package struct TransferTally: Sendable, Equatable {
    /// Transfers that were asked for or subscribed to, and those of them that were finished.
    package internal(set) var asked = 0
    package internal(set) var finished = 0
    /// Bytes that were transferred: in good moments, and on battery, through a metered network or while memory
    /// and processors were short.
    package internal(set) var goodBytes = 0.0
    package internal(set) var badBytes = 0.0
    /// The time of good moments in which nothing was transferred though something waited.
    package internal(set) var idleSeconds = 0.0
    /// Ends of sessions, and how often clients were told of one.
    package internal(set) var ends = 0
    package internal(set) var told = 0
    /// Ends of which a client was told after the time that it may have to wait.
    package internal(set) var late = 0
    /// From the end to the client, in seconds, sorted.
    package internal(set) var delays: [Double] = []
    /// From the request to the end of a transfer, in seconds, sorted.
    package internal(set) var waits: [Double] = []
    /// Launches for ends, of clients that did not run.
    package internal(set) var launches = 0
    /// Instants at which a client was woken for another reason.
    package internal(set) var otherInstants = 0
    /// Instants at which clients were woken for ends alone.
    package internal(set) var extraInstants = 0
    /// Good moments, as a share of the time.
    package internal(set) var goodShare = 0.0
    /// Issues that were due, and those that were begun.
    package internal(set) var dueIssues = 0
    package internal(set) var issues = 0

    package init() {}

    package var badShare: Double { badBytes / max(goodBytes + badBytes, 1) }
    package var extraShare: Double { Double(extraInstants) / Double(max(otherInstants, 1)) }

    mutating func finish() {
        delays.sort()
        waits.sort()
    }

    package static func percentile(_ percentile: Int, _ sorted: [Double]) -> Double {
        sorted.isEmpty ? 0 : sorted[min(sorted.count * percentile / 100, sorted.count - 1)]
    }
}
