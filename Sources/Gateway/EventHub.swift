import DequeModule
import LinuxSystem
import NIOConcurrencyHelpers
import Nightbell
import Presentation
import StatusReports

/// Gives every event to all streams. A stream that does not keep up loses its oldest events and is told how
/// many; the others, and the supervisor, do not wait for it.
final class EventHub: Sendable {
    /// An event with its place in the order of this gateway's events.
    struct Numbered: Sendable {
        let number: UInt64
        let event: ClientEvent
        /// As server-sent event; made once for all streams.
        let bytes: [UInt8]

        init(_ number: UInt64, _ event: ClientEvent) {
            self.number = number
            self.event = event
            var bytes: [UInt8] = []
            bytes.reserveCapacity(256)
            bytes += "id: ".utf8
            JSON.unsigned(number).write(to: &bytes)
            bytes += "\ndata: ".utf8
            event.json.write(to: &bytes)
            bytes += "\n\n".utf8
            self.bytes = bytes
        }
    }

    /// The events of one stream since it was last asked.
    struct Portion: Sendable {
        var events: Deque<Numbered> = []
        /// Events lost before these.
        var dropped = 0
        /// The connection to the supervisor was lost in between: any number of events may be missing.
        var isInterrupted = false
    }

    final class Subscription: Sendable {
        fileprivate let id: UInt64
        /// One element when there is something to take, or it is time for a sign of life.
        let signals: AsyncStream<Void>
        fileprivate let signal: AsyncStream<Void>.Continuation
        fileprivate let portion = NIOLockedValueBox(Portion())
        private let identifier: String?
        private let most: Int

        fileprivate init(id: UInt64, identifier: String?, most: Int) {
            self.id = id
            self.identifier = identifier
            self.most = most
            (signals, signal) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1))
        }

        fileprivate var isOfOneClient: Bool { identifier != nil }

        func take() -> Portion {
            portion.withLockedValue { portion in
                defer { portion = Portion() }
                return portion
            }
        }

        fileprivate func add(_ events: some Sequence<Numbered>) {
            let isSignalled = portion.withLockedValue { portion in
                var isAdded = false
                for event in events where identifier == nil || event.event.identifier == identifier {
                    if portion.events.count == most {
                        portion.events.removeFirst()
                        portion.dropped += 1
                    }
                    portion.events.append(event)
                    isAdded = true
                }
                return isAdded
            }
            if isSignalled { signal.yield() }
        }

        /// Nothing is signalled any more.
        func finish() { signal.finish() }

        fileprivate func interrupt() {
            portion.withLockedValue { $0.isInterrupted = true }
            signal.yield()
        }

        /// So many events, of all clients, are not known any more.
        fileprivate func miss(_ count: Int) {
            guard identifier == nil else { return interrupt() }
            portion.withLockedValue { $0.dropped += count }
        }
    }

    private struct State {
        var subscriptions: [UInt64: Subscription] = [:]
        var lastSubscription: UInt64 = 0
        /// Greater than all numbers of earlier gateways, which had fewer events than microseconds.
        let numberBefore: UInt64
        var lastEvent: UInt64
        /// Events may be missing before this number.
        var lastInterruption: UInt64
        var recent: Deque<(number: UInt64, event: ClientEvent)> = []
        var isConnected = false

        init() {
            numberBefore = WallClock.now() / 1_000
            (lastEvent, lastInterruption) = (numberBefore, numberBefore)
        }

        /// - Parameter number: of the last event that its reader has; 0: it has none, and wants what there is.
        mutating func resume(_ subscription: Subscription, after number: UInt64) {
            let isKnown = numberBefore < number && number <= lastEvent
            let first = recent.first?.number ?? lastEvent + 1
            if !isKnown || number < lastInterruption {
                if number != 0 { subscription.interrupt() }
            } else if number + 1 < first {
                subscription.miss(Int(first - 1 - number))
            }
            subscription.add(
                recent.lazy.filter { !isKnown || $0.number > number }.map { Numbered($0.number, $0.event) })
        }
    }

    /// The events that a new stream can ask for.
    static let recentEvents = 512

    private let limits: Limits
    private let state = NIOLockedValueBox(State())

    init(_ limits: Limits) { self.limits = limits }

    /// Whether events arrive from a supervisor.
    var isConnected: Bool { state.withLockedValue { $0.isConnected } }
    var streams: Int { state.withLockedValue { $0.subscriptions.count } }

    /// - Parameters:
    ///   - identifier: only this client's events; nil: those of all.
    ///   - number: begins after this event, as far as that is known still; nil: with the next one.
    func subscribe(to identifier: String?, after number: UInt64?) throws(APIError) -> Subscription {
        let result: Result<Subscription, APIError> = state.withLockedValue { state in
            guard state.subscriptions.count < limits.streams else { return .failure(.tooManyStreams) }
            state.lastSubscription += 1
            let subscription = Subscription(
                id: state.lastSubscription, identifier: identifier, most: limits.eventsPerStream)
            state.subscriptions[subscription.id] = subscription
            if let number { state.resume(subscription, after: number) }
            // So that the header goes out at once.
            subscription.signal.yield()
            return .success(subscription)
        }
        return try result.get()
    }

    func end(_ subscription: Subscription) {
        state.withLockedValue { $0.subscriptions[subscription.id] = nil }
        subscription.finish()
    }

    /// From the one thread that reads events.
    func publish(_ events: [ClientEvent]) {
        let (subscriptions, first) = state.withLockedValue { state in
            let first = state.lastEvent + 1
            for event in events {
                state.lastEvent += 1
                if state.recent.count == Self.recentEvents { state.recent.removeFirst() }
                state.recent.append((state.lastEvent, event))
            }
            return (Array(state.subscriptions.values), first)
        }
        guard !subscriptions.isEmpty else { return }
        let numbered = events.enumerated().map { Numbered(first + UInt64($0.offset), $0.element) }
        for subscription in subscriptions { subscription.add(numbered) }
    }

    /// The supervisor has dropped events, of any clients: streams of one client are interrupted. Those of all are
    /// told by the event that follows.
    func lose() {
        for subscription in state.withLockedValue({ Array($0.subscriptions.values) })
        where subscription.isOfOneClient {
            subscription.interrupt()
        }
    }

    func connected() { state.withLockedValue { $0.isConnected = true } }

    func disconnected() {
        let subscriptions = state.withLockedValue { state -> [Subscription] in
            guard state.isConnected else { return [] }
            state.isConnected = false
            state.lastEvent += 1
            state.lastInterruption = state.lastEvent
            return Array(state.subscriptions.values)
        }
        for subscription in subscriptions { subscription.interrupt() }
    }

    /// Makes every stream give a sign of life.
    func beat() {
        for subscription in state.withLockedValue({ Array($0.subscriptions.values) }) {
            subscription.signal.yield()
        }
    }

}
