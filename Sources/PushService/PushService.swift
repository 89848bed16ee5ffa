import Crypto
import EventHandlers
import EventLoop
import Glibc
package import LinuxSystem
package import Logging
import NightbellWire
import SwiftProtobuf
import Synchronization

/// Keeps messages for clients until these have handled them, on a thread of its own.
package final class PushService {
    package struct Configuration: Sendable {
        /// The directory of the store.
        package var directory: String
        /// Where clients connect.
        package var socket: String
        /// The supervisor's control socket.
        package var supervisor: String
        /// The beginning of addresses, such as `https://push.example.org`.
        package var publicURL: String
        package var limits = PushLimits()

        package init(directory: String, socket: String, supervisor: String, publicURL: String) {
            self.directory = directory
            self.socket = socket
            self.supervisor = supervisor
            self.publicURL = publicURL
        }
    }

    private let configuration: Configuration
    private let loop: HandlerLoop
    private let store: PushStore
    private var mailboxes: Mailboxes
    private let listener: SeqPacketSocket
    private let door: PushDoor
    private let reporter: SupervisorReporter
    private var listenerWatch: DescriptorWatch?
    private var doorWatch: DescriptorWatch?
    private var acceptTimer: LoopTimer?
    private var expiryTimer: LoopTimer?
    private var repeatTimer: LoopTimer?
    private var repetitions: ArraySlice<Int64> = []
    private var connections: [ObjectIdentifier: PushConnection] = [:]
    private var connectionsByUser: [UInt32: Int] = [:]
    /// Those with something to send, or that have ended.
    private var touched: [ObjectIdentifier: PushConnection] = [:]
    /// Of all connections: one is read at a time.
    var buffer = PacketBuffer(capacity: 131_072)
    private var idleTimer: LoopTimer?
    private let logger: Logger
    private var lastProblem = ""
    /// Offers that are answered once they are stored.
    private var accepted: [(continuation: PushDoor.Continuation, result: PushDoor.Outcome)] = []
    /// In milliseconds.
    private static let acceptPause: Int64 = 200
    private static let acceptsPerTurn = 16
    /// A supervisor that was replaced may be told of a client before this client has come back to it: it is told
    /// again after these pauses, in milliseconds.
    private static let repetitions: [Int64] = [2_000, 10_000, 60_000]

    var limits: PushLimits { configuration.limits }

    package init(_ configuration: Configuration, door: PushDoor, logger: Logger) throws(PushError) {
        self.configuration = configuration
        self.door = door
        self.logger = logger
        store = try PushStore(directory: configuration.directory)
        mailboxes = try store.load(configuration.limits)
        do throws(HandlerError) {
            loop = try HandlerLoop()
        } catch {
            throw .handlers(error)
        }
        do throws(SystemError) {
            listener = try SeqPacketSocket.listen(path: configuration.socket, mode: 0o666)
        } catch {
            throw .system(error)
        }
        reporter = SupervisorReporter(loop, path: configuration.supervisor, logger)
        try watch()
        store.remove(mailboxes.expire(at: Self.now()))
        mailboxes.tellAllAgain()
        door.publish(mailboxes.subscriptions.mapValues(\.applicationServerKey))
    }

    private func watch() throws(PushError) {
        do throws(LoopError) {
            listenerWatch = try DescriptorWatch(loop, listener.rawValue, .read) { [unowned self] _ in accept()
            }
            doorWatch = try DescriptorWatch(loop, door.rawValue, .read) { [unowned self] _ in takeOffers() }
        } catch {
            throw .loop(error)
        }
        acceptTimer = LoopTimer(loop) { [unowned self] in try? listenerWatch?.setArmed(true) }
        idleTimer = LoopTimer(loop) { [unowned self] in endIdle() }
        // Each turn ends with a look at what is too old.
        expiryTimer = LoopTimer(loop) {}
        repeatTimer = LoopTimer(loop) { [unowned self] in tellSupervisorAgain() }
        reporter.onConnected = { [unowned self] in
            repetitions = Self.repetitions[...]
            tellSupervisorAgain()
        }
        reporter.onLost = { [unowned self] lost in
            for recipient in lost { mailboxes.noteChange(of: recipient) }
        }
        loop.onTurnEnd = { [unowned self] in endTurn() }
    }

    /// Serves until the door is closed.
    package func run() throws(PushError) {
        defer { answerOffers(.failed) }
        do throws(HandlerError) {
            try loop.run()
        } catch {
            throw .handlers(error)
        }
    }

    private func tellSupervisorAgain() {
        mailboxes.noteAll()
        if let pause = repetitions.popFirst() { repeatTimer?.set(milliseconds: pause) }
    }

    static func now() -> Int64 { Int64(WallClock.now() / 1_000_000_000) }

    // MARK: Turns

    private func endTurn() {
        do throws(PushError) {
            try store.commit(lastNumber: mailboxes.lastNumber)
            lastProblem = ""
        } catch {
            undoTurn("\(error)")
        }
        answerOffers()
        expire()
        let touched = touched
        self.touched = [:]
        for connection in touched.values { connection.flush() }
        for (id, connection) in touched where connection.hasEnded { remove(id) }
        report()
        if let due = mailboxes.expiryDue {
            expiryTimer?.set(milliseconds: max(1_000, (due - Self.now()) * 1_000))
        }
    }

    /// Drops messages that are too old. If they cannot be removed from the store now, the next one that reads it
    /// does: nothing else fails for that.
    private func expire() {
        let expired = mailboxes.expire(at: Self.now())
        guard !expired.isEmpty else { return }
        store.remove(expired)
        do throws(PushError) {
            try store.commit(lastNumber: mailboxes.lastNumber)
        } catch {
            store.dropChanges(lastNumber: mailboxes.lastNumber)
        }
    }

    /// - Parameter outcome: of all of them; nil: each has its own.
    private func answerOffers(_ outcome: PushDoor.Outcome? = nil) {
        for (continuation, result) in accepted { continuation.resume(returning: outcome ?? result) }
        accepted = []
    }

    /// Nothing is answered that is not stored, such as on a full disk. Messages that were stored before are
    /// served on.
    private func undoTurn(_ problem: String) {
        if problem != lastProblem { logger.error("\(problem)") }
        lastProblem = problem
        store.dropChanges(lastNumber: mailboxes.lastNumber)
        for index in accepted.indices { accepted[index].result = .failed }
        for connection in touched.values { connection.fail("it cannot be stored") }
        do throws(PushError) {
            let number = mailboxes.lastNumber
            mailboxes = try store.load(configuration.limits)
            mailboxes.skipNumbers(to: number)
            // With the numbers that they had: no client is told again because the disk is still full.
            mailboxes.numberByMessages()
            mailboxes.noteAll()
            door.publish(mailboxes.subscriptions.mapValues(\.applicationServerKey))
        } catch {
            logger.error("\(error)")
        }
    }

    func touch(_ connection: PushConnection) { touched[ObjectIdentifier(connection)] = connection }

    private func remove(_ id: ObjectIdentifier) {
        guard let connection = connections.removeValue(forKey: id) else { return }
        connectionsByUser[connection.user, default: 1] -= 1
        if connectionsByUser[connection.user] == 0 { connectionsByUser[connection.user] = nil }
    }

    private func endIdle() {
        let limit = BootClock.now() - limits.idleTime * 1_000_000_000
        for connection in connections.values where connection.askedAt < limit { connection.end() }
        if !connections.isEmpty { idleTimer?.set(milliseconds: limits.idleTime * 250) }
    }

    private func report() {
        while reporter.hasRoom, let recipient = mailboxes.takeChanged() {
            guard let report = mailboxes.report(on: recipient) else {
                mailboxes.forgetIfEmpty(recipient)
                continue
            }
            guard reporter.report(recipient, report.number, report.urgency) else {
                return mailboxes.noteChange(of: recipient)
            }
            if report.urgency == nil { mailboxes.forgetIfEmpty(recipient) }
        }
    }

    private func accept() {
        do {
            // Others have their turn, too: a crowd that comes and goes would never end.
            for _ in 0..<Self.acceptsPerTurn {
                guard let socket = try listener.accept() else { return }
                // None for a user that has too many, so that there are some for the others.
                guard connections.count < limits.connections, let peer = try? socket.peerCredentials(),
                    peer.uid == 0 || connectionsByUser[peer.uid, default: 0] < limits.connectionsOfUser,
                    let connection = try? PushConnection(loop, self, socket)
                else { continue }
                if connections.isEmpty { idleTimer?.set(milliseconds: limits.idleTime * 250) }
                connections[ObjectIdentifier(connection)] = connection
                connectionsByUser[peer.uid, default: 0] += 1
            }
        } catch {
            // Such as a shortage of descriptors: the connection stays in the queue.
            try? listenerWatch?.setArmed(false)
            acceptTimer?.set(milliseconds: Self.acceptPause)
        }
    }

    private func takeOffers() {
        let (offers, isClosed) = door.takeOffers()
        for (offer, continuation) in offers {
            do throws(Mailboxes.Refusal) {
                let (id, lifetime) = try add(offer)
                accepted.append((continuation, .accepted(id, lifetime: lifetime)))
            } catch {
                accepted.append((continuation, .refused(error)))
            }
        }
        if isClosed { loop.stop() }
    }

    // MARK: Requests

    func isKey(_ bytes: [UInt8]) -> Bool { (try? P256.Signing.PublicKey(x963Representation: bytes)) != nil }

    /// - Returns: the address.
    func subscribe(
        _ recipient: Recipient, _ name: String, _ key: [UInt8]
    ) throws(Mailboxes.Refusal) -> String {
        // Waiting messages are reported once more: the client may have observed pushes only just now.
        mailboxes.noteChange(of: recipient)
        if let subscription = mailboxes.subscription(of: recipient, named: name) {
            if subscription.applicationServerKey == key { return address(subscription.token) }
            unsubscribe(recipient, name)
        }
        let subscription = PushSubscription(
            token: Self.makeToken(), recipient: recipient, name: name, applicationServerKey: key)
        try mailboxes.add(subscription)
        store.add(subscription)
        door.publish(subscription.token, key)
        return address(subscription.token)
    }

    private func address(_ token: String) -> String { configuration.publicURL + "/push/" + token }

    /// 192 random bits, as base64url.
    private static func makeToken() -> String {
        let digits = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
        var generator = SystemRandomNumberGenerator()
        let characters = (0..<32).map { _ in digits[Int(generator.next() & 63 as UInt64)] }
        return String(decoding: characters, as: UTF8.self)
    }

    func names(of recipient: Recipient) -> [String] {
        // As for `subscribe`.
        mailboxes.noteChange(of: recipient)
        return mailboxes.names(of: recipient)
    }

    func unsubscribe(_ recipient: Recipient, _ name: String) {
        guard let subscription = mailboxes.subscription(of: recipient, named: name) else { return }
        _ = mailboxes.remove(subscription)
        store.remove(subscription)
        door.withdraw(subscription.token)
    }

    func acknowledge(_ ids: Set<UInt64>, of recipient: Recipient) {
        store.remove(mailboxes.acknowledge(ids, of: recipient))
    }

    func messages(
        of recipient: Recipient, after id: UInt64
    ) throws(PushError) -> (messages: [WirePushAnswer.Messages.Message], hasMore: Bool) {
        // Some of them may not be written yet. It is stored even if this turn fails later.
        try store.commit(lastNumber: mailboxes.lastNumber)
        answerOffers()
        for connection in touched.values { connection.keepAnswers() }
        let (waiting, hasMore) = mailboxes.messages(of: recipient, after: id, at: Self.now())
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
        let milliseconds = WallClock.now() / 1_000_000
        let (message, recipient, replaced) = try mailboxes.add(offer, at: Int64(milliseconds / 1_000))
        store.remove(replaced)
        store.add(message, to: recipient, offer.body, accepted: milliseconds)
        return (message.id, Int64(min(offer.lifetime, limits.lifetime)))
    }
}

