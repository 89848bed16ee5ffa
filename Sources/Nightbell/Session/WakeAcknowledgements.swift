/// Decides when a wake is done: when the handlers have returned and the consumer of the sequence, if there is
/// one, has asked for the next. Pure.
package struct WakeAcknowledgements {
    /// The actions to take now.
    package struct Outcome: Equatable {
        /// Acknowledge to the supervisor that this wake and all before it are done.
        package var confirm: UInt64?
        /// Deliver this to the waiting consumer.
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

    /// The result of the consumer's request, for the consumer and for the supervisor.
    package struct Offer: Equatable {
        package var next: Next
        package var confirm: UInt64?

        package init(_ next: Next, confirm: UInt64? = nil) {
            self.next = next
            self.confirm = confirm
        }
    }

    /// Further wakes are merged once this many wait for the consumer.
    package static let bufferLimit = 64

    private struct Consumer {
        package var subscription: UInt64
        package var buffer: [(serial: UInt64, wake: Wake)] = []
        /// The wake that the consumer works on.
        package var holds: UInt64?
        package var isWaiting = false
    }

    /// Counts the connections.
    package private(set) var connection: UInt64 = 0
    private var outstanding: [(serial: UInt64, wakeID: UInt64)] = []
    private var consumer: Consumer?
    private var lastSerial: UInt64 = 0
    /// The last wake acknowledged on this connection.
    package private(set) var lastConfirmed: UInt64?
    private var lastSubscription: UInt64 = 0
    private var isClosed = false
    /// The client has said that it is ready to be suspended: it sends nothing until it hears more.
    package private(set) var isQuiet = false
    private var withheld: UInt64?

    package init() {}

    package var hasConsumer: Bool { consumer != nil }

    // MARK: Wakes

    /// The handlers of a wake that arrived on this connection have returned.
    package mutating func handled(_ wake: Wake, connection: UInt64) -> Outcome {
        lastSerial += 1
        // Do not acknowledge if the supervisor that sent the wake is gone.
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

    /// The last finished wake that precedes all unfinished ones.
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

    /// The supervisor that sent these wakes is gone.
    package mutating func connectionLost() {
        connection += 1
        outstanding = []
        withheld = nil
        lastConfirmed = nil
        isQuiet = false
    }

    // MARK: Suspension

    package mutating func suspensionAnswered() { isQuiet = true }

    /// A wake arrived: its acknowledgement covers earlier ones.
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

    /// nil: there is another consumer already, or there will be no more wakes.
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
        // The consumer's previous wake is done; the one that it takes now is not.
        let first = consumer.buffer.removeFirst()
        consumer.holds = first.serial
        self.consumer = consumer
        return Offer(.wake(first.wake), confirm: confirmation())
    }

    /// Dropped or cancelled: its unfinished wake counts as done.
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
    /// Merges both wakes: identity of the later one, events of both.
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
