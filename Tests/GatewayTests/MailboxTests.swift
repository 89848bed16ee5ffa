import PushService
import Testing

/// The messages that wait for clients, without I/O: the times are seconds.
@Suite("Mailboxes")
struct MailboxTests {
    private let reader = Recipient(user: 1_000, client: "org.example.reader")
    private let other = Recipient(user: 1_000, client: "org.example.other")

    private func limits(_ change: (inout PushLimits) -> Void) -> PushLimits {
        var limits = PushLimits()
        change(&limits)
        return limits
    }

    private func mailboxes(_ limits: PushLimits = PushLimits()) throws -> Mailboxes {
        var boxes = Mailboxes(limits)
        for (token, recipient) in [("t1", reader), ("t2", other)] {
            try boxes.add(
                PushSubscription(token: token, recipient: recipient, name: "", applicationServerKey: []))
        }
        return boxes
    }

    @discardableResult
    private func leave(
        _ boxes: inout Mailboxes, _ token: String = "t1", _ urgency: Urgency = .normal, topic: String = "",
        lifetime: UInt32 = 600, at now: Int64 = 0
    ) throws(Mailboxes.Refusal) -> UInt64 {
        try boxes.add(
            PushOffer(to: .address(token), [], urgency, topic: topic, lifetime: lifetime), at: now
        ).0.id
    }

    private func ids(_ boxes: Mailboxes, _ recipient: Recipient, after id: UInt64 = 0) -> [UInt64] {
        boxes.messages(of: recipient, after: id, at: 0).messages.map(\.id)
    }

    @Test("A report has the last number and the greatest urgency, and none when nothing waits")
    func reports() throws {
        var boxes = try mailboxes()
        #expect(boxes.report(on: reader) == nil)
        let first = try leave(&boxes, "t1", .high)
        let second = try leave(&boxes, "t1", .low)
        #expect(boxes.report(on: reader)?.number == second)
        #expect(boxes.report(on: reader)?.urgency == .high)
        #expect(boxes.takeChanged() == reader && boxes.takeChanged() == nil)
        #expect(boxes.acknowledge([first], of: reader) == [first])
        #expect(boxes.report(on: reader)?.urgency == .low && boxes.takeChanged() == reader)
        #expect(boxes.acknowledge([first, second, 99], of: reader) == [second])
        #expect(boxes.report(on: reader)?.number == second && boxes.report(on: reader)?.urgency == nil)
        // Another client cannot acknowledge them.
        let third = try leave(&boxes)
        #expect(boxes.acknowledge([third], of: other).isEmpty && ids(boxes, reader) == [third])
    }

    @Test("The client that waits for longest is told of first, and those that come back are last")
    func order() throws {
        var boxes = try mailboxes()
        try leave(&boxes, "t1")
        try leave(&boxes, "t2")
        #expect(boxes.takeChanged() == reader)
        boxes.noteChange(of: reader)
        #expect(boxes.takeChanged() == other && boxes.takeChanged() == reader && boxes.takeChanged() == nil)
    }

    @Test("A client without an address and without messages is forgotten")
    func forgotten() throws {
        var boxes = try mailboxes()
        let subscription = try #require(boxes.subscription(of: reader, named: ""))
        let id = try leave(&boxes)
        #expect(boxes.takeChanged() == reader)
        boxes.noteTold(reader)
        // Not before the supervisor is told.
        #expect(boxes.remove(subscription) == [id])
        #expect(boxes.takeChanged() == reader && boxes.report(on: reader)?.number == id)
        boxes.noteTold(reader)
        boxes.noteChange(of: reader)
        #expect(boxes.takeChanged() == nil && boxes.report(on: reader) == nil)
    }

