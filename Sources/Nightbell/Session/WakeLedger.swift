/// Knows when a wake is done: when the handlers returned and the consumer of the sequence, if there is one,
/// asked for the next. Pure.
package struct WakeLedger {
    /// What to do now.
    package struct Outcome: Equatable {
        /// Tell the supervisor that this wake and all before it are done.
        package var confirm: UInt64?
        /// Give this to the consumer, who is waiting.
        package var deliver: Wake?

        package init(confirm: UInt64? = nil, deliver: Wake? = nil) {
            self.confirm = confirm
            self.deliver = deliver
        }
    }

    package enum Next: Equatable {
        case wake(Wake)
        case wait
        case finished
    }

    /// What a consumer gets who asks, and what the supervisor is told because it asked.
    package struct Offer: Equatable {
        package var next: Next
        package var confirm: UInt64?

        package init(_ next: Next, confirm: UInt64? = nil) {
            self.next = next
            self.confirm = confirm
        }
    }

    /// More than this many wakes that nobody took become one.
    package static let bufferLimit = 64

    private struct Consumer {
        package var subscription: UInt64
        package var buffer: [(serial: UInt64, wake: Wake)] = []
        /// It has this one and works on it.
        package var holds: UInt64?
        package var isWaiting = false
    }

    /// Counts the connections.
    package private(set) var connection: UInt64 = 0
    private var outstanding: [(serial: UInt64, wakeID: UInt64)] = []
    private var consumer: Consumer?
    private var lastSerial: UInt64 = 0
    /// What the supervisor was told last, on this connection.
    package private(set) var lastConfirmed: UInt64?
    private var lastSubscription: UInt64 = 0
    private var isClosed = false
    /// The client has said that it is ready to be suspended: nothing is sent until it hears more.
    package private(set) var isQuiet = false
    private var withheld: UInt64?

    package init() {}

    package var hasConsumer: Bool { consumer != nil }

    // MARK: Wakes

    /// The handlers of a wake have returned, which arrived on this connection.
    package mutating func handled(_ wake: Wake, connection: UInt64) -> Outcome {
        lastSerial += 1
        // Who sent it may be gone: then there is nobody to tell.
        if connection == self.connection { outstanding.append((lastSerial, wake.id)) }
        guard var consumer else { return Outcome(confirm: confirmation()) }
        defer { self.consumer = consumer }
        if consumer.isWaiting {
            consumer.isWaiting = false
            consumer.holds = lastSerial
            return Outcome(deliver: wake)
        }
        if consumer.buffer.count >= Self.bufferLimit, let last = consumer.buffer.popLast() {
            consumer.buffer.append((last.serial, last.wake.merged(with: wake)))
        } else {
            consumer.buffer.append((lastSerial, wake))
        }
        return Outcome()
    }

    /// The last of the finished ones, with all unfinished ones behind it.
    private mutating func confirmation() -> UInt64? {
        let firstUndone = consumer.flatMap { $0.holds ?? $0.buffer.first?.serial } ?? .max
        var done: UInt64?
        while let first = outstanding.first, first.serial < firstUndone {
            done = first.wakeID
            outstanding.removeFirst()
        }
        guard let done else { return nil }
        lastConfirmed = done
        if isQuiet {
            withheld = done
            return nil
        }
        return done
    }

    /// The supervisor that had sent them is gone.
    package mutating func connectionLost() {
        connection += 1
        outstanding = []
        withheld = nil
        lastConfirmed = nil
        isQuiet = false
    }

    // MARK: Suspension

    package mutating func suspensionAnswered() { isQuiet = true }

    /// A wake arrived: it says itself when it is done, and speaks for earlier ones.
    package mutating func woken() {
        isQuiet = false
        withheld = nil
    }

    package mutating func suspensionCancelled() -> UInt64? {
        isQuiet = false
        defer { withheld = nil }
        return withheld
    }

    // MARK: The consumer

    /// nil: somebody else consumes already, or there will be no more.
    package mutating func subscribe() -> UInt64? {
        guard consumer == nil, !isClosed else { return nil }
        lastSubscription += 1
        consumer = Consumer(subscription: lastSubscription)
        return lastSubscription
    }

    package func isConsumer(_ subscription: UInt64) -> Bool { consumer?.subscription == subscription }

    package mutating func next(_ subscription: UInt64) -> Offer {
        guard var consumer, consumer.subscription == subscription else { return Offer(.finished) }
        consumer.holds = nil
        guard !consumer.buffer.isEmpty else {
            consumer.isWaiting = true
            self.consumer = consumer
            return isClosed ? Offer(.finished) : Offer(.wait, confirm: confirmation())
        }
        // What it had is done; what it takes now is not.
        let first = consumer.buffer.removeFirst()
        consumer.holds = first.serial
        self.consumer = consumer
        return Offer(.wake(first.wake), confirm: confirmation())
    }

    /// Dropped or cancelled: what it had not finished counts as done.
    package mutating func unsubscribe(_ subscription: UInt64) -> UInt64? {
        guard consumer?.subscription == subscription else { return nil }
        consumer = nil
        return confirmation()
    }

    /// No further wake will come.
    package mutating func close() {
        isClosed = true
        outstanding = []
    }
}

extension Wake {
    /// Both in one: as recent as the later one, with everything that the earlier one told.
    package func merged(with later: Wake) -> Wake {
        var merged = later
        merged.reasons.formUnion(reasons)
        merged.asleepFor += asleepFor
        for event in sockets {
            if let index = merged.sockets.firstIndex(where: { $0.socket == event.socket }) {
                merged.sockets[index].conditions.formUnion(event.conditions)
            } else {
                merged.sockets.append(event)
            }
        }
        return merged
    }
}
