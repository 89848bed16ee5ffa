extension RecoverySnapshot {
    /// The keep-alive state of a socket with a profile, as the previous supervisor recorded it.
    package struct Offload: Sendable, Equatable {
        /// The record as words for the shared state. Each word can be read without the others.
        package typealias Words = InlineArray<5, UInt64>

        /// The owner slept, and had confirmed that the socket may be used.
        package var wasActive = false
        package var wasAwaitingAnswer = false
        /// In elapsed time.
        package var lastPing: Instant
        package var counters = OffloadCounters()
        /// Conditions of the owner's last wake that the kernel does not report, and the mark of that wake.
        package var found: Conditions = []
        package var foundInWake: UInt32 = 0

        /// Nothing has happened yet.
        package init(at now: Instant) {
            lastPing = now
        }

        package init(_ words: Words) {
            wasActive = words[0] & 1 != 0
            wasAwaitingAnswer = words[0] & 2 != 0
            found = Conditions(rawValue: UInt8(truncatingIfNeeded: words[0] >> 8))
            foundInWake = UInt32(words[0] >> 32)
            lastPing = Instant(nanoseconds: Int64(bitPattern: words[1]))
            (counters.sent, counters.confirmed) = (words[2] & 0xFFFF_FFFF, words[2] >> 32)
            (counters.answered, counters.absorbed) = (words[3] & 0xFFFF_FFFF, words[3] >> 32)
            counters.wakesAvoided = words[4]
        }

        package var words: Words {
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
    /// The record that another supervisor needs to continue a socket's pings.
    package func offloadSnapshot(of token: SocketToken) -> RecoverySnapshot.Offload? {
        guard hasProfile(token) else { return nil }
        let offload = pings[token.slot]
        var snapshot = RecoverySnapshot.Offload(at: offload.lastPing)
        snapshot.wasActive = offload.isActive
        snapshot.wasAwaitingAnswer = pings.isAwaitingAnswer(token.slot)
        snapshot.counters = offload.counters
        if let finding = foundConditions[token.slot] {
            (snapshot.found, snapshot.foundInWake) = (finding.conditions, finding.wake)
        }
        return snapshot
    }

    // MARK: Recovery

    mutating func add(_ old: RecoverySnapshot.Offload, _ token: SocketToken, of client: ClientID) {
        addOffload(token, client, elapsed: old.lastPing)
        pings[token.slot].isActive = old.wasActive && !mutated(.restoresWithoutPings)
        pings[token.slot].counters = old.counters
        if !old.found.isEmpty {
            foundConditions[token.slot] = FoundConditions(conditions: old.found, wake: old.foundInWake)
        }
        // The answer has no time limit until the edge reports the terms.
        if old.wasAwaitingAnswer { pings.noteAwaited(token.slot) }
    }

    /// Conditions of this wake, delivered or not, that the kernel does not report.
    func found(_ token: SocketToken, inWake wakeID: UInt64) -> Conditions {
        guard hasProfile(token), let finding = foundConditions[token.slot],
            finding.wake == SocketToken.mark(of: wakeID)
        else { return [] }
        return finding.conditions
    }
}