    @Test(
        "A client without an address and without messages is forgotten at once if no supervisor knows of it")
    func forgottenUntold() throws {
        var boxes = Mailboxes(PushLimits())
        let all = (0..<100_000).map { Recipient(user: 1_000, client: "org.example.c\($0)") }
        func come(_ recipient: Recipient) throws -> (PushSubscription, UInt64) {
            let subscription = PushSubscription(
                token: recipient.client, recipient: recipient, name: "", applicationServerKey: [])
            try boxes.add(subscription)
            let (message, _, _) = try boxes.add(
                PushOffer(to: .client(recipient), [], .normal, topic: "", lifetime: 60), at: 0)
            return (subscription, message.id)
        }
        func go(_ recipient: Recipient, _ left: (PushSubscription, UInt64)) {
            _ = boxes.remove(left.0)
            _ = boxes.acknowledge([left.1], of: recipient)
        }
        for recipient in all { go(recipient, try come(recipient)) }
        let kept = all.count { boxes.report(on: $0) != nil }
        #expect(kept == 0 && boxes.takeChanged() == nil)
        // One that comes back is told of once.
        go(all[0], try come(all[0]))
        let message = try boxes.add(
            PushOffer(to: .client(all[1]), [], .normal, topic: "", lifetime: 60), at: 0)
        let left = try come(all[0])
        for recipient in all[2..<200] { go(recipient, try come(recipient)) }
        #expect(Set([boxes.takeChanged(), boxes.takeChanged()]) == Set(all[...1]))
        #expect(boxes.takeChanged() == nil)
        // One that the supervisor knows of is forgotten when it has left.
        boxes.noteTold(all[0])
        go(all[0], left)
        #expect(boxes.report(on: all[0]) != nil)
        boxes.supervisorLeft()
        #expect(boxes.report(on: all[0]) == nil && boxes.takeChanged() == nil)
        boxes.noteAll()
        #expect(boxes.takeChanged() == message.to && boxes.takeChanged() == nil)
    }

    @Test("A topic replaces only its own message, of the same address")
    func topics() throws {
        var boxes = try mailboxes()
        let first = try leave(&boxes, topic: "a")
        let kept = try leave(&boxes, topic: "b")
        let plain = try leave(&boxes)
        let others = try leave(&boxes, "t2", topic: "a")
        let second = try leave(&boxes, topic: "a")
        #expect(ids(boxes, reader) == [kept, plain, second] && ids(boxes, other) == [others])
        #expect(!ids(boxes, reader).contains(first))
    }

    @Test("Messages go when their time is over, and not before")
    func expiry() throws {
        var boxes = try mailboxes()
        let short = try leave(&boxes, lifetime: 0, at: 100)
        let long = try leave(&boxes, lifetime: .max, at: 100)
        let middle = try leave(&boxes, lifetime: 60, at: 100)
        #expect(boxes.expiryDue == 105)
        #expect(boxes.expire(at: 104).isEmpty && ids(boxes, reader) == [short, long, middle])
        // Not given out any more, even if nothing has removed it yet.
        #expect(boxes.messages(of: reader, after: 0, at: 105).messages.map(\.id) == [long, middle])
        #expect(boxes.expire(at: 105) == [short] && boxes.expiryDue == 160)
        #expect(boxes.expire(at: 1_000) == [middle])
        #expect(boxes.expire(at: 100 + 28 * 86_400) == [long] && boxes.expiryDue == nil)
    }

    @Test("A full address keeps nothing from the others of the same client")
    func addresses() throws {
        var boxes = try mailboxes(limits { $0.messages = 2 })
        let second = PushSubscription(token: "t9", recipient: reader, name: "9", applicationServerKey: [])
        try boxes.add(second)
        for _ in 0..<2 { try leave(&boxes) }
        #expect(throws: Mailboxes.Refusal.tooManyMessages) { try leave(&boxes) }
        try leave(&boxes, "t9")
        _ = try boxes.add(PushOffer(to: .client(reader), [], .normal, topic: "", lifetime: 60), at: 0)
        #expect(ids(boxes, reader).count == 4)
    }

    @Test("Full mailboxes refuse, each for itself and all of a user together")
    func limits() throws {
        var boxes = try mailboxes(
            limits {
                $0.messages = 2
                $0.messagesOfUser = 3
            })
        try leave(&boxes, topic: "a")
        try leave(&boxes)
        #expect(throws: Mailboxes.Refusal.tooManyMessages) { try leave(&boxes) }
        // One that takes another's place is no more.
        try leave(&boxes, topic: "a")
        try leave(&boxes, "t2")
        #expect(throws: Mailboxes.Refusal.tooManyMessages) { try leave(&boxes, "t2") }
        _ = boxes.acknowledge(Set(ids(boxes, reader)), of: reader)
        try leave(&boxes, "t2")
        #expect(throws: Mailboxes.Refusal.noSubscription) { try leave(&boxes, "t3") }
    }

