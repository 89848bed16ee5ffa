import EventHandlers
import EventLoop
import FoundationEssentials
import Identifiers
import LinuxSystem
import NightbellWire
import SwiftProtobuf

/// A process that uses the service: a client, or a program that leaves a message for one.
final class PushConnection {
    private let service: PushService
    private let socket: SeqPacketSocket
    let user: UInt32
    private var input: DescriptorWatch?
    private var output: DescriptorWatch?
    private(set) var hasEnded = false
    /// When it has asked last, by `BootClock`.
    private(set) var askedAt = BootClock.now()
    /// Answers that are not sent yet: nothing is, before it is stored.
    private var answers: [WirePushAnswer] = []
    /// So many of them are about what is stored.
    private var kept = 0
    /// A request for messages, which is answered when those of this turn are stored.
    private var take: (number: UInt64, recipient: Recipient)?
    /// One of the answers is large: nothing else is read before it is sent.
    private var isLarge = false
    /// The kernel takes no more for a process that does not read.
    private(set) var isBlocked = false
    /// The last message that was given out, of each client.
    private var given: [Recipient: UInt64] = [:]

    private static let mostTurnRequests = 16
    private static let longestName = 512
    private static let mostAcknowledged = 1_024
    /// One connection serves few clients.
    private static let mostRecipients = 64

    init(
        _ loop: HandlerLoop, _ service: PushService, _ socket: consuming SeqPacketSocket
    ) throws {
        self.service = service
        self.user = try socket.peerCredentials().uid
        self.socket = socket
        let rawValue = self.socket.rawValue
        // Without it the kernel's own limit holds: two hundred kilobytes for each that does not read.
        SocketOption.sendBuffer.set(CInt(service.limits.sendBufferBytes), on: rawValue)
        input = try DescriptorWatch(loop, rawValue, .read) { [unowned self] _ in receive() }
        output = try DescriptorWatch(loop, rawValue, .write, isArmed: false) { [unowned self] _ in
            isBlocked = false
            service.touch(self)
        }
    }

    // MARK: Requests

    private func receive() {
        do throws(SystemError) {
            while !hasEnded, mayRead, service.mayRead(of: user) {
                switch try socket.receive(into: &service.buffer) {
                case .wouldBlock: return
                case .end: return end()
                case .packet(_, let isTruncated, _):
                    guard !isTruncated,
                        let request = try? WirePushRequest(serializedBytes: service.buffer.bytes),
                        request.number != 0, request.body != nil
                    else { return end() }
                    answer(request)
                }
            }
        } catch {
            end()
        }
    }

    private var mayRead: Bool { !isBlocked && !isLarge && answers.count < Self.mostTurnRequests }

    /// Whether it asks for nothing, or does not read the answers.
    func isOverdue(at now: Int64) -> Bool {
        let seconds = isBlocked ? service.limits.unreadTime : service.limits.idleTime
        return now - askedAt > seconds * 1_000_000_000
    }

    func end() {
        hasEnded = true
        service.touch(self)
    }

    private func answer(_ request: WirePushRequest) {
        askedAt = BootClock.now()
        service.touch(self)
        do throws(Refusal) {
            if let body = try body(of: request) { answers.append(Self.answer(request.number, body)) }
        } catch {
            answers.append(Self.answer(request.number, error.body))
        }
    }

    private static func answer(_ number: UInt64, _ body: WirePushAnswer.OneOf_Body) -> WirePushAnswer {
        .with {
            $0.number = number
            $0.body = body
        }
    }

    private struct Refusal: Error {
        let reason: WirePushAnswer.Reason
        let message: String

        static let notStored = Refusal(.failed, "it cannot be stored")
        static let unreadable = Refusal(.failed, "the store cannot be read")

        init(_ reason: WirePushAnswer.Reason, _ message: String) {
            self.reason = reason
            self.message = message
        }

        var body: WirePushAnswer.OneOf_Body {
            .refusal(
                .with {
                    $0.reason = reason
                    $0.message = message
                })
        }
    }

    /// - Returns: nil: it is answered at the end of the turn.
    private func body(of request: WirePushRequest) throws(Refusal) -> WirePushAnswer.OneOf_Body? {
        let recipient = try recipient(of: request)
        guard !service.isStale else { throw .unreadable }
        switch request.body {
        case .subscribe(let message): return try subscribe(message, recipient)
        case .unsubscribe(let message):
            guard service.mayRemove else { throw .notStored }
            service.unsubscribe(recipient, message.name)
            return .done(.init())
        case .take:
            guard given[recipient] != nil || given.count < Self.mostRecipients else {
                throw Refusal(
                    .tooMany, "a connection takes the messages of \(Self.mostRecipients) clients at most")
            }
            take = (request.number, recipient)
            isLarge = true
            return nil
        case .acknowledge(let message):
            guard message.ids.count <= Self.mostAcknowledged else {
                throw Refusal(.invalid, "at most \(Self.mostAcknowledged) messages")
            }
            // Messages that cannot be removed now are not given out again, and removed later.
            service.acknowledge(Set(message.ids), of: recipient)
            guard service.mayRemove else { throw .notStored }
            return .done(.init())
        case .send(let message): return try send(message, recipient)
        case .list:
            isLarge = true
            let addresses = service.addresses(of: recipient)
            return .subscriptions(
                .with {
                    $0.names = addresses.map(\.name)
                    $0.endpoints = addresses.map(\.address)
                })
        case nil: throw Refusal(.invalid, "no request")
        }
    }

