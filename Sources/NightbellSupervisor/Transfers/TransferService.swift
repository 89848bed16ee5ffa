import EventLoop
import Glibc
import LinuxSystem
import NightbellCore
import TransferWire

/// The meaning of a `WatchToken` of the kind `transfers`.
struct TransferToken {
    enum Subject: UInt64 {
        /// The socket on which the process serves clients. Its number is that of the service, and else of the
        /// process.
        case listener
        case connection
        case exit
    }

    let subject: Subject
    let number: UInt64

    init(_ subject: Subject, _ number: UInt64) {
        self.subject = subject
        self.number = number
    }

    /// nil: it is of no known subject.
    init?(_ token: WatchToken) {
        guard let subject = Subject(rawValue: UInt64(token.slot) & 3) else { return nil }
        self.init(subject, UInt64(token.slot) >> 2)
    }

    var watch: WatchToken { WatchToken(.transfers, id: number << 2 | subject.rawValue) }
}

/// The process that moves a user's files, and the socket on which it serves the user's clients.
///
/// The supervisor holds the socket. It starts the process when a client connects, and when a store has
/// something to do; the process ends when it is idle. It may die, hang or send nonsense: then it is replaced
/// after a pause.
final class TransferService {
    let user: UserID
    let number: UInt64
    let program: HelperProgram
    let listener: SeqPacketSocket
    private let connecting: Watch
    var process: HelperProcess?
    /// There is something to do for a process.
    var isWanted = false
    var history = HelperHistory()
    /// Why there is no process although there is something to do.
    var problem = ""
    /// Demands that were not sent yet.
    var unsent: [WireTransferDemand] = []
    /// The process is to be told of the subscriptions again, as they are once everything else is sent.
    var owesSubscriptions = false
    /// When to try that again.
    var sendAt: Instant?
    /// When the process must have read what was unread when something was sent.
    var mustReadBy: Instant?
    /// When it must have ended, after it has closed its connection.
    var mustEndBy: Instant?
    /// As it said last: tasks of it run in good moments only. A process with nothing else ends, and is started again for
    /// the next such moment.
    var hasDiscretionary = false
    /// When it has to run for an issue, in seconds since 1970; nil: never.
    private(set) var nextIssue: Int64?
    /// When a process looks after the store, if none has had to before.
    var visitAt: Instant?
    /// Clients that were quit while there was no process.
    var quits: Set<String> = []

    /// Clients of demands that the process may not have read yet.
    var sentQuits: Set<String> = []

    /// Reports handled in a turn; the rest waits for the next one.
    static let noticesPerTurn = 32
    /// How long it may take to read: it waits for the disk.
    static let readingTime: Duration = .seconds(30)
    /// How long it may take to end, once it has closed its connection.
    static let endingTime: Duration = .seconds(5)
    static let sendingPause: Duration = .milliseconds(100)
    /// Names in a demand.
    static let namesAtOnce = 200
    /// Subscriptions in a demand: the address of each has 8 KiB at most.
    static let subscriptionsAtOnce = 7

    /// Listens for the clients of a user.
    init(
        _ user: UserID, number: UInt64, _ program: HelperProgram, socket: String, _ loop: LoopExecutor
    ) throws {
        // It may be the last supervisor's, of which a process still has it.
        unsafe unlink(socket)
        let listener = try SeqPacketSocket.listen(path: socket, mode: 0o600)
        if user != geteuid() {
            _ = try systemCall("chown \(socket)") { unsafe chown(socket, user, gid_t.max) }
        }
        connecting = try loop.watch(
            listener.rawValue, .read, .oneShot, token: TransferToken(.listener, number).watch.rawValue)
        try connecting.arm()
        self.user = user
        self.number = number
        self.program = program
        self.listener = listener
    }

    deinit {
        // Before its descriptor is closed.
        connecting.disarm()
    }

    /// There is no process, and a client that connects needs one.
    func awaitClients() throws { try connecting.arm() }

    /// In seconds. A process that says nonsense is started now and then, and not again and again.
    private static let issuePauses: ClosedRange<UInt64> = 60...(366 * 86_400)

    /// - Parameter instant: in seconds since 1970; 0: there is none.
    func noteNextIssue(_ instant: UInt64) {
        let now = UInt64(time(nil))
        let (earliest, latest) = (now + Self.issuePauses.lowerBound, now + Self.issuePauses.upperBound)
        nextIssue = instant == 0 ? nil : Int64(min(max(instant, earliest), latest))
    }

    /// How long it need not run for an issue; nil: for ever, or it runs.
    var timeUntilIssue: Duration? {
        guard process == nil, !isWanted, let nextIssue else { return nil }
        return .seconds(nextIssue - Int64(time(nil)))
    }

    /// When something is due for it.
    var nextDeadline: Instant? {
        guard process != nil else { return isWanted ? history.restartAt : visitAt }
        return [sendAt, mustReadBy, mustEndBy].compactMap(\.self).min()
    }

    /// Sends what it can.
    func send(at now: Instant) {
        guard let process else { return }
        sendAt = nil
        while let demand = unsent.first {
            if !process.hasUnread { sentQuits = [] }
            // The next process is told what this one was not.
            guard process.send(demand), !process.hasMissedDemand else {
                return sendAt = now + Self.sendingPause
            }
            unsent.removeFirst()
            sentQuits.formUnion(demand.quitClients)
            if mustReadBy == nil { mustReadBy = now + Self.readingTime }
        }
    }
}