    @Test("Full mailboxes of others leave a user some room")
    func limitsOfAll() throws {
        var boxes = Mailboxes(
            limits {
                $0.messagesOfAll = 3
                $0.messagesOfUserAlways = 1
                $0.subscriptionsOfAll = 2
                $0.subscriptionsOfUserAlways = 1
            })
        func box(_ user: UInt32, _ name: String) -> PushSubscription {
            PushSubscription(
                token: "\(user)\(name)", recipient: Recipient(user: user, client: "reader"), name: name,
                applicationServerKey: [])
        }
        try boxes.add(box(1, "a"))
        try boxes.add(box(1, "b"))
        #expect(throws: Mailboxes.Refusal.tooManySubscriptions) { try boxes.add(box(1, "c")) }
        try boxes.add(box(2, "a"))
        for token in ["1a", "1a", "1b"] { try leave(&boxes, token) }
        #expect(throws: Mailboxes.Refusal.tooManyMessages) { try leave(&boxes, "1b") }
        let first = try leave(&boxes, "2a", topic: "t")
        #expect(throws: Mailboxes.Refusal.tooManyMessages) { try leave(&boxes, "2a") }
        try leave(&boxes, "2a", topic: "t")
        #expect(
            ids(boxes, box(2, "a").recipient).count == 1 && !ids(boxes, box(2, "a").recipient).contains(first)
        )
        // Another key needs no more room, though there is none.
        let new = PushSubscription(
            token: "1a'", recipient: box(1, "a").recipient, name: "a", applicationServerKey: [4])
        let gone = boxes.replace(box(1, "a"), by: new)
        #expect(gone.count == 2 && boxes.subscription(of: new.recipient, named: "a") == new)
        #expect(throws: Mailboxes.Refusal.noSubscription) { try leave(&boxes, "1a") }
        #expect(throws: Never.self) { try leave(&boxes, "1b") }
    }

    @Test("Addresses are limited, and take their messages with them")
    func subscriptions() throws {
        var boxes = Mailboxes(limits { $0.subscriptions = 2 })
        let all = ["a", "b", "c"].map {
            PushSubscription(token: "t" + $0, recipient: reader, name: $0, applicationServerKey: [])
        }
        try boxes.add(all[0])
        try boxes.add(all[1])
        #expect(throws: Mailboxes.Refusal.tooManySubscriptions) { try boxes.add(all[2]) }
        let (one, two) = (try leave(&boxes, "ta"), try leave(&boxes, "tb"))
        #expect(boxes.remove(all[0]) == [one] && ids(boxes, reader) == [two])
        #expect(throws: Mailboxes.Refusal.noSubscription) { try leave(&boxes, "ta") }
        try boxes.add(all[2])
        #expect(boxes.subscription(of: reader, named: "c") == all[2])
    }

    @Test("Messages are given out in portions, in their order")
    func portions() throws {
        var boxes = try mailboxes(limits { $0.messagesAtOnce = 2 })
        let all = try (0..<5).map { _ in try leave(&boxes) }
        var (after, taken, hasMore) = (UInt64(0), [UInt64](), true)
        while hasMore {
            let portion = boxes.messages(of: reader, after: after, at: 0)
            taken += portion.messages.map(\.id)
            (after, hasMore) = (taken.last ?? 0, portion.hasMore)
        }
        #expect(taken == all)
        #expect(boxes.messages(of: reader, after: after, at: 0).messages.isEmpty)
    }

    @Test("After a restart each client with messages is told with a number that it does not know")
    func restart() throws {
        var boxes = try mailboxes()
        let last = try leave(&boxes)
        var again = Mailboxes(PushLimits(), lastNumber: boxes.lastNumber)
        for subscription in boxes.subscriptions.values { again.restore(subscription) }
        for message in boxes.messages(of: reader, after: 0, at: 0).messages {
            again.restore(message, to: reader)
        }
        #expect(again.report(on: reader) == nil)
        again.tellAllAgain()
        #expect(again.takeChanged() == reader)
        #expect(try #require(again.report(on: reader)).number > last)
        #expect(try leave(&again) > last && ids(again, reader).count == 2)
    }
}
