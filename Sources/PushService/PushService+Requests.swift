import Crypto
import LinuxSystem
import NightbellWire
import SwiftProtobuf

/// Requests of clients and senders, which are answered once the turn is stored.
extension PushService {
    func isKey(_ bytes: [UInt8]) -> Bool { (try? P256.Signing.PublicKey(x963Representation: bytes)) != nil }

    /// The address that a client has already.
    func address(of recipient: Recipient, _ name: String, _ key: [UInt8]) -> String? {
        // Waiting messages are reported once more: the client may have observed pushes only just now.
        mailboxes.noteChange(of: recipient)
        guard let subscription = mailboxes.subscription(of: recipient, named: name),
            subscription.applicationServerKey == key
        else { return nil }
        return address(subscription.token)
    }

    /// - Returns: the new address.
    func subscribe(
        _ recipient: Recipient, _ name: String, _ key: [UInt8]
    ) throws(Mailboxes.Refusal) -> String {
        let subscription = PushSubscription(
            token: PushName.random(), recipient: recipient, name: name, applicationServerKey: key)
        if let old = mailboxes.subscription(of: recipient, named: name) {
            _ = mailboxes.replace(old, by: subscription)
            store.remove(old)
            door.withdraw(old.token)
        } else {
            try mailboxes.add(subscription)
        }
        store.add(subscription)
        door.publish(subscription.token, key)
        return address(subscription.token)
    }

    private func address(_ token: String) -> String { configuration.publicURL + "/push/" + token }

    /// Sorted by name.
    func addresses(of recipient: Recipient) -> [(name: String, address: String)] {
        // As for `address`.
        mailboxes.noteChange(of: recipient)
        return mailboxes.tokens(of: recipient).map { (name: $0.name, address: address($0.token)) }
    }

    func unsubscribe(_ recipient: Recipient, _ name: String) {
        guard let subscription = mailboxes.subscription(of: recipient, named: name) else { return }
        _ = mailboxes.remove(subscription)
        store.remove(subscription)
        door.withdraw(subscription.token)
    }

    func acknowledge(_ ids: Set<UInt64>, of recipient: Recipient) {
        store.discard(mailboxes.acknowledge(ids, of: recipient))
    }

    /// Call it when all of them are stored.
    func messages(
        of recipient: Recipient, after id: UInt64
    ) throws(PushError) -> (messages: [WirePushAnswer.Messages.Message], hasMore: Bool) {
        let (waiting, hasMore) = mailboxes.messages(of: recipient, after: id, at: elapsedSeconds)
        let contents = try store.contents(of: waiting.map(\.id))
        let messages = waiting.compactMap { message -> WirePushAnswer.Messages.Message? in
            guard let content = contents[message.id] else { return nil }
            return .with {
                $0.id = message.id
                $0.subscription = message.token.flatMap { mailboxes.subscriptions[$0]?.name } ?? ""
                $0.body = content.body.asField
                $0.urgency = message.urgency.wire
                $0.topic = message.topic
                $0.acceptedUnixMs = content.accepted
            }
        }
        return (messages, hasMore)
    }

    /// - Returns: the id of the message, and the lifetime that its sender is told, in seconds.
    func add(_ offer: PushOffer) throws(Mailboxes.Refusal) -> (id: UInt64, lifetime: Int64) {
        let (message, recipient, replaced) = try mailboxes.add(offer, at: elapsedSeconds)
        store.remove(replaced)
        store.add(message, to: recipient, offer.body, accepted: WallClock.now() / 1_000_000)
        return (message.id, Int64(min(offer.lifetime, limits.lifetime)))
    }
}
