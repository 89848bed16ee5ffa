import EventLoop
import Glibc
import Launching
import LinuxSystem
import NightbellCore
import NightbellWire

/// One connection to the control socket. Loop-confined.
final class Connection {
    /// Slot and generation, as in a `SocketToken`: never reused.
    let key: UInt64
    let socket: SeqPacketSocket
    let credentials: PeerCredentials
    /// Armed for as long as the connection lives.
    let readable: Watch
    /// Made when the first message has to wait, which is seldom.
    private var waiting: WaitingMessages?
    private let loop: LoopExecutor

    var role = Role.stranger
    /// Whether a message has arrived on it.
    var hasSpoken = false
    /// It is in the backlog.
    var isWaiting = false
    /// The client's process has ended, and that has not been handled yet.
    var hasProcessEnded = false
    /// How often it was read from since: its last messages wait for their user's turn as all others do.
    var readsAfterEnd: UInt8 = 0
    /// A request that takes several turns is being answered; nothing is read meanwhile.
    var isPaused = false
    /// It has not been told yet that another worker has taken over.
    var owesRestart = false
    /// The peer has closed it, and everything the peer sent is read.
    var hasEnded = false
    /// Its messages are being handled.
    var isServed = false
    /// Answers to the messages that are being handled. The keeper gets the records of all of them in one
    /// packet, before the first answer is sent.
    var answers: [[UInt8]] = []
    /// A listing of all clients that is being sent in parts. Nothing else is read from this connection
    /// meanwhile.
    var listing: Listing?
    /// The client that the peer process was launched as.
    var launched: ClientID?
    /// The peer has hung up; its process may be ending.
    private(set) var isHungUp = false
    /// For a watcher, once there was an event.
    var watching: WatchedEvents?

    /// Messages that the peer's full queue did not take.
    private final class WaitingMessages {
        /// The oldest first.
        var messages: [[UInt8]] = []
        var bytes = 0
        /// Armed while messages wait.
        let writable: Watch

        init(_ writable: consuming Watch) { self.writable = writable }
    }

    final class Listing {
        let request: UInt64
        /// The kind of answer: messages with a few clients, or one status of them all.
        let isStatus: Bool
        let clients: [ClientID]
        var next = 0

        init(request: UInt64, isStatus: Bool, clients: [ClientID]) {
            self.request = request
            self.isStatus = isStatus
            self.clients = clients
        }
    }

    final class WatchedEvents {
        /// Those of this turn, and about how long they are.
        var events: [WireWatchEvent] = []
        var bytes = 0
        /// Events that the watcher missed because it did not read.
        var dropped: UInt64 = 0
    }

    enum Role {
        /// Has not said Hello; may send administration requests.
        case stranger
        case client(ServedClient)
        /// Receives events: of all clients that its uid may see, or of one client.
        case watcher(identifier: String)
    }

    init(
        key: UInt64, socket: consuming SeqPacketSocket, credentials: PeerCredentials, loop: LoopExecutor
    ) throws(LoopError) {
        self.key = key
        self.credentials = credentials
        readable = try loop.watch(
            socket.rawValue, .read, .persistent, token: WatchToken(.connectionReadable, id: key).rawValue)
        self.loop = loop
        self.socket = socket
        try readable.arm()
    }

    var slot: UInt32 { UInt32(truncatingIfNeeded: key) }

    var client: ServedClient? {
        switch role {
        case .client(let record): record
        case .stranger, .watcher: nil
        }
    }

    enum Sending {
        case sent
        /// It waits for the peer to read.
        case queued
        /// The queue is longer than its limit.
        case full
        case failed
    }

    var hasOutgoing: Bool { !(waiting?.messages.isEmpty ?? true) }

    /// Of the messages that wait.
    var outgoingBytes: Int { waiting?.bytes ?? 0 }

    /// Sends a message, or queues it behind others. For a peer that has gone it is discarded: what the peer has sent before is
    /// still to be read, and its end comes after that.
    func send(_ bytes: [UInt8], limit: Int) -> Sending {
        if isHungUp { return .sent }
        if !hasOutgoing {
            do {
                if try socket.send(bytes) { return .sent }
            } catch {
                return error.isOfGonePeer ? .sent : .failed
            }
        }
        guard outgoingBytes + bytes.count <= limit else { return .full }
        guard armWritable(), let waiting else { return .failed }
        waiting.messages.append(bytes)
        waiting.bytes += bytes.count
        return .queued
    }

    /// Sends queued messages as far as the peer takes them. False: the connection is broken.
    func flush() -> Bool {
        guard let waiting else { return true }
        var sent = 0
        defer {
            waiting.bytes -= waiting.messages[..<sent].reduce(0) { $0 + $1.count }
            waiting.messages.removeFirst(sent)
        }
        do {
            while sent < waiting.messages.count, try socket.send(waiting.messages[sent]) { sent += 1 }
        } catch {
            guard error.isOfGonePeer else { return false }
            sent = waiting.messages.count
        }
        return sent == waiting.messages.count || armWritable()
    }

    /// Has the loop report when the peer can take a message: at once, unless its queue is full.
    func armWritable() -> Bool {
        do {
            let waiting =
                try waiting
                ?? WaitingMessages(
                    loop.watch(
                        socket.rawValue, .write, .oneShot,
                        token: WatchToken(.connectionWritable, id: key).rawValue))
            self.waiting = waiting
            try waiting.writable.arm()
            return true
        } catch {
            return false
        }
    }

