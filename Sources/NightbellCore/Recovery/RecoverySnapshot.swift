/// The records of the previous supervisor, decoded for recovery.
package struct RecoverySnapshot: Sendable {
    package struct Client: Sendable {
        package var id: ClientID
        package var registration: Registration
        package var registeredAt: Instant
        /// nil: the previous supervisor had begun to forget it.
        package var state: (row: ClientRow, statistics: ClientStatistics)?
        package var tasks: [Task] = []
        package var observations: [Observation] = []
        /// Wakes up to this number are known to have been delivered; later ones may have been decided only.
        package var toldWakeID: UInt64 = 0
        package var execution = Execution.running
        /// The state of its process.
        package var presence = Presence.registered
        /// The size of the state stored for it.
        package var stateBytes = 0
        /// The number of its ownership of its identifier, unless an `Owner` record has it.
        package var ownership: UInt64 = 0

        /// Whether the record says that it was suspended or being frozen.
        package var wasStopped: Bool { state?.row.mayBeFrozen ?? false }

        /// The suspension under way, or else the last one.
        package var epoch: UInt64? { state?.row.lastEpoch }

        /// Whether recovery of this client depends on the conditions of its sockets.
        package var needsConditions: Bool {
            guard let row = state?.row else { return false }
            return row.lastWakeID != toldWakeID || (execution == .running && wasStopped)
        }

        /// Whether a wake that may not have been delivered was for sockets that cannot work over the present
        /// network: the edge adds `pathLost` to the conditions of those.
        package var needsPaths: Bool {
            guard let row = state?.row, row.lastWakeID != toldWakeID else { return false }
            return row.lastWakeReasons.contains(.pathLost)
        }

        /// The previous supervisor read from its connection while it slept, so messages may have been lost.
        package var hasMessageInFlight = false

        package init(id: ClientID, registration: Registration, registeredAt: Instant) {
            self.id = id
            self.registration = registration
            self.registeredAt = registeredAt
        }
    }

    /// The recorded state of a client's process.
    package enum Presence: UInt8, Sendable, Hashable {
        /// It has registered, and is served.
        case registered = 0
        /// There is none.
        case absent = 1
        /// It was launched, and has not been welcomed.
        case launched = 2
        /// It was launched and has said Hello, and may have been welcomed.
        case welcomed = 3
    }

    /// Whether the supervisor's own suspension stops the process at this moment.
    package enum Execution: Sendable, Hashable {
        case running
        /// A freeze was requested, and is not complete.
        case stopping
        case stopped
    }

    package struct Task: Sendable, Equatable {
        package var id: UInt64
        package var request: UInt64
        package var name: String

        package init(id: UInt64, request: UInt64, name: String) {
            self.id = id
            self.request = request
            self.name = name
        }
    }

    package struct Socket: Sendable {
        package var token: SocketToken
        package var owner: ClientID
        package var tag: SocketTag
        package var isStream: Bool
        /// The request that handed it over, and its index there.
        package var request: UInt64
        package var index: UInt16
        package var survives: Bool
        /// It has an address that the machine can lose.
        package var isRouted = false
        /// The mark of the wake that reported its end; 0: none did.
        package var endedInWake: UInt32 = 0
        /// The conditions that hold at this moment.
        package var conditions: Conditions = []
        /// nil: it has no keep-alive profile.
        package var offload: Offload?

        package init(
            token: SocketToken, owner: ClientID, tag: SocketTag, isStream: Bool, request: UInt64,
            index: UInt16, survives: Bool, isRouted: Bool = false
        ) {
            self.survives = survives
            self.isRouted = isRouted
            self.token = token
            self.owner = owner
            self.tag = tag
            self.isStream = isStream
            self.request = request
            self.index = index
        }
    }

    /// The ownership of an identifier.
    package struct Owner: Sendable, Equatable {
        package var identifier: ClientIdentifier
        package var user: UserID
        /// Names the ownership.
        package var number: UInt64
        /// Increases with each identifier given up; 0 while this one is in use. Then its client's record
        /// holds the ownership, unless the client was quit.
        package var givenUp: UInt64
        /// Its user has quit it, and it was not started since.
        package var isQuit: Bool

        package init(
            identifier: ClientIdentifier, user: UserID, number: UInt64, givenUp: UInt64, isQuit: Bool
        ) {
            self.identifier = identifier
            self.isQuit = isQuit
            self.user = user
            self.number = number
            self.givenUp = givenUp
        }
    }

    package var clients: [Client] = []
    package var sockets: [Socket] = []
    package var owners: [Owner] = []
    package var fetches: [Fetch] = []
    package var notifications: [Notification] = []
    /// No supervisor of this machine has given a notification a greater number.
    package var lastNotification: UInt64 = 0
    /// How long the machine has slept by now, since it was started.
    package var machineSlept = Duration.zero
    /// `Supervision.statisticsOfGone`.
    package var gone = ClientStatistics.CounterWords(repeating: 0)
    /// `Supervision.offloadsOfGone`.
    package var offloadsOfGone = OffloadTotals.Words(repeating: 0)
    /// Launches wait until then, because memory is short; nil: it is not, as far as is known.
    package var pressedUntil: Instant?
    /// `MachineState.handledNetwork`.
    package var handledNetwork: UInt64?
    /// The highest generations of all names given so far.
    package var clientGeneration: UInt32 = 0
    package var socketGeneration: UInt32 = 0

    package init() {}
}

/// Why a recovery snapshot cannot be taken over: it was left by another version.
package enum RecoverySnapshotError: Error, Sendable, Hashable {
    case unintelligible(ClientID)
    /// The socket's client is not in the records.
    case withoutOwner(SocketToken)
}

extension SocketToken {
    /// The short form of a wake's number, stored beside a socket; never 0.
    package static func mark(of wakeID: UInt64) -> UInt32 { max(1, UInt32(truncatingIfNeeded: wakeID)) }
}

extension Supervision {
    /// A socket's part of the recovery snapshot.
    ///
    /// - Parameter request: the request that handed it over; 0: it was not the present process's.
    package func snapshot(
        of token: SocketToken, request: UInt64 = 0, index: UInt16 = 0
    ) -> RecoverySnapshot.Socket? {
        guard let owner = owner(of: token), let tag = tag(of: token) else { return nil }
        return RecoverySnapshot.Socket(
            token: token, owner: owner, tag: tag, isStream: isStream(token), request: request, index: index,
            survives: survives(token), isRouted: isRouted(token))
    }
}
