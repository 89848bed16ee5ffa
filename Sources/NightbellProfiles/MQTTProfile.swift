/// MQTT's PINGREQ and PINGRESP, the same two bytes each in versions 3.1.1 and 5.
///
/// | what | MQTT 3.1.1 | MQTT 5.0 |
/// | --- | --- | --- |
/// | PINGREQ, PINGRESP | §3.12, §3.13 | §3.12, §3.13 |
/// | flags reserved, must be zero | §2.2.2 | §2.1.3 |
/// | the client sends something within each keep-alive | §3.1.2.10 | §3.1.2.10 |
/// | the server may set it | – | §3.2.2.3.14 |
/// | no PINGRESP "within a reasonable amount of time": close | §3.1.2.10 | §3.1.2.10 |
///
/// As a client: sends PINGREQ, absorbs the PINGRESP to it. As a server: answers PINGREQ with PINGRESP. A
/// PINGRESP without a ping from here answers the owner, and wakes it; one that may be late, because the owner
/// was woken while it was awaited, is absorbed, once.
package struct MQTTProfile: ProtocolProfile {
    private let settings: MQTTSettings
    package private(set) var isAwaitingAnswer = false
    /// The owner was woken while an answer was awaited: it may have read it, or it is still to come.
    private var mayBeLate = false

    init(_ settings: MQTTSettings) {
        self.settings = settings
    }

    private static let pingRequest: UInt8 = 0xC0
    private static let pingResponse: UInt8 = 0xD0
    private static let length = 2

    var longestNoise: Int { Self.length }

    var pinging: Pinging? {
        switch settings.role {
        case .client(let keepAlive):
            Pinging(latest: keepAlive, answerWithin: settings.answerWithin)
        case .server: nil
        }
    }

    mutating func begin(delegating delegated: DelegatedValues) {
        if isAwaitingAnswer { mayBeLate = true }
        isAwaitingAnswer = false
    }

    mutating func inspect(
        _ bytes: Span<UInt8>, _ profileContext: ProfileContext, replies: inout [UInt8]
    ) -> Verdict {
        var reader = Reader(bytes, limit: Self.length)
        do {
            let type = try reader.next(bytes)
            switch (settings.role, type) {
            case (.client, Self.pingResponse):
                guard isAwaitingAnswer || mayBeLate else { return .significant(.unexpectedAnswer) }
            case (.server, Self.pingRequest):
                break
            case (.client, _), (.server, _):
                return .significant(.message)
            }
            // The remaining length. Zero could also be encoded in more bytes, which is not allowed.
            guard try reader.next(bytes) == 0 else { return .significant(.malformed) }
        } catch {
            return reader.verdict(of: error, over: .stream)
        }
        switch settings.role {
        case .client:
            // The first of two is the answer, whichever ping it is to.
            if !isAwaitingAnswer { mayBeLate = false }
            defer { isAwaitingAnswer = false }
            return .noise(length: Self.length, isAwaitingAnswer ? .answer : .filler)
        case .server:
            replies.append(Self.pingResponse)
            replies.append(0)
            return .noise(length: Self.length, .ping)
        }
    }

    mutating func ping(again: Bool, _ profileContext: ProfileContext, into output: inout [UInt8]) -> Bool {
        guard case .client = settings.role, !again else { return false }
        output.append(Self.pingRequest)
        output.append(0)
        isAwaitingAnswer = true
        return true
    }
}

package final class MQTTSettings: Sendable {
    package enum Role: Sendable, Hashable {
        /// `keepAlive`: as sent in CONNECT, or as the server set it in CONNACK. Pings are sent within it.
        case client(keepAlive: Duration)
        case server

        /// - Parameter keepAlive: of a client; nil: the default.
        package init(isServer: Bool, keepAlive: Duration?) {
            self = isServer ? .server : .client(keepAlive: keepAlive ?? MQTTSettings.keepAlive.standard)
        }
    }

    /// 65,535 s is the limit of the protocol's two bytes; the default is that of many clients.
    package static let keepAlive = IntervalLimits(
        shortest: .seconds(5), standard: .seconds(60), longest: .seconds(65_535))

    package let role: Role
    package let answerWithin: Duration

    /// - Parameter answerWithin: nil: 10 s; the protocol gives no number.
    package init(
        role: Role = Role(isServer: false, keepAlive: nil), answerWithin: Duration? = nil
    ) throws(SettingsError) {
        if case .client(let keepAlive) = role { _ = try Self.keepAlive.checked(keepAlive) }
        self.role = role
        self.answerWithin = try .answerTime(answerWithin, standard: .seconds(10))
    }
}
