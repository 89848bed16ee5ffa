extension RecoverySnapshot {
    /// The keep-alive state of a socket with a profile, as it lies in the shared memory that outlives the
    /// supervisor: fixed types in this order, without gaps. Eight bytes are stored at a time, and valid
    /// without the others.
    package struct Offload: Sendable, Equatable, BitwiseCopyable {
        private struct Flags: OptionSet, BitwiseCopyable {
            let rawValue: UInt8

            static let wasActive = Flags(rawValue: 1)
            static let wasAwaitingAnswer = Flags(rawValue: 2)

            mutating func set(_ flag: Flags, to isSet: Bool) {
                if isSet { insert(flag) } else { remove(flag) }
            }
        }

        private var flags: Flags = []
        /// Conditions of the owner's last wake that the kernel does not report, and the mark of that wake.
        package var found: Conditions = []
        /// Its number in `OffloadTotals`.
        package var profile: UInt8 = 0
        private var unused: UInt8 = 0
        package var foundInWake: UInt32 = 0
        /// In elapsed time.
        package var lastPing: Instant
        private var sent: UInt32 = 0
        private var confirmed: UInt32 = 0
        private var answered: UInt32 = 0
        private var absorbed: UInt32 = 0
        private var wakesAvoided: UInt64 = 0

        /// Nothing has happened yet.
        package init(at now: Instant) {
            lastPing = now
        }

        /// The owner slept, and had confirmed that the socket may be used.
        package var wasActive: Bool {
            get { flags.contains(.wasActive) }
            set { flags.set(.wasActive, to: newValue) }
        }

        package var wasAwaitingAnswer: Bool {
            get { flags.contains(.wasAwaitingAnswer) }
            set { flags.set(.wasAwaitingAnswer, to: newValue) }
        }

        package var counters: OffloadCounters {
            get {
                var counters = OffloadCounters()
                (counters.sent, counters.confirmed) = (UInt64(sent), UInt64(confirmed))
                (counters.answered, counters.absorbed) = (UInt64(answered), UInt64(absorbed))
                counters.wakesAvoided = wakesAvoided
                return counters
            }
            set {
                (sent, confirmed) = (UInt32(clamping: newValue.sent), UInt32(clamping: newValue.confirmed))
                answered = UInt32(clamping: newValue.answered)
                absorbed = UInt32(clamping: newValue.absorbed)
                wakesAvoided = newValue.wakesAvoided
            }
        }
    }
}

extension Supervision {
    /// The record that another supervisor needs to continue a socket's pings.
    package func offloadSnapshot(of token: SocketToken) -> RecoverySnapshot.Offload? {
        guard hasProfile(token) else { return nil }
        let offload = pings[token.slot]
        var snapshot = RecoverySnapshot.Offload(at: offload.lastPing)
        snapshot.profile = offload.profile
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
        addOffload(token, old.profile, client, elapsed: old.lastPing)
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
