import Keeper
import LinuxSystem
import NightbellCore
import NightbellProfiles
import NightbellWire
import SwiftProtobuf

extension RecordKey {
    /// The profile of a socket, encoded as on the wire, stored beside the socket's own record.
    static func offload(_ token: SocketToken) -> RecordKey {
        RecordKey(.offloads, id: token.rawValue)
    }

    static func formerOptions(_ token: SocketToken) -> RecordKey {
        RecordKey(.formerOptions, id: token.rawValue)
    }
}

/// A socket's original kernel keep-alives, stored while others are set.
enum FormerOptionsBytes {
    static func bytes(of former: TCPKeepAlive) -> [UInt8] {
        StoredKeepAlive.with {
            $0.isOn = former.isOn
            $0.idleSeconds = former.idleSeconds
            $0.intervalSeconds = former.intervalSeconds
            $0.probes = former.probes
            $0.userTimeoutMs = former.userTimeoutMilliseconds
        }.record
    }

    static func former(_ key: RecordKey, _ record: [UInt8]) throws(RecordError) -> TCPKeepAlive {
        let stored = try StoredKeepAlive(key, record)
        return TCPKeepAlive(
            isOn: stored.isOn, idleSeconds: stored.idleSeconds, intervalSeconds: stored.intervalSeconds,
            probes: stored.probes, userTimeoutMilliseconds: stored.userTimeoutMs)
    }
}

/// State that changes with every ping is in the shared state, by the slot of the socket.
extension Journal {
    private enum Wide {
        static let token = 0
        /// `RecoverySnapshot.Offload`.
        static let progress = 1
        static let random = 6
        static let delegated = 8
    }

    func storeOffload(_ token: SocketToken, _ profile: [UInt8], at now: Instant) {
        link.put(.offload(token), profile)
        let slot = Int(token.slot)
        for index in 0..<SharedStateTable.wideCount { sharedState.setWide(slot, index, to: 0) }
        store(RecoverySnapshot.Offload(at: now), of: token)
        sharedState.setWide(slot, Wide.token, to: token.rawValue)
    }

    func forgetOffload(_ token: SocketToken) {
        link.remove(.offload(token))
        link.remove(.formerOptions(token))
        sharedState.setWide(Int(token.slot), Wide.token, to: 0)
    }

    func store(_ offload: RecoverySnapshot.Offload, of token: SocketToken) {
        sharedState.setWide(Int(token.slot), from: Wide.progress, to: offload.words)
    }

    func storeFormerOptions(_ former: TCPKeepAlive?, of token: SocketToken) {
        guard let former else { return link.remove(.formerOptions(token)) }
        link.put(.formerOptions(token), FormerOptionsBytes.bytes(of: former))
    }

    func notePing(_ random: UInt128, of token: SocketToken) {
        sharedState.setWide(Int(token.slot), Wide.random, to: UInt64(truncatingIfNeeded: random))
        sharedState.setWide(Int(token.slot), Wide.random + 1, to: UInt64(truncatingIfNeeded: random >> 64))
    }

    func storeDelegated(_ delegated: DelegatedValues, of token: SocketToken) {
        let words = delegated.words
        for index in words.indices {
            sharedState.setWide(Int(token.slot), Wide.delegated + index, to: words[index])
        }
    }

    /// Delegated state is about to change, together with what the peer has been sent.
    func invalidateDelegated(_ token: SocketToken) {
        let slot = Int(token.slot)
        sharedState.setWide(slot, Wide.delegated, to: sharedState.wide(slot, Wide.delegated) | Self.doubt)
    }

    private static let doubt: UInt64 = 1 << 63

    // MARK: Recovery

    func offloadProgress(_ token: SocketToken, at now: Instant) -> RecoverySnapshot.Offload {
        let slot = Int(token.slot)
        guard sharedState.wide(slot, Wide.token) == token.rawValue else {
            return RecoverySnapshot.Offload(at: now)
        }
        return RecoverySnapshot.Offload(
            InlineArray { index in sharedState.wide(slot, Wide.progress + index) })
    }

    func pingRandom(_ token: SocketToken) -> UInt128 {
        let slot = Int(token.slot)
        return UInt128(sharedState.wide(slot, Wide.random + 1)) << 64
            | UInt128(sharedState.wide(slot, Wide.random))
    }

    /// nil: it was lost.
    func delegated(_ token: SocketToken) -> DelegatedValues? {
        let slot = Int(token.slot)
        guard sharedState.wide(slot, Wide.delegated) & Self.doubt == 0 else { return nil }
        return DelegatedValues(
            words: InlineArray { index in sharedState.wide(slot, Wide.delegated + index) })
    }
}

// The two have the same size: see `SharedStateSizeTests`.
extension RecoverySnapshot.Offload {
    fileprivate init(_ words: InlineArray<5, UInt64>) {
        self = unsafe unsafeBitCast(words, to: Self.self)
    }

    fileprivate var words: InlineArray<5, UInt64> {
        unsafe unsafeBitCast(self, to: InlineArray<5, UInt64>.self)
    }
}

extension DelegatedValues {
    fileprivate var words: InlineArray<3, UInt64> {
        switch self {
        case .nothing:
            return [0, 0, 0]
        case .stanzaCounters(let received, let sent):
            return [1, UInt64(received), UInt64(sent)]
        case .idle(let idle):
            var characters: UInt128 = 0
            for byte in idle.tag.text.utf8.reversed() { characters = characters << 8 | UInt128(byte) }
            return [
                2 | UInt64(idle.phase.rawValue) << 8, UInt64(truncatingIfNeeded: characters),
                UInt64(truncatingIfNeeded: characters >> 64),
            ]
        }
    }

    fileprivate init(words: InlineArray<3, UInt64>) {
        self = .nothing
        switch words[0] & 0xFF {
        case 1:
            self = .stanzaCounters(
                received: UInt32(truncatingIfNeeded: words[1]), sent: UInt32(truncatingIfNeeded: words[2]))
        case 2:
            var text = ""
            for word in [words[1], words[2]] {
                for shift in stride(from: UInt64(0), to: 64, by: 8) {
                    let byte = UInt8(truncatingIfNeeded: word >> shift)
                    if byte != 0 { text.unicodeScalars.append(Unicode.Scalar(byte)) }
                }
            }
            guard let tag = Idle.Tag(text), let phase = Idle.Phase(rawValue: UInt8(words[0] >> 8 & 0xFF))
            else { return }
            self = .idle(Idle(tag: tag, phase: phase))
        default:
            break
        }
    }
}
