import HummingbirdCore
import NIOConcurrencyHelpers
import NIOCore

/// The open connections, and those of them from which a request is awaited. When all are taken, one of these is closed
/// for one more: peers that ask for nothing do not keep others out.
final class ConnectionRoster: AvailableConnectionsDelegate {
    private struct Waiting {
        let channel: any Channel
        let since: NIODeadline
        /// It has made a request before.
        let hasAsked: Bool
    }

    private struct State {
        var count = 0
        var waiting: [ObjectIdentifier: Waiting] = [:]
        /// A connection is being closed, or will be when its time is over.
        var isMakingRoom = false
    }

    private let most: Int
    private let state = NIOLockedValueBox(State())
    /// Each has so long for its request in any case. It also bounds how many come and go in a second.
    private static let shortestTime: TimeAmount = .milliseconds(500)

    init(_ most: Int) { self.most = most }

    func connectionOpened() { state.withLockedValue { $0.count += 1 } }

    func connectionClosed() {
        state.withLockedValue { state in
            state.count -= 1
            state.isMakingRoom = false
        }
    }

    func isAcceptingNewConnections() -> Bool {
        if state.withLockedValue({ $0.count < most }) { return true }
        makeRoom()
        return false
    }

    /// A request is awaited.
    func awaitRequest(of channel: any Channel, hasAsked: Bool) {
        let isFull = state.withLockedValue { state in
            state.waiting[ObjectIdentifier(channel)] = Waiting(
                channel: channel, since: .now(), hasAsked: hasAsked)
            return state.count >= most
        }
        if isFull { makeRoom() }
    }

    /// A request has come, or the connection has ended.
    func remove(_ channel: any Channel) {
        state.withLockedValue { _ = $0.waiting.removeValue(forKey: ObjectIdentifier(channel)) }
    }

    private enum Step {
        case close(any Channel)
        case wait(any EventLoop, NIODeadline)
    }

    /// Closes the connection that waits for longest; those that have never made a request come first.
    private func makeRoom() {
        let now = NIODeadline.now()
        let step = state.withLockedValue { state -> Step? in
            guard !state.isMakingRoom, state.count >= most else { return nil }
            let due = state.waiting.values.filter { $0.since + Self.shortestTime <= now }
            let oldest = due.min {
                $0.hasAsked == $1.hasAsked ? $0.since < $1.since : $1.hasAsked
            }
            let next = state.waiting.values.min { $0.since < $1.since }
            state.isMakingRoom = next != nil
            if let oldest { return .close(oldest.channel) }
            return next.map { .wait($0.channel.eventLoop, $0.since + Self.shortestTime) }
        }
        switch step {
        case .close(let channel): channel.close(promise: nil)
        case .wait(let loop, let deadline):
            loop.scheduleTask(deadline: deadline) { [self] in
                state.withLockedValue { $0.isMakingRoom = false }
                makeRoom()
            }
        case nil: break
        }
    }
}
