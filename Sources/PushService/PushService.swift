import EventHandlers
import EventLoop
import Glibc
import LinuxSystem
package import Logging

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

    let configuration: Configuration
    private let loop: HandlerLoop
    let store: PushStore
    var mailboxes: Mailboxes
    private let elapsedTime: ElapsedTime
    private let listener: SeqPacketSocket
    let door: PushDoor
    private let reporter: SupervisorReporter
    private var listenerWatch: DescriptorWatch?
    private var doorWatch: DescriptorWatch?
    private var acceptTimer: LoopTimer?
    private var expiryTimer: LoopTimer?
    private var repeatTimer: LoopTimer?
    private var reloadTimer: LoopTimer?
    private var removalTimer: LoopTimer?
    private var repetitions: ArraySlice<Int64> = []
    private var connections: [ObjectIdentifier: PushConnection] = [:]
    private var connectionsByUser: [UInt32: Int] = [:]
    /// Those with something to send, or that have ended.
    private var touched: [ObjectIdentifier: PushConnection] = [:]
    /// Requests that were read in this turn.
    private var requestsByUser: [UInt32: Int] = [:]
    /// Of all connections: one is read at a time.
    var buffer = PacketBuffer(capacity: 131_072)
    private var idleTimer: LoopTimer?
    private let logger: Logger
    private var lastProblem = ""
    /// Offers that are answered once they are stored.
    private var accepted: [(continuation: PushDoor.Continuation, result: PushDoor.Outcome)] = []
    /// Nothing is added before this time, by `BootClock`, because the store has failed …
    private var addsAgainAt: Int64 = 0
    /// … and nothing is removed, because removals alone have failed, too.
    private var removesAgainAt: Int64 = 0
    /// It could not be read either: memory may have what is not stored, and nothing is answered from it.
    private(set) var isStale = false
    /// In nanoseconds: with each failure all of the store is read again.
    private static let storePause: Int64 = 1_000_000_000
    /// In milliseconds.
    private static let acceptPause: Int64 = 200
    private static let acceptsPerTurn = 16
    /// Of one user; what its other connections have sent is read in later turns.
    private static let requestsPerTurn = 256
    /// Connections of one user that do not read what they have asked for.
    private static let mostBlocked = 16
    /// A supervisor that was replaced may be told of a client before this client has come back to it: it is told
    /// again after these pauses, in milliseconds.
    private static let repetitions: [Int64] = [2_000, 10_000, 60_000]

    var limits: PushLimits { configuration.limits }

    package init(_ configuration: Configuration, door: PushDoor, logger: Logger) throws(PushError) {
        self.configuration = configuration
        self.door = door
        self.logger = logger
        store = try PushStore(directory: configuration.directory)
        let mark = try store.elapsedTime()
        do throws(SystemError) {
            elapsedTime = try ElapsedTime(after: mark)
        } catch {
            throw .system(error)
        }
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
        store.discard(mailboxes.expire(at: elapsedSeconds))
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
        idleTimer = LoopTimer(loop) { [unowned self] in endOverdue() }
        // Each turn ends with a look at what is too old, and notes the time now and then.
        expiryTimer = LoopTimer(loop) {}
        // Discarded messages are removed at the end of the turn.
        removalTimer = LoopTimer(loop) {}
        repeatTimer = LoopTimer(loop) { [unowned self] in tellSupervisorAgain() }
        reloadTimer = LoopTimer(loop) { [unowned self] in reload() }
        reporter.onConnected = { [unowned self] in
            repetitions = Self.repetitions[...]
            tellSupervisorAgain()
        }
        reporter.onDisconnected = { [unowned self] in mailboxes.supervisorLeft() }
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

    /// While the machine runs: see `ElapsedTime`.
    var elapsedSeconds: Int64 { elapsedTime.now.elapsed }

    // MARK: Turns

    private func endTurn() {
        requestsByUser = [:]
        do throws(PushError) {
            try store.commit(lastNumber: mailboxes.lastNumber, at: elapsedTime.now, removes: mayRemove)
            lastProblem = ""
        } catch {
            undoTurn("\(error)")
        }
        answerOffers()
        expire()
        if store.hasDiscarded { removalTimer?.set(milliseconds: mayRemove ? 0 : Self.storePause / 1_000_000) }
        let touched = touched
        self.touched = [:]
        for connection in touched.values { connection.flush() }
        for (id, connection) in touched where connection.hasEnded { remove(id) }
        report()
        if let due = mailboxes.expiryDue {
            let pause = min(PushStore.markPeriod, due - elapsedSeconds)
            expiryTimer?.set(milliseconds: max(1_000, pause * 1_000))
        }
    }

    /// Drops messages that are too old. If they cannot be removed from the store now, they are later: nothing else
    /// fails for that.
    private func expire() {
        let expired = mailboxes.expire(at: elapsedSeconds)
        guard !expired.isEmpty else { return }
        store.discard(expired)
        do throws(PushError) {
            try store.commit(lastNumber: mailboxes.lastNumber, at: elapsedTime.now, removes: mayRemove)
        } catch {
            removesAgainAt = BootClock.now() + Self.storePause
            store.dropChanges(lastNumber: mailboxes.lastNumber, at: elapsedTime.now)
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
        // Removals make room, and may be stored where nothing can be added.
        if mayAdd { addsAgainAt = BootClock.now() + Self.storePause } else { removesAgainAt = addsAgainAt }
        store.dropChanges(lastNumber: mailboxes.lastNumber, at: elapsedTime.now)
        for index in accepted.indices { accepted[index].result = .failed }
        for connection in touched.values { connection.fail() }
        reload()
    }

    /// Reads the store after it has failed. If that fails as well, it is tried again and again, and nothing is
    /// served until it is done.
    private func reload() {
        do throws(PushError) {
            let number = mailboxes.lastNumber
            mailboxes = try store.load(configuration.limits)
            mailboxes.skipNumbers(to: number)
            // With the numbers that they had: no client is told again because the disk is still full.
            mailboxes.numberByMessages()
            mailboxes.drop(store.discardedMessages)
            mailboxes.noteAll()
            door.publish(mailboxes.subscriptions.mapValues(\.applicationServerKey))
            isStale = false
        } catch {
            if !isStale { logger.error("\(error)") }
            isStale = true
            // An address may be there, or not.
            door.withdrawAll()
            reloadTimer?.deadline = BootClock.now() + Self.storePause
        }
    }

    /// A store that has failed is left alone for a while.
    var mayAdd: Bool { !isStale && BootClock.now() >= addsAgainAt }
    var mayRemove: Bool { !isStale && BootClock.now() >= removesAgainAt }

    func touch(_ connection: PushConnection) { touched[ObjectIdentifier(connection)] = connection }

    private func remove(_ id: ObjectIdentifier) {
        guard let connection = connections.removeValue(forKey: id) else { return }
        connectionsByUser[connection.user, default: 1] -= 1
        if connectionsByUser[connection.user] == 0 { connectionsByUser[connection.user] = nil }
    }

    /// Ends those that ask for nothing, or do not read the answers.
    private func endOverdue() {
        let now = BootClock.now()
        for connection in connections.values where connection.isOverdue(at: now) { connection.end() }
        startIdleTimer()
    }

    private func startIdleTimer() {
        if !connections.isEmpty { idleTimer?.set(milliseconds: limits.unreadTime * 500) }
    }

    /// Whether one more request of a user is read in this turn.
    func mayRead(of user: UInt32) -> Bool {
        let count = requestsByUser[user, default: 0]
        guard count < Self.requestsPerTurn else { return false }
        requestsByUser[user] = count + 1
        return true
    }

    /// Whether the answers to a process that does not read wait for it.
    func mayWait(_ connection: PushConnection) -> Bool {
        connections.values.count { $0.isBlocked && $0.user == connection.user } <= Self.mostBlocked
    }

    private func report() {
        while !isStale, reporter.hasRoom, let recipient = mailboxes.takeChanged() {
            if let report = mailboxes.report(on: recipient),
                !reporter.report(recipient, report.number, report.urgency)
            {
                return mailboxes.noteChange(of: recipient)
            }
            mailboxes.noteTold(recipient)
        }
    }

    private func accept() {
        do {
            // Others have their turn, too: a crowd that comes and goes would never end.
            for _ in 0..<Self.acceptsPerTurn {
                guard let socket = try listener.accept() else { return }
                guard let peer = try? socket.peerCredentials(), makeRoom(for: peer.uid),
                    let connection = try? PushConnection(loop, self, socket)
                else { continue }
                connections[ObjectIdentifier(connection)] = connection
                connectionsByUser[peer.uid, default: 0] += 1
                if connections.count == 1 { startIdleTimer() }
            }
        } catch {
            // Such as a shortage of descriptors: the connection stays in the queue.
            try? listenerWatch?.setArmed(false)
            acceptTimer?.set(milliseconds: Self.acceptPause)
        }
    }

    /// Whether a user may have one more connection. If there are as many as may be, the user that has the most
    /// loses the one that has asked nothing for longest: however many two users take, others get theirs.
    private func makeRoom(for user: UInt32) -> Bool {
        let own = connectionsByUser[user, default: 0]
        guard user == 0 || own < limits.connectionsOfUser else { return false }
        guard connections.count >= limits.connections else { return true }
        guard let most = connectionsByUser.max(by: { $0.value < $1.value }), own + 1 < most.value,
            let oldest = connections.values.filter({ $0.user == most.key })
                .min(by: { $0.askedAt < $1.askedAt })
        else { return false }
        oldest.end()
        remove(ObjectIdentifier(oldest))
        return true
    }

    private func takeOffers() {
        let (offers, isClosed) = door.takeOffers()
        for (offer, continuation) in offers {
            guard mayAdd else {
                accepted.append((continuation, .failed))
                continue
            }
            do throws(Mailboxes.Refusal) {
                let (_, lifetime) = try add(offer)
                accepted.append((continuation, .accepted(lifetime: lifetime)))
            } catch {
                accepted.append((continuation, .refused(error)))
            }
        }
        if isClosed { loop.stop() }
    }
}