/// How other threads leave messages.
package final class PushDoor: Sendable {
    package enum Outcome: Sendable {
        /// It is stored, with this id and lifetime in seconds.
        case accepted(UInt64, lifetime: Int64)
        case refused(Mailboxes.Refusal)
        /// It could not be stored, or the service has ended.
        case failed
    }

    typealias Continuation = CheckedContinuation<Outcome, Never>

    private struct Core {
        /// By the last part of the address: its key, if only one sender may use it.
        var keys: [String: [UInt8]] = [:]
        var offers: [(PushOffer, Continuation)] = []
        /// The addresses are read.
        var isReady = false
        var isClosed = false
    }

    private let core = Mutex(Core())
    private let bell: EventDescriptor

    package init() throws(SystemError) { bell = try EventDescriptor() }

    var rawValue: CInt { bell.rawValue }

    package enum Look: Sendable, Equatable {
        /// There is an address, with this key; empty: all may use it.
        case key([UInt8])
        case nothing
        /// The addresses are not read yet, or the service has ended.
        case unknown
    }

    package func look(for token: String) -> Look {
        core.withLock { core in
            guard core.isReady, !core.isClosed else { return .unknown }
            return core.keys[token].map(Look.key) ?? .nothing
        }
    }

    /// Returns when the message is stored, or not.
    package func leave(_ offer: PushOffer) async -> Outcome {
        await withCheckedContinuation { continuation in
            let isOpen = core.withLock { core in
                // Those that waited for a store would be stored after their senders have given up.
                guard core.isReady, !core.isClosed else { return false }
                core.offers.append((offer, continuation))
                return true
            }
            if isOpen { ring() } else { continuation.resume(returning: .failed) }
        }
    }

    /// The service ends.
    package func close() {
        let offers = core.withLock { core in
            core.isClosed = true
            defer { core.offers = [] }
            return core.offers
        }
        for (_, continuation) in offers { continuation.resume(returning: .failed) }
        ring()
    }

    private func ring() {
        do throws(SystemError) {
            try bell.signal()
        } catch {
            preconditionFailure("an eventfd of our own can be written to: \(error)")
        }
    }

    func takeOffers() -> ([(PushOffer, Continuation)], isClosed: Bool) {
        try? bell.clear()
        return core.withLock { core in
            defer { core.offers = [] }
            return (core.offers, core.isClosed)
        }
    }

    func publish(_ keys: [String: [UInt8]]) {
        core.withLock { core in
            core.keys = keys
            core.isReady = true
        }
    }

    func publish(_ token: String, _ key: [UInt8]) { core.withLock { $0.keys[token] = key } }

    /// The service has failed; another one may publish its addresses.
    package func withdrawAll() {
        let offers = core.withLock { core in
            core.isReady = false
            defer { core.offers = [] }
            return core.offers
        }
        for (_, continuation) in offers { continuation.resume(returning: .failed) }
    }

    func withdraw(_ token: String) { core.withLock { $0.keys[token] = nil } }
}
