package import NightbellWire
import SwiftProtobuf

/// What a profile can only know from the client, lent for a sleep and taken back after it.
public enum Loan: Sendable, Hashable {
    /// XEP-0198: stanzas received, and stanzas sent.
    case stanzaCounters(received: UInt32, sent: UInt32)
    /// The tag of the IMAP command IDLE that is under way, and how far its renewal has come.
    case idle(tag: String, IdlePhase = .idling)

    public enum IdlePhase: String, Sendable, Hashable, CaseIterable {
        /// The server has said `+`.
        case idling
        /// DONE was sent, its tagged response has not come yet.
        case ending
        /// IDLE was sent once more, the server has not said `+` yet.
        case starting
    }
}

extension Client {
    /// Lends what the profile of a socket needs to know to act in the client's name. It is sent along whenever the
    /// client says that it is ready to be suspended, until it is changed or taken back with nil.
    ///
    /// - Throws: ``NightbellError/Code/invalidToken`` if the socket was released, or has no profile.
    public func lend(_ loan: Loan?, for socket: ParkedSocket) throws(NightbellError) {
        let isKnown = session.core.withLock { $0.state.holdings.lend(loan, for: socket) }
        if !isKnown { throw NightbellError(.invalidToken, "no socket with a profile") }
    }

    /// What was lent for a socket, as it is now: pings that were sent and answered have changed it. Ask for it in the
    /// handler of a wake, before anything is read from the socket.
    ///
    /// - Throws: ``NightbellError/Code/loanLost`` if nobody knows it any more, because the supervisor's worker died
    ///   while it was changed: the connection is to be made anew. ``NightbellError/Code/invalidToken`` as above.
    public func loan(for socket: ParkedSocket) throws(NightbellError) -> Loan? {
        guard let parked = session.core.withLock({ $0.state.holdings.parked(socket) }) else {
            throw NightbellError(.invalidToken, "no socket with a profile")
        }
        if parked.isLoanLost { throw NightbellError(.loanLost, "") }
        return parked.loan
    }
}

extension Holdings {
    func parked(_ socket: ParkedSocket) -> Parked? {
        guard contains(socket), let parked = sockets[socket.id], parked.profile != nil else { return nil }
        return parked
    }

    /// What goes with `ReadyToSuspend`.
    package var lent: [WireLent] {
        guard hasProfiles else { return [] }
        return sockets.values.compactMap { parked in
            guard let token = parked.token, let loan = parked.loan else { return nil }
            return WireLent.with {
                $0.token = token
                switch loan {
                case .stanzaCounters(let received, let sent):
                    $0.stanzaCounters = .with { ($0.received, $0.sent) = (received, sent) }
                case .idle(let tag, let phase):
                    $0.idle = .with { ($0.tag, $0.phase) = (tag, phase.wire) }
                }
            }
        }
    }

    package mutating func take(returned: [WireLent]) {
        for wire in returned {
            guard let socket = socket(of: wire.token) else { continue }
            switch wire.value {
            case .stanzaCounters(let counters):
                noteLoan(.stanzaCounters(received: counters.received, sent: counters.sent), socket.id)
            case .idle(let idle):
                noteLoan(.idle(tag: idle.tag, Loan.IdlePhase(idle.phase)), socket.id)
            case .lost:
                noteLoan(nil, socket.id, isLost: true)
            case nil:
                break
            }
        }
    }
}

extension Loan.IdlePhase {
    fileprivate var wire: WireLent.Idle.Phase {
        switch self {
        case .idling: .idling
        case .ending: .ending
        case .starting: .starting
        }
    }

    fileprivate init(_ wire: WireLent.Idle.Phase) {
        switch wire {
        case .idling, .UNRECOGNIZED: self = .idling
        case .ending: self = .ending
        case .starting: self = .starting
        }
    }
}
