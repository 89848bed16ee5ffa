import DequeModule

/// Ends that are to be told, in their order. One that follows another of the same session replaces it.
struct EndQueue {
    private struct Name: Hashable {
        let client: String
        let session: String

        init(_ end: TransferEnd) {
            client = end.client
            session = end.session
        }
    }

    private var order = Deque<Name>()
    private var ends: [Name: TransferEnd] = [:]

    init(_ ends: [TransferEnd] = []) {
        for end in ends { append(end) }
    }

    var isEmpty: Bool { order.isEmpty }
    var first: TransferEnd? { order.first.flatMap { ends[$0] } }

    mutating func append(_ end: TransferEnd) {
        let name = Name(end)
        if ends.updateValue(end, forKey: name) == nil { order.append(name) }
    }

    mutating func removeFirst() {
        guard let name = order.popFirst() else { return }
        ends[name] = nil
    }
}

/// The rate of notices: the supervisor replaces a process that sends more than 1,000 in a second. It may read those of
/// a second together with the ones that its socket holds from before.
struct NoticeRate {
    private var windowEnd: Int64 = 0
    private var sent = 0

    /// In nanoseconds.
    private static let window: Int64 = 1_000_000_000
    private static let most = 300

    /// When the next one may be sent; nil: now.
    mutating func pause(at now: Int64) -> Int64? {
        if now >= windowEnd {
            windowEnd = now + Self.window
            sent = 0
        }
        return sent < Self.most ? nil : windowEnd
    }

    mutating func noteSent() { sent += 1 }
}