    /// Ends reading and writing.
    func hangUp() {
        isHungUp = true
        readable.disarm()
        forgetOutgoing()
    }

    /// Call it before the connection is closed.
    func forgetOutgoing() { waiting = nil }
}

/// The supervisor's own data of a client, beside the core's.
final class ServedClient {
    let id: ClientID
    let identifier: String
    let exit: ProcessEndWatch
    let process: ProcessHandle
    /// nil: it has none of them.
    private var rare: RareFacts?
    /// Whether the process that speaks for an unmodified program has something else suspend and thaw it.
    var suspendsItself = false
    let wantsWakeWord: Bool
    /// When it said Hello, in elapsed time, and how long its client had slept until then, in nanoseconds.
    var connectedAt = Instant(nanoseconds: 0)
    var asleepBefore: UInt64 = 0
    /// Where its wake word is, if it has one: the page's descriptor and the index in the page.
    var wakeWord: (descriptor: CInt, index: UInt16)?
    /// Whether the supervisor itself stops it.
    var isStoppedHere: Bool { obstacle == nil && !suspendsItself }
    /// The sockets and state left by its last process; nil once a message shows that it has received them.
    var previous: PreviousProcess?
    /// The file locks that it held when that was last looked at, asleep; a warning has been logged then.
    var locks = 0
    /// Whether it is queued for a check of its file locks, and when the last check was.
    var awaitsLookAtLocks = false
    var lookedAtLocks: Instant?
    /// When its last sleep ended, for watchers; nil while it sleeps, and before.
    var awakeSince: Instant?

    init(
        id: ClientID, identifier: String, process: consuming ProcessHandle, programStart: UInt64? = nil,
        launch: WireLaunchSpecification?, wantsWakeWord: Bool, connection key: UInt64, loop: LoopExecutor
    ) throws(LoopError) {
        self.id = id
        self.identifier = identifier
        self.wantsWakeWord = wantsWakeWord
        exit = try ProcessEndWatch(process, token: WatchToken(.processExit, id: key), loop)
        self.process = process
        set(\.programStart, to: programStart)
        set(\.launch, to: launch)
    }
}

/// Facts about few of the clients, of which there may be thousands.
private final class RareFacts {
    var programStart: UInt64?
    var awakeReason: String?
    var pagedOut: WirePagedOut?
    var launch: WireLaunchSpecification?
    var saidIdentifier: String?
    var wrapper: LaunchWrapper?
    var obstacle: String?
    var ending: ExitStatus?
}

extension ServedClient {
    private func set<Fact>(_ path: ReferenceWritableKeyPath<RareFacts, Fact?>, to fact: Fact?) {
        guard fact != nil || rare != nil else { return }
        let rare = rare ?? RareFacts()
        self.rare = rare
        rare[keyPath: path] = fact
    }

    /// When the process started, if it is an unmodified program, and not the one that has connected.
    var programStart: UInt64? { rare?.programStart }

    /// Why an unmodified program is awake, in the words of the process that speaks for it.
    var awakeReason: String {
        get { rare?.awakeReason ?? "" }
        set { set(\.awakeReason, to: newValue.isEmpty ? nil : newValue) }
    }

    /// The last report of that process about the program's memory.
    var pagedOut: WirePagedOut? {
        get { rare?.pagedOut }
        set { set(\.pagedOut, to: newValue) }
    }

    /// How its process has ended; nil: that has not been handled yet.
    var ending: ExitStatus? {
        get { rare?.ending }
        set { set(\.ending, to: newValue) }
    }

    /// How it says it was started, if it would not be launched that way.
    var launch: WireLaunchSpecification? { rare?.launch }

    /// The identifier in its Hello, if it is registered under another one.
    var saidIdentifier: String? {
        get { rare?.saidIdentifier }
        set { set(\.saidIdentifier, to: newValue) }
    }

    /// The launched process that started this one instead of becoming the client itself.
    var wrapper: LaunchWrapper? {
        get { rare?.wrapper }
        set { set(\.wrapper, to: newValue) }
    }

    /// Why this client cannot be suspended, if so. Logged once, shown for as long as it holds.
    var obstacle: String? {
        get { rare?.obstacle }
        set { set(\.obstacle, to: newValue) }
    }
}

/// Watches for the end of a client's process. There may be thousands: a libevent event takes 160 bytes.
struct ProcessEndWatch: ~Copyable {
    private let process: CInt
    private let loop: LoopExecutor

    init(_ process: borrowing ProcessHandle, token: WatchToken, _ loop: LoopExecutor) throws(LoopError) {
        try loop.urgent.arm(process.rawValue, .oneShot, isMember: false, token: token.rawValue)
        self.process = process.rawValue
        self.loop = loop
    }

    deinit { disarm() }

    /// Call it before the process's descriptor is closed: the keeper may have a duplicate.
    borrowing func disarm() { loop.urgent.remove(process) }
}

extension SystemError {
    /// A message could not be sent, because the other end is closed.
    fileprivate var isOfGonePeer: Bool { code == EPIPE || code == ECONNRESET }
}