    private func recipient(of request: WirePushRequest) throws(Refusal) -> Recipient {
        let isNamed = request.uid != 0 && request.uid != user
        guard !isNamed || user == 0 else {
            throw Refusal(.forbidden, "only root may use the messages of another user's clients")
        }
        guard IdentifierRule.permits(request.client) else {
            throw Refusal(.invalid, "a client has an identifier of \(IdentifierRule.text)")
        }
        return Recipient(user: isNamed ? request.uid : user, client: request.client)
    }

    private func subscribe(
        _ message: WirePushRequest.Subscribe, _ recipient: Recipient
    ) throws(Refusal) -> WirePushAnswer.OneOf_Body {
        guard message.name.utf8.count <= Self.longestName else {
            throw Refusal(.invalid, "a name has at most \(Self.longestName) bytes")
        }
        // The store would cut it at a zero byte, and take it for another one.
        guard message.name.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F }) else {
            throw Refusal(.invalid, "a name has no control characters")
        }
        let key = Array(message.applicationServerKey)
        guard key.isEmpty || service.isKey(key) else {
            throw Refusal(.invalid, "the key is no uncompressed point of P-256")
        }
        if let endpoint = service.address(of: recipient, message.name, key) {
            return .subscription(.with { $0.endpoint = endpoint })
        }
        guard service.mayAdd else { throw .notStored }
        do throws(Mailboxes.Refusal) {
            let endpoint = try service.subscribe(recipient, message.name, key)
            return .subscription(.with { $0.endpoint = endpoint })
        } catch {
            throw Refusal(.tooMany, "the client or its user has as many addresses as it may")
        }
    }

    private func send(
        _ message: WirePushRequest.Send, _ recipient: Recipient
    ) throws(Refusal) -> WirePushAnswer.OneOf_Body {
        let body = Array(message.body)
        guard body.count <= service.limits.bodyBytes else {
            throw Refusal(.invalid, "a message has at most \(service.limits.bodyBytes) bytes")
        }
        guard PushTopic.isValid(message.topic) else {
            throw Refusal(.invalid, "a topic has at most 32 characters of base64url")
        }
        guard service.mayAdd else { throw .notStored }
        do throws(Mailboxes.Refusal) {
            let id = try service.add(
                PushOffer(
                    to: .client(recipient), body, Urgency(message.urgency), topic: message.topic,
                    lifetime: message.lifetimeS))
            return .accepted(.with { $0.id = id.id })
        } catch {
            throw Refusal(.tooMany, "as many messages wait for the client, or its user, as may")
        }
    }

    // MARK: Answers

    /// The requests of this turn could not be stored.
    func fail() {
        for index in answers.indices.dropFirst(kept) {
            answers[index].body = Refusal.notStored.body
        }
    }

    /// Sends what there is to say, as far as the process reads. Call it when the changes are stored.
    func flush() {
        guard !hasEnded else { return }
        if let (number, recipient) = take {
            answers.append(Self.answer(number, messages(of: recipient)))
            take = nil
        }
        var sent = 0
        do {
            while !isBlocked, sent < answers.count {
                let bytes: [UInt8] = try answers[sent].serializedBytes()
                if try socket.send(bytes) { sent += 1 } else { isBlocked = true }
            }
            answers.removeFirst(sent)
            kept = answers.count
            if answers.isEmpty { isLarge = false }
            guard !isBlocked || service.mayWait(self) else { return hasEnded = true }
            try output?.setArmed(isBlocked)
            // A process that does not read is not read from.
            try input?.setArmed(mayRead)
        } catch {
            hasEnded = true
        }
    }

    private func messages(of recipient: Recipient) -> WirePushAnswer.OneOf_Body {
        guard !service.isStale else { return Refusal.unreadable.body }
        let after = given[recipient] ?? 0
        do throws(PushError) {
            let (messages, hasMore) = try service.messages(of: recipient, after: after)
            given[recipient] = messages.last?.id ?? after
            return .messages(
                .with {
                    $0.messages = messages
                    $0.hasMore_p = hasMore
                })
        } catch {
            return Refusal(.failed, "\(error)").body
        }
    }
}

package enum PushName {
    /// 192 random bits, as base64url: it cannot be guessed, and tells nothing.
    package static func random() -> String {
        let digits = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
        var generator = SystemRandomNumberGenerator()
        let characters = (0..<32).map { _ in digits[Int(generator.next() & 63 as UInt64)] }
        return String(decoding: characters, as: UTF8.self)
    }
}

package enum PushTopic {
    /// At most 32 characters of base64url (RFC 8030, section 5.4); empty: there is none.
    package static func isValid(_ text: String) -> Bool {
        text.utf8.count <= 32
            && text.utf8.allSatisfy { byte in
                (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20)
                    || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) || byte == UInt8(ascii: "-")
                    || byte == UInt8(ascii: "_")
            }
    }
}

extension Urgency {
    /// Normal, if it is not said.
    init(_ wire: WirePushUrgency) {
        switch wire {
        case .veryLow: self = .veryLow
        case .low: self = .low
        case .normal, .unspecified, .UNRECOGNIZED: self = .normal
        case .high: self = .high
        }
    }

    var wire: WirePushUrgency {
        switch self {
        case .veryLow: .veryLow
        case .low: .low
        case .normal: .normal
        case .high: .high
        }
    }
}
