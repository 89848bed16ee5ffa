package import NightbellWire
import SwiftProtobuf

/// State of a protocol that only the client knows, delegated to the supervisor for a sleep.
public enum DelegatedState: Sendable, Hashable {
    /// XEP-0198: stanzas received, and stanzas sent.
    case stanzaCounters(received: UInt32, sent: UInt32)
    /// The tag of the IMAP command IDLE that is under way, and the phase of its renewal. A tag that can be
    /// delegated has 1 to 15 of the characters that IMAP allows in tags: printable ones of ASCII without
    /// space, `(){%*"\\]+`.
    case idle(tag: String, IdlePhase = .idling)

    public enum IdlePhase: String, Sendable, Hashable, CaseIterable {
        /// The server has sent `+`.
        case idling
        /// DONE was sent; its tagged response has not arrived yet.
        case ending
        /// IDLE was sent again; the server has not sent `+` yet.
        case starting
    }
}

extension Client {
    /// Delegates the state that the profile of a socket needs to act for the client. It is sent whenever the
    /// client says that it is ready to be suspended, until it is changed or removed with nil.
    ///
    /// - Throws: ``NightbellError/Code/invalidToken`` if the socket was released, or has no profile.
    ///   ``NightbellError/Code/invalidArgument`` if its profile takes no such state (counters are for XMPP
    ///   with stream management, tags for IMAP), or if a tag cannot be delegated. The earlier state is not
    ///   changed then.
    public func delegate(_ delegatedState: DelegatedState?, for socket: ParkedSocket) throws(NightbellError) {
        let refusal = session.core.withLock { core -> NightbellError? in
            guard let parked = core.state.holdings.parked(socket), let profile = parked.profile else {
                return NightbellError(.invalidToken, "no socket with a profile")
            }
            if let reason = delegatedState?.problem(with: profile) {
                return NightbellError(.invalidArgument, reason)
            }
            core.state.holdings.storeDelegated(delegatedState, socket.id)
            return nil
        }
        if let refusal { throw refusal }
    }

    /// Returns the delegated state of a socket as it is now: pings that were sent and answered have changed
    /// it. Call it in the handler of a wake, before reading from the socket.
    ///
    /// - Throws: ``NightbellError/Code/delegatedStateLost`` if the state is lost because the supervisor's
    ///   worker died while it changed: reconnect. ``NightbellError/Code/invalidToken`` as above.
    public func delegatedState(for socket: ParkedSocket) throws(NightbellError) -> DelegatedState? {
        guard let parked = session.core.withLock({ $0.state.holdings.parked(socket) }) else {
            throw NightbellError(.invalidToken, "no socket with a profile")
        }
        if parked.isDelegatedStateLost { throw NightbellError(.delegatedStateLost, "") }
        return parked.delegatedState
    }
}

extension DelegatedState {
    private static let longestTag = 15

    /// Why it cannot be delegated for a socket with this profile, in words.
    package func problem(with profile: Profile) -> String? {
        switch (self, profile.wire.kind) {
        case (.stanzaCounters, .xmpp(let xmpp)) where xmpp.streamManagement:
            return nil
        case (.idle(let tag, _), .imap):
            let isLegal = tag.utf8.allSatisfy { 0x21...0x7E ~= $0 && !"(){%*\"\\]+".utf8.contains($0) }
            guard isLegal, 1...Self.longestTag ~= tag.utf8.count else {
                return "an IMAP tag has 1 to \(Self.longestTag) printable characters but (){%*\"\\]+"
            }
            return nil
        case (.stanzaCounters, _):
            return "stanza counters are delegated for the profile xmpp with stream management"
        case (.idle, _):
            return "tags are delegated for the profile imap"
        }
    }
}

extension Holdings {
    func parked(_ socket: ParkedSocket) -> Parked? {
        guard contains(socket), let parked = sockets[socket.id], parked.profile != nil else { return nil }
        return parked
    }

    /// The delegated states that accompany `ReadyToSuspend`.
    package var delegated: [WireDelegatedState] {
        guard hasProfiles else { return [] }
        return sockets.values.compactMap { parked in
            guard let token = parked.token, let delegatedState = parked.delegatedState else { return nil }
            return WireDelegatedState.with {
                $0.token = token
                switch delegatedState {
                case .stanzaCounters(let received, let sent):
                    $0.stanzaCounters = .with { ($0.received, $0.sent) = (received, sent) }
                case .idle(let tag, let phase):
                    $0.idle = .with { ($0.tag, $0.phase) = (tag, phase.wire) }
                }
            }
        }
    }

    package mutating func restore(returned: [WireDelegatedState]) {
        for wire in returned {
            guard let socket = socket(of: wire.token) else { continue }
            switch wire.value {
            case .stanzaCounters(let counters):
                storeDelegated(.stanzaCounters(received: counters.received, sent: counters.sent), socket.id)
            case .idle(let idle):
                storeDelegated(.idle(tag: idle.tag, DelegatedState.IdlePhase(idle.phase)), socket.id)
            case .lost:
                storeDelegated(nil, socket.id, isLost: true)
            case nil:
                break
            }
        }
    }
}

extension DelegatedState.IdlePhase {
    fileprivate var wire: WireDelegatedState.Idle.Phase {
        switch self {
        case .idling: .idling
        case .ending: .ending
        case .starting: .starting
        }
    }

    fileprivate init(_ wire: WireDelegatedState.Idle.Phase) {
        switch wire {
        case .idling, .UNRECOGNIZED: self = .idling
        case .ending: self = .ending
        case .starting: self = .starting
        }
    }
}
