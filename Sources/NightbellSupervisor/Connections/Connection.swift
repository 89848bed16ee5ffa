import EventLoop
import Glibc
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
    /// Armed while messages wait; made when the first message has to wait, which is seldom.
    private var writable: Watch?
    private let loop: LoopExecutor

    var role = Role.stranger
    /// Whether a message has arrived on it.
    var hasSpoken = false
    /// It is in the backlog.
    var isWaiting = false
    /// The client's process has ended, and that has not been handled yet.
    var hasProcessEnded = false
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
    /// Messages that the peer's full queue did not take, oldest first.
    private(set) var outgoing: [[UInt8]] = []
    private(set) var outgoingBytes = 0
    /// A listing of all clients that is being sent in parts. Nothing else is read from this connection
    /// meanwhile.
    var listing: Listing?
    /// The client that the peer process was launched as.
    var launched: ClientID?
    /// The peer has hung up; its process may be ending.
    private(set) var isHungUp = false
    /// Events of this turn for a watcher, and about how long they are.
    var events: [WireWatchEvent] = []
    var eventBytes = 0
    /// Events that a watcher missed because it did not read.
    var droppedEvents: UInt64 = 0

    struct Listing {
        let request: UInt64
        /// The kind of answer: messages with a few clients, or one status of them all.
        let isStatus: Bool
        let clients: [ClientID]
        var next = 0
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

    /// Sends a message, or queues it behind others.
    func send(_ bytes: [UInt8], limit: Int) -> Sending {
        if isHungUp { return .sent }
        if outgoing.isEmpty {
            do {
                if try socket.send(bytes) { return .sent }
            } catch {
                return .failed
            }
        }
        guard outgoingBytes + bytes.count <= limit else { return .full }
        outgoing.append(bytes)
        outgoingBytes += bytes.count
        return armWritable() ? .queued : .failed
    }

    /// Sends queued messages as far as the peer takes them. False: the connection is broken.
    func flush() -> Bool {
        var sent = 0
        defer {
            outgoingBytes -= outgoing[..<sent].reduce(0) { $0 + $1.count }
            outgoing.removeFirst(sent)
        }
        do {
            while sent < outgoing.count, try socket.send(outgoing[sent]) { sent += 1 }
        } catch {
            return false
        }
        return sent == outgoing.count || armWritable()
    }

    /// Has the loop report when the peer can take a message: at once, unless its queue is full.
    func armWritable() -> Bool {
        do {
            if writable == nil {
                let token = WatchToken(.connectionWritable, id: key)
                writable = try loop.watch(socket.rawValue, .write, .oneShot, token: token.rawValue)
            }
            switch writable {
            case .some(let watch): try watch.arm()
            case .none: break
            }
            return true
        } catch {
            return false
        }
    }

    /// Ends reading and writing.
    func hangUp() {
        isHungUp = true
        readable.disarm()
        forgetWritable()
    }

    /// Call it before the connection is closed.
    func forgetWritable() { writable = nil }
}

/// The supervisor's own data of a client, beside the core's.
final class ServedClient {
    let id: ClientID
    let identifier: String
    let process: ProcessHandle
    /// When the process started, if it is an unmodified program, and not the one that has connected.
    let programStart: UInt64?
    /// Why an unmodified program is awake, in the words of the process that speaks for it.
    var awakeReason = ""
    /// The last report of that process about the program's memory.
    var pagedOut: WirePagedOut?
    /// Whether that process has something else suspend the program, and thaw it.
    var suspendsItself = false
    let exit: Watch
    /// How it says it was started, if it would not be launched that way.
    let launch: WireLaunchSpecification?
    let wantsWakeWord: Bool
    /// The identifier in its Hello, if it is registered under another one.
    var saidIdentifier: String?
    /// When it said Hello, in elapsed time, and how long its client had slept until then, in nanoseconds.
    var connectedAt = Instant(nanoseconds: 0)
    var asleepBefore: UInt64 = 0
    /// The launched process that started this one instead of becoming the client itself.
    var wrapper: LaunchWrapper?
    /// Where its wake word is, if it has one: the page's descriptor and the index in the page.
    var wakeWord: (descriptor: CInt, index: UInt16)?
    /// Why this client cannot be suspended, if so. Logged once, shown for as long as it holds.
    var obstacle: String?
    /// Whether the supervisor itself stops it.
    var isStoppedHere: Bool { obstacle == nil && !suspendsItself }
    /// The sockets and state left by its last process; nil once a message shows that it has received them.
    var previous: PreviousProcess?
    /// Whether a warning that this client sleeps with file locks held has been logged.
    var hasWarnedOfLocks = false
    /// Whether it is queued for a check of its file locks, and when the last check was.
    var awaitsLookAtLocks = false
    var lookedAtLocks: Instant?
    /// When its last sleep ended, for watchers; nil while it sleeps, and before.
    var awakeSince: Instant?

    init(
        id: ClientID, identifier: String, process: consuming ProcessHandle, programStart: UInt64? = nil,
        launch: WireLaunchSpecification?, wantsWakeWord: Bool, connection key: UInt64, loop: LoopExecutor
    ) throws(LoopError) {
        self.programStart = programStart
        self.id = id
        self.identifier = identifier
        self.launch = launch
        self.wantsWakeWord = wantsWakeWord
        exit = try loop.watch(
            process.rawValue, .read, .oneShot, token: WatchToken(.processExit, id: key).rawValue)
        self.process = process
        try exit.arm()
    }
}
