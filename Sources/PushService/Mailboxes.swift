import DequeModule

/// A client, as the push service knows it: the user that the kernel vouches for, and the identifier that it
/// says.
package struct Recipient: Sendable, Hashable {
    package var user: UInt32
    package var client: String

    package init(user: UInt32, client: String) {
        self.user = user
        self.client = client
    }
}

/// The limits of what waits.
package struct PushLimits: Sendable, Equatable {
    package var bodyBytes = 4_096
    /// Messages that wait at one address, or that were left for one client by its name …
    package var messages = 256
    /// … for all clients of one user …
    package var messagesOfUser = 16_384
    /// … and of all users. One that has few may leave more all the same: others do not take its place.
    package var messagesOfAll = 131_072
    package var messagesOfUserAlways = 256
    /// The addresses of one client …
    package var subscriptions = 64
    /// … of one user …
    package var subscriptionsOfUser = 4_096
    /// … and of all, as for messages.
    package var subscriptionsOfAll = 32_768
    package var subscriptionsOfUserAlways = 64
    /// The longest that a message is kept, in seconds: 28 days.
    package var lifetime: UInt32 = 28 * 86_400
    /// How long a message is kept that is to be handled at once or not at all, in seconds: its client has to be
    /// woken first.
    package var shortestLifetime: UInt32 = 5
    /// Messages in one answer.
    package var messagesAtOnce = 8
    /// Connections, and those of one user.
    package var connections = 2_048
    package var connectionsOfUser = 1_024
    /// The most that the kernel keeps for a process that does not read, in bytes; it doubles that, and takes one
    /// more answer. The largest answer has to fit: 64 addresses with the longest names.
    package var sendBufferBytes = 28_672
    /// How long a connection may leave answers unread that the kernel does not take, in seconds.
    package var unreadTime: Int64 = 10
    /// A connection that asks nothing for so long is ended, in seconds.
    package var idleTime: Int64 = 120

    package init() {}
}

/// How soon a push has to be handled; the numbers are stored.
package enum Urgency: UInt8, Sendable, Comparable, CaseIterable {
    case veryLow = 1
    case low = 2
    case normal = 3
    case high = 4

    package static func < (one: Self, other: Self) -> Bool { one.rawValue < other.rawValue }
}

/// An address at which senders leave messages for a client.
package struct PushSubscription: Sendable, Hashable {
    /// The last part of the address: 192 random bits, as base64url.
    package var token: String
    package var recipient: Recipient
    package var name: String
    /// An uncompressed point of P-256; empty: all that know the address may use it.
    package var applicationServerKey: [UInt8]

    package init(token: String, recipient: Recipient, name: String, applicationServerKey: [UInt8]) {
        self.token = token
        self.recipient = recipient
        self.name = name
        self.applicationServerKey = applicationServerKey
    }
}

/// A message that is to be left.
package struct PushOffer: Sendable {
    package enum Target: Sendable, Hashable {
        /// The last part of an address.
        case address(String)
        /// On this machine, by those that may act for the client.
        case client(Recipient)
    }

    package var target: Target
    package var body: [UInt8]
    package var urgency: Urgency
    /// Empty: it replaces none.
    package var topic: String
    /// In seconds, as its sender asks for.
    package var lifetime: UInt32

    package init(to target: Target, _ body: [UInt8], _ urgency: Urgency, topic: String, lifetime: UInt32) {
        self.target = target
        self.body = body
        self.urgency = urgency
        self.topic = topic
        self.lifetime = lifetime
    }
}

/// A message without its body.
package struct WaitingMessage: Sendable, Hashable {
    package var id: UInt64
    /// The address at which it was left; nil: on this machine, by the client's name.
    package var token: String?
    package var urgency: Urgency
    package var topic: String
    /// In elapsed seconds: see `ElapsedTime`.
    package var expires: Int64
}

