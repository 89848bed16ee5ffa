import NIOConcurrencyHelpers

/// Limits on what the gateway answers to peers that need no token for it. Beyond a rate answers wait, and what
/// follows on their connections is not answered meanwhile: strangers do not keep the machine busy.
final class StrangerLimits: Sendable {
    enum Kind {
        /// Neither a valid token or proof nor an address that exists.
        case refusal
        /// The dashboard's files, and the description of the interface.
        case page
        /// For monitoring, which is not to wait because of the others.
        case health
    }

    private let refusals: RateLimit
    private let pages: RateLimit
    private let health: RateLimit
    private let time: Duration
    /// Answers that may wait at the same time. The other connections are left for peers that do not wait.
    private let room: Int
    private let waiting = NIOLockedValueBox(0)

    init(_ limits: Limits) {
        refusals = RateLimit(perSecond: limits.refusalsPerSecond, burst: 5 * limits.refusalsPerSecond)
        pages = RateLimit(perSecond: limits.pagesPerSecond, burst: 2 * limits.pagesPerSecond)
        health = RateLimit(perSecond: limits.pagesPerSecond, burst: 2 * limits.pagesPerSecond)
        time = limits.refusalPause
        room = limits.connections / 2
    }

    /// Returns when an answer may be sent, and whether the connection may go on after it. With no room to wait it
    /// is answered at once: making a connection costs the peer more than a request does.
    func wait(_ kind: Kind) async -> Bool {
        let rate =
            switch kind {
            case .refusal: refusals
            case .page: pages
            case .health: health
            }
        guard !rate.take() else { return true }
        let mayWait = waiting.withLockedValue { waiting in
            guard waiting < room else { return false }
            waiting += 1
            return true
        }
        guard mayWait else { return false }
        // A cancelled request is answered without the pause.
        try? await Task.sleep(for: time)
        waiting.withLockedValue { $0 -= 1 }
        return true
    }
}
