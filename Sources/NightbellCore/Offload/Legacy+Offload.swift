extension Legacy {
    /// What a supervisor that is gone had done for a socket with a profile.
    public struct Offload: Sendable, Equatable {
        /// In words for a ledger. Each can be understood without the others.
        public typealias Words = InlineArray<5, UInt64>

        /// Its owner slept, and had vouched for it.
        public var wasActive = false
        public var wasAwaitingAnswer = false
        /// In elapsed time.
        public var lastPing: Instant
        public var counters = OffloadCounters()
        /// What its owner was woken for last that the kernel does not tell, and the mark of that wake.
        public var found: Conditions = []
        public var foundInWake: UInt32 = 0

        /// Nothing has happened yet.
        public init(at now: Instant) {
            lastPing = now
        }

        public init(_ words: Words) {
            wasActive = words[0] & 1 != 0
            wasAwaitingAnswer = words[0] & 2 != 0
            found = Conditions(rawValue: UInt8(truncatingIfNeeded: words[0] >> 8))
            foundInWake = UInt32(words[0] >> 32)
            lastPing = Instant(nanoseconds: Int64(bitPattern: words[1]))
            (counters.sent, counters.confirmed) = (words[2] & 0xFFFF_FFFF, words[2] >> 32)
            (counters.answered, counters.absorbed) = (words[3] & 0xFFFF_FFFF, words[3] >> 32)
            counters.wakesAvoided = words[4]
        }

        public var words: Words {
            func pair(_ low: UInt64, _ high: UInt64) -> UInt64 {
                UInt64(UInt32(clamping: high)) << 32 | UInt64(UInt32(clamping: low))
            }
            let flags: UInt64 = (wasActive ? 1 : 0) | (wasAwaitingAnswer ? 2 : 0)
            return [
                UInt64(foundInWake) << 32 | UInt64(found.rawValue) << 8 | flags,
                UInt64(bitPattern: lastPing.nanoseconds), pair(counters.sent, counters.confirmed),
                pair(counters.answered, counters.absorbed),
                counters.wakesAvoided,
            ]
        }
    }
}

extension Supervision {
    /// What must be known of a socket's pings to go on with them.
    public func offloadLegacy(of token: SocketToken) -> Legacy.Offload? {
        guard hasProfile(token) else { return nil }
        let offload = pings[token.slot]
        var legacy = Legacy.Offload(at: offload.lastPing)
        legacy.wasActive = offload.isActive
        legacy.wasAwaitingAnswer = pings.isAwaitingAnswer(token.slot)
        legacy.counters = offload.counters
        if let finding = findings[token.slot] {
            (legacy.found, legacy.foundInWake) = (finding.conditions, finding.wake)
        }
        return legacy
    }

    /// Gives every socket whose pings have changed since the last time.
    public mutating func takeChangedOffloads(_ body: (SocketToken, Legacy.Offload) -> Void) {
        guard !touchedOffloads.isEmpty else { return }
        for token in touchedOffloads {
            if let legacy = offloadLegacy(of: token) { body(token, legacy) }
        }
        touchedOffloads.removeAll(keepingCapacity: true)
    }

    // MARK: Taking over

    mutating func take(_ old: Legacy.Offload, _ token: SocketToken, of client: ClientID) {
        addOffload(token, client, elapsed: old.lastPing)
        pings[token.slot].isActive = old.wasActive && !mutated(.restoresWithoutPings)
        pings[token.slot].counters = old.counters
        if !old.found.isEmpty {
            findings[token.slot] = Finding(conditions: old.found, wake: old.foundInWake)
        }
        // Until the edge has told how long an answer may take, it may take for ever.
        if old.wasAwaitingAnswer { pings.noteAwaited(token.slot) }
    }

    /// What the owner of a socket was told in this wake, or was to be, and the kernel does not tell.
    func found(_ token: SocketToken, inWake wakeID: UInt64) -> Conditions {
        guard hasProfile(token), let finding = findings[token.slot],
            finding.wake == SocketToken.mark(of: wakeID)
        else { return [] }
        return finding.conditions
    }

    /// After it was decided how a client goes on: so do its pings if it sleeps or has no process, otherwise they end
    /// before it runs.
    mutating func goOnOffloading(
        _ client: ClientID, isThawed: Bool, from start: Int, into actions: inout ActionBuffer
    ) {
        guard clients[client.id].hasProfiles, let tokens = offloaded[client.slot] else { return }
        guard clients[client.id].lifecycle.permitsOffload, !isThawed else {
            endOffloads(client, into: &actions)
            return actions.moveEndsOfOffloads(to: start)
        }
        for token in tokens where pings[token.slot].isActive { actions.append(.beginOffload(token)) }
    }
}

extension ActionBuffer {
    fileprivate mutating func moveEndsOfOffloads(to start: Int) {
        var end = start
        for index in start..<actions.count {
            guard case .endOffload = actions[index] else { continue }
            actions.insert(actions.remove(at: index), at: end)
            end += 1
        }
    }
}
