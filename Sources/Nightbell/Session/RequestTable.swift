/// The requests in flight. Pure.
package struct RequestTable {
    private enum Entry {
        case waiting(Request)
        case answered(Result<Answer, NightbellError>)
        /// The caller has given up, but the answer may still grant something that has to be given back.
        case abandoned(Request)
    }

    private var entries: [UInt64: Entry] = [:]
    private var last: UInt64 = 0

    package var count: Int { entries.count }

    /// A number that no other request of this client has had.
    package mutating func number() -> UInt64 {
        last += 1
        return last
    }

    package mutating func open(_ request: Request) -> UInt64 {
        let number = number()
        entries[number] = .waiting(request)
        return number
    }

    /// The outcome once there is one; it is returned once.
    package mutating func removeOutcome(of number: UInt64) -> Result<Answer, NightbellError>? {
        guard case .answered(let outcome)? = entries[number] else { return nil }
        entries[number] = nil
        return outcome
    }

    /// The caller has stopped waiting.
    package mutating func abandon(_ number: UInt64, wasSent: Bool) {
        guard case .waiting(let request)? = entries[number] else { return }
        entries[number] = wasSent ? .abandoned(request) : nil
    }

    package enum Recipient {
        case caller(Request)
        case abandoned(Request)
    }

    /// The recipient of this answer; nil: there is no such request.
    package func recipient(of number: UInt64) -> Recipient? {
        switch entries[number] {
        case .waiting(let request): .caller(request)
        case .abandoned(let request): .abandoned(request)
        case .answered, nil: nil
        }
    }

    package mutating func resolve(_ number: UInt64, _ outcome: Result<Answer, NightbellError>) {
        switch entries[number] {
        case .waiting: entries[number] = .answered(outcome)
        case .abandoned: entries[number] = nil
        case .answered, nil: break
        }
    }

    /// Whether this number belonged to a request.
    package func hasGiven(_ number: UInt64) -> Bool { number != 0 && number <= last }

    /// The requests that have a waiting caller, oldest first.
    package var waiting: [(number: UInt64, request: Request)] {
        var waiting: [(number: UInt64, request: Request)] = []
        for (number, entry) in entries {
            if case .waiting(let request) = entry { waiting.append((number, request)) }
        }
        return waiting.sorted { $0.number < $1.number }
    }

    /// The connection ended, so no answer will come. Returns the waiting requests, oldest first.
    package mutating func orphan() -> [(number: UInt64, request: Request)] {
        var orphans: [(number: UInt64, request: Request)] = []
        for (number, entry) in entries {
            switch entry {
            case .waiting(let request): orphans.append((number, request))
            case .abandoned: entries[number] = nil
            case .answered: break
            }
        }
        return orphans.sorted { $0.number < $1.number }
    }
}