/// The messages that wait for each client. It decides, and does no I/O; times are elapsed seconds.
package struct Mailboxes {
    /// Why a message is not taken.
    package enum Refusal: Error, Sendable {
        /// There is no such address.
        case noSubscription
        case tooManyMessages
        case tooManySubscriptions
    }

    /// A client's messages.
    struct Mailbox {
        /// By their ids.
        var messages: [WaitingMessage] = []
        var subscriptions: [String: String] = [:]
        /// Grows whenever the client has to be told.
        var number: UInt64 = 0
        /// The supervisor may know of messages.
        var isTold = false

        var isEmpty: Bool { messages.isEmpty && subscriptions.isEmpty }
    }

    package private(set) var subscriptions: [String: PushSubscription] = [:]
    private var mailboxes: [Recipient: Mailbox] = [:]
    private var messagesByUser: [UInt32: Int] = [:]
    private var messageCount = 0
    private var subscriptionsByUser: [UInt32: Int] = [:]
    /// The last number that was given to a message, or to a report.
    package private(set) var lastNumber: UInt64
    private let limits: PushLimits
    private static let mostForgotten = 64
    /// When to look for messages that are too old. One that is gone may have been the reason.
    package private(set) var expiryDue: Int64?
    /// The clients about which the supervisor has to be told.
    private var isChanged: Set<Recipient> = []
    /// Their order, and some that have been forgotten.
    private var changed: Deque<Recipient> = []

    package init(_ limits: PushLimits, lastNumber: UInt64 = 0) {
        self.limits = limits
        self.lastNumber = lastNumber
    }

    package mutating func nextNumber() -> UInt64 {
        lastNumber += 1
        return lastNumber
    }

    /// Numbers up to this one may have been told.
    mutating func skipNumbers(to number: UInt64) { lastNumber = max(lastNumber, number) }

    // MARK: Restoring

    package mutating func restore(_ subscription: PushSubscription) {
        subscriptions[subscription.token] = subscription
        mailboxes[subscription.recipient, default: Mailbox()].subscriptions[subscription.name] =
            subscription.token
        subscriptionsByUser[subscription.recipient.user, default: 0] += 1
    }

    /// Messages come in the order of their ids.
    package mutating func restore(_ message: WaitingMessage, to recipient: Recipient) {
        mailboxes[recipient, default: Mailbox()].messages.append(message)
        expiryDue = min(expiryDue ?? .max, message.expires)
        count(1, of: recipient.user)
    }

    private mutating func count(_ more: Int, of user: UInt32) {
        messagesByUser[user, default: 0] += more
        messageCount += more
    }

    /// A client may have been told of its messages when nothing was there to give them out: it is told again.
    package mutating func tellAllAgain() {
        for recipient in mailboxes.keys.sorted(by: { ($0.user, $0.client) < ($1.user, $1.client) })
        where mailboxes[recipient]?.messages.isEmpty == false {
            let number = nextNumber()
            mailboxes[recipient]?.number = number
            noteChange(of: recipient)
        }
    }

    /// The number of each report is that of its last message, as it may have been told.
    mutating func numberByMessages() {
        for recipient in mailboxes.keys {
            let last = mailboxes[recipient]?.messages.last?.id
            mailboxes[recipient]?.number = last ?? 0
            mailboxes[recipient]?.isTold = true
        }
    }

    // MARK: Subscriptions

    package func subscription(of recipient: Recipient, named name: String) -> PushSubscription? {
        mailboxes[recipient]?.subscriptions[name].flatMap { subscriptions[$0] }
    }

    /// The tokens of a client's addresses, sorted by name.
    package func tokens(of recipient: Recipient) -> [(name: String, token: String)] {
        (mailboxes[recipient]?.subscriptions ?? [:]).sorted { $0.key < $1.key }
            .map { (name: $0.key, token: $0.value) }
    }

    package mutating func add(_ subscription: PushSubscription) throws(Refusal) {
        let recipient = subscription.recipient
        let ofUser = subscriptionsByUser[recipient.user, default: 0]
        guard mailboxes[recipient]?.subscriptions.count ?? 0 < limits.subscriptions,
            ofUser < limits.subscriptionsOfUser,
            ofUser < limits.subscriptionsOfUserAlways || subscriptions.count < limits.subscriptionsOfAll
        else { throw .tooManySubscriptions }
        restore(subscription)
    }

    /// - Returns: the messages that went with it.
    package mutating func remove(_ subscription: PushSubscription) -> [UInt64] {
        let recipient = subscription.recipient
        guard subscriptions.removeValue(forKey: subscription.token) != nil else { return [] }
        subscriptionsByUser[recipient.user, default: 0] -= 1
        mailboxes[recipient]?.subscriptions[subscription.name] = nil
        let ids = (mailboxes[recipient]?.messages ?? []).filter { $0.token == subscription.token }.map(\.id)
        drop(Set(ids), of: recipient)
        noteChange(of: recipient)
        return ids
    }

    /// One for another sender takes the place of the old one: there is room for it.
    ///
    /// - Returns: the messages that went with the old one.
    package mutating func replace(_ old: PushSubscription, by new: PushSubscription) -> [UInt64] {
        let ids = remove(old)
        restore(new)
        return ids
    }

    // MARK: Messages

    /// Takes a message.
    ///
    /// - Returns: the message, and the ids of those that it replaces.
    package mutating func add(
        _ offer: PushOffer, at now: Int64
    ) throws(Refusal) -> (WaitingMessage, to: Recipient, replaced: [UInt64]) {
        let (recipient, token) = try target(of: offer)
        let topic = offer.topic
        let waiting = mailboxes[recipient]?.messages ?? []
        let replaced =
            topic.isEmpty ? [] : waiting.filter { $0.token == token && $0.topic == topic }.map(\.id)
        // By address: one program of several that share a client, as those of a distributor do, must not keep
        // messages from the others.
        let ofUser = messagesByUser[recipient.user, default: 0] - replaced.count
        guard waiting.count(where: { $0.token == token }) - replaced.count < limits.messages,
            ofUser < limits.messagesOfUser,
            ofUser < limits.messagesOfUserAlways || messageCount - replaced.count < limits.messagesOfAll
        else { throw .tooManyMessages }
        drop(Set(replaced), of: recipient)
        let seconds = max(min(offer.lifetime, limits.lifetime), limits.shortestLifetime)
        let message = WaitingMessage(
            id: nextNumber(), token: token, urgency: offer.urgency, topic: topic,
            expires: now + Int64(seconds))
        mailboxes[recipient, default: Mailbox()].messages.append(message)
        mailboxes[recipient]?.number = message.id
        expiryDue = min(expiryDue ?? .max, message.expires)
        count(1, of: recipient.user)
        noteChange(of: recipient)
        return (message, recipient, replaced)
    }

    private func target(of offer: PushOffer) throws(Refusal) -> (Recipient, String?) {
        switch offer.target {
        case .client(let recipient): return (recipient, nil)
        case .address(let token):
            guard let recipient = subscriptions[token]?.recipient else { throw .noSubscription }
            return (recipient, token)
        }
    }

    /// The oldest messages of a client after `id`.
    package func messages(of recipient: Recipient, after id: UInt64, at now: Int64) -> (
        messages: [WaitingMessage], hasMore: Bool
    ) {
        let waiting = Array(
            (mailboxes[recipient]?.messages ?? []).lazy.filter { $0.id > id && $0.expires > now }
                .prefix(limits.messagesAtOnce + 1))
        return (Array(waiting.prefix(limits.messagesAtOnce)), waiting.count > limits.messagesAtOnce)
    }

    /// - Returns: those that were there.
    package mutating func acknowledge(_ ids: Set<UInt64>, of recipient: Recipient) -> [UInt64] {
        let there = (mailboxes[recipient]?.messages ?? []).map(\.id).filter(ids.contains)
        drop(Set(there), of: recipient)
        return there
    }

    /// - Returns: the messages that are too old.
    package mutating func expire(at now: Int64) -> [UInt64] {
        guard let due = expiryDue, due <= now else { return [] }
        var expired: [UInt64] = []
        for (recipient, mailbox) in mailboxes {
            let old = mailbox.messages.filter { $0.expires <= now }.map(\.id)
            drop(Set(old), of: recipient)
            expired += old
        }
        expiryDue = mailboxes.values.lazy.flatMap(\.messages).map(\.expires).min()
        return expired
    }

    /// Messages that are handled, or too old, whichever client's.
    mutating func drop(_ ids: Set<UInt64>) {
        for (recipient, mailbox) in mailboxes {
            drop(ids.intersection(mailbox.messages.lazy.map(\.id)), of: recipient)
        }
    }

    private mutating func drop(_ ids: Set<UInt64>, of recipient: Recipient) {
        guard !ids.isEmpty else { return }
        mailboxes[recipient]?.messages.removeAll { ids.contains($0.id) }
        count(-ids.count, of: recipient.user)
        noteChange(of: recipient)
    }

    // MARK: Reports

    /// On the messages that wait for a client: the number of the report, and the greatest urgency.
    package func report(on recipient: Recipient) -> (number: UInt64, urgency: Urgency?)? {
        guard let mailbox = mailboxes[recipient], mailbox.number > 0 else { return nil }
        return (mailbox.number, mailbox.messages.lazy.map(\.urgency).max())
    }

    /// A client without messages and without an address is forgotten once the supervisor is told that nothing waits, and at
    /// once if it does not know of messages: others can have any number of clients come and go before it is told.
    package mutating func noteChange(of recipient: Recipient) {
        guard let mailbox = mailboxes[recipient] else { return }
        guard !mailbox.isEmpty || mailbox.isTold else { return forget(recipient) }
        if isChanged.insert(recipient).inserted { changed.append(recipient) }
    }

    private mutating func forget(_ recipient: Recipient) {
        mailboxes[recipient] = nil
        isChanged.remove(recipient)
        guard changed.count > 2 * isChanged.count + Self.mostForgotten else { return }
        var left = isChanged
        changed = Deque(changed.filter { left.remove($0) != nil })
    }

    /// Its connection is lost: it knows nothing any more, and nor does the next one.
    package mutating func supervisorLeft() {
        for (recipient, mailbox) in mailboxes where mailbox.isTold {
            mailboxes[recipient]?.isTold = false
            if mailbox.isEmpty { forget(recipient) }
        }
    }

    /// Another supervisor knows nothing.
    package mutating func noteAll() {
        for recipient in mailboxes.keys where mailboxes[recipient]?.messages.isEmpty == false {
            noteChange(of: recipient)
        }
    }

    /// Of the clients about which the supervisor has to be told, the one that waits for longest.
    package mutating func takeChanged() -> Recipient? {
        while let next = changed.popFirst() {
            if isChanged.remove(next) != nil { return next }
        }
        return nil
    }

    /// The supervisor is told whether messages wait for a client.
    package mutating func noteTold(_ recipient: Recipient) {
        guard let mailbox = mailboxes[recipient] else { return }
        mailboxes[recipient]?.isTold = !mailbox.messages.isEmpty
        if mailbox.isEmpty { forget(recipient) }
    }
}
