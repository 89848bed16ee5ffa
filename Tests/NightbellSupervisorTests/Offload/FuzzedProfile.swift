import NightbellProfiles
import NightbellWire
import SwiftProtobuf

#if canImport(NightbellSupervisor)
    import NightbellSupervisor
#endif

/// A fuzzer's input for keep-alive profiles and delegated state: a byte that selects the case, and a packet.
/// It is not wrapped in a whole message, so that the fuzzer need not find that first.
///
/// | byte, its remainder by 8 | packet |
/// | --- | --- |
/// | 4, 5 | a profile for a stream, or for datagrams; the last bytes are the input |
/// | 6, 7 | the state that is delegated to a profile |
struct FuzzedProfile {
    /// A violated guarantee.
    struct Broken: Error, CustomStringConvertible {
        let description: String
    }

    private let selector: UInt8
    private let packet: [UInt8]

    init?(_ bytes: [UInt8]) {
        guard let selector = bytes.first, selector % 8 >= 4 else { return nil }
        self.selector = selector % 8
        packet = Array(bytes.dropFirst())
    }

    func play() throws {
        switch selector {
        case 4: try playProfile(over: .stream)
        case 5: try playProfile(over: .datagram)
        default: try playDelegated()
        }
    }

    /// A profile is refused with a reason, or it works.
    private func playProfile(over transport: Transport) throws {
        guard let wire = try? WireProfile(serializedBytes: packet) else { return }
        let profile: Profile
        do {
            profile = try Profile(
                ProfileSettings(wire, over: transport, tagKey: 1), over: transport)
        } catch let problem as ProfileProblem {
            return try expect(!problem.message.isEmpty, "a refusal without a reason")
        } catch {
            return try expect(error is SettingsError, "\(error)")
        }
        try work(profile)
    }

    private func work(_ profile: Profile) throws {
        var profile = profile
        profile.begin()
        if let pinging = profile.pinging {
            let isWindow = pinging.earliest <= pinging.latest && pinging.latest > .zero
            try expect(isWindow, "pings between \(pinging.earliest) and \(pinging.latest)")
            try expect(pinging.answerWithin.map { $0 > .zero } ?? true, "answers within nothing")
        }
        try expect(profile.longestNoise <= 16_384, "noise of \(profile.longestNoise) bytes")
        let profileContext = ProfileContext(random: 7, peer: nil)
        var output: [UInt8] = []
        let isSent = profile.ping(again: false, profileContext, into: &output)
        try expect(isSent || output.isEmpty, "what is not sent is written")
        try expect(output.count <= 16_384, "a ping of \(output.count) bytes")
        for length in [0, 1, 64, packet.count] where length <= packet.count {
            output.removeAll()
            let verdict = profile.inspect(
                packet.span.extracting(0..<length), profileContext, replies: &output)
            switch verdict {
            case .noise(let taken, _):
                try expect(taken <= length, "\(taken) of \(length) bytes")
            case .needMore, .significant:
                try expect(output.isEmpty, "a reply to what is no noise")
            }
        }
        _ = profile.end()
    }

    /// Delegated state comes back as it was.
    private func playDelegated() throws {
        guard let wire = try? WireDelegatedState(serializedBytes: packet),
            let delegated = DelegatedValues(wire)
        else { return }
        let again = delegated.wire(token: wire.token)
        try expect(again?.token == wire.token, "another token")
        try expect(
            again.flatMap { DelegatedValues($0) } == delegated,
            "\(delegated) became \(String(describing: again))")
    }

    private func expect(_ condition: Bool, _ what: String) throws {
        if !condition { throw Broken(description: what) }
    }
}
