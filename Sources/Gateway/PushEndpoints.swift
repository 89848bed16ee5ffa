import HTTPTypes
import Hummingbird
import LinuxSystem
import NIOCore
import Presentation
import PushService

/// The addresses at which senders leave messages for clients (Web Push, RFC 8030).
struct PushEndpoints: Sendable {
    let door: PushDoor
    let limits: Limits
    /// The address by which senders reach it; nil: it does not listen yet.
    let audience: @Sendable () -> Origin?

    /// A sender is asked to wait so long, in seconds.
    private static let retryAfter = "60"

    /// Applications ask whether an address is one of UnifiedPush.
    func discover(_ context: Context) throws(APIError) -> Response {
        _ = try key(context)
        return .json(["unifiedpush": ["version": .integer(1)]])
    }

    func leave(_ request: Request, _ context: Context) async throws -> Response {
        let key = try key(context)
        if !key.isEmpty { try check(request, key) }
        return try await leave(request, at: .address(context.parameters.get("token") ?? ""))
    }

    /// - Parameter target: the sender may leave a message there.
    func leave(_ request: Request, at target: PushOffer.Target) async throws -> Response {
        guard let lifetime = request.headers[.ttl].flatMap(Self.seconds) else {
            throw APIError.invalid("TTL: expected a number of seconds")
        }
        let urgency = try Self.urgency(request.headers[.urgency])
        let topic = request.headers[.topic] ?? ""
        guard PushTopic.isValid(topic), !topic.isEmpty || request.headers[.topic] == nil else {
            throw APIError.invalid("Topic: expected 1 to 32 characters out of A-Z a-z 0-9 - _")
        }
        var request = request
        let body = try await request.collectBody(upTo: limits.bodyBytes)
        let offer = PushOffer(to: target, Array(buffer: body), urgency, topic: topic, lifetime: lifetime)
        switch await door.leave(offer) {
        case .accepted(let seconds):
            // Any sender would see from a number how many messages come for all.
            return Response(
                status: .created,
                headers: [.location: "/push-message/\(PushName.random())", .ttl: "\(seconds)"])
        case .refused(.noSubscription): throw APIError.notFound
        case .refused:
            throw APIError(
                status: .tooManyRequests, code: "TOO_MANY_MESSAGES",
                message: "as many messages wait at this address, or for its user, or for all, as may",
                headers: [.retryAfter: Self.retryAfter])
        case .failed: throw APIError.pushUnavailable
        }
    }

    private func key(_ context: Context) throws(APIError) -> [UInt8] {
        switch door.look(for: context.parameters.get("token") ?? "") {
        case .key(let key): return key
        case .nothing: throw .notFound
        case .unknown:
            // Whatever the address is.
            var error = APIError.pushUnavailable
            error.isForStrangers = true
            throw error
        }
    }

    private func check(_ request: Request, _ key: [UInt8]) throws(APIError) {
        guard let text = request.headers[.authorization] else {
            throw APIError(
                status: .unauthorized, code: "UNAUTHENTICATED",
                message: "this address is for one sender only",
                headers: [.wwwAuthenticate: "vapid"], isForStrangers: true)
        }
        guard let proof = VAPID(authorization: text), proof.key == key, let audience = audience(),
            proof.isValid(for: audience, at: Double(WallClock.now()) / 1e9)
        else {
            throw APIError(
                status: .forbidden, code: "WRONG_SENDER",
                message:
                    "the proof is not that of this address's sender, is for another service, or is too old",
                isForStrangers: true)
        }
    }

    /// nil: it is no number.
    private static func seconds(_ text: String) -> UInt32? {
        guard !text.isEmpty, text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) })
        else { return nil }
        return UInt32(text) ?? .max
    }

    private static func urgency(_ text: String?) throws(APIError) -> Urgency {
        switch text?.lowercased() {
        case nil, "normal": return .normal
        case "very-low": return .veryLow
        case "low": return .low
        case "high": return .high
        default: throw .invalid("Urgency: expected very-low, low, normal or high")
        }
    }
}

extension APIError {
    static let pushUnavailable = APIError(
        status: .serviceUnavailable, code: "PUSH_UNAVAILABLE", message: "the push service is not ready",
        headers: [.retryAfter: "1"])
}

extension HTTPField.Name {
    fileprivate static let ttl = HTTPField.Name.known("TTL")
    fileprivate static let urgency = HTTPField.Name.known("Urgency")
    fileprivate static let topic = HTTPField.Name.known("Topic")
}
