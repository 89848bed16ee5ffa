import Descriptors
import EventLoop
import Glibc
import NightbellCore
import NightbellWire

/// One connection to the control socket. Loop-confined.
final class Connection {
    /// Slot and generation, as in a `SocketToken`: never used again.
    let key: UInt64
    let socket: SeqPacketSocket
    let credentials: PeerCredentials
    /// Armed for as long as the connection lives.
    let readable: Watch
    /// Armed while messages wait; made when the first has to, which is seldom.
    private var writable: Watch?
    private let loop: LoopExecutor

    var role = Role.stranger
    /// Whether a message of it has arrived.
    var hasSpoken = false
    /// It is in the backlog.
    var isWaiting = false
    /// The client's process has ended, which has not been dealt with yet.
    var hasProcessEnded = false
    /// It waits for the answer to a request that takes several turns, and nothing of it is read meanwhile.
    var isPaused = false
    /// It has not been told yet that another worker has taken over.
    var owesRestart = false
    /// The other end has closed it, and everything that it had sent is read.
    var hasEnded = false
    /// Messages that the peer's full queue did not take, oldest first.
    private(set) var outgoing: [[UInt8]] = []
    private(set) var outgoingBytes = 0
    /// A question about all clients that is being answered, in parts. Nothing else of this connection is read
    /// meanwhile.
    var listing: Listing?
    /// The client that the process at the other end was launched as.
    var launched: ClientID?
    /// The peer has hung up, and its process may be on its way to its end.
    private(set) var isHungUp = false
    /// Events that a watcher missed because it did not read.
    var droppedEvents: UInt64 = 0

    struct Listing {
        let request: UInt64
        /// What all of it is for: to tell of each, or of all together.
        let isStatus: Bool
        let clients: [ClientID]
        var next = 0
    }

    enum Role {
        /// Has not said Hello. May administrate.
        case stranger
        case client(ClientRecord)
        /// Is told what happens: to everybody whose uid it may see, or to one client.
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

    var client: ClientRecord? {
        switch role {
        case .client(let record): record
        case .stranger, .watcher: nil
        }
    }

    enum Sending {
        case sent
        /// It waits for the peer to read.
        case queued
        /// More waits than may.
        case full
        case failed
    }

    /// Sends a message, or lets it wait behind others.
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

    /// Sends what waits, as far as the peer takes it. False: the connection is broken.
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

    /// Has the loop report that the peer can be sent something: at once, unless its queue is full.
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

    /// Nothing more is to be read or sent.
    func hangUp() {
        isHungUp = true
        readable.disarm()
        forgetWritable()
    }

    /// Before the connection is closed.
    func forgetWritable() { writable = nil }
}

/// What the edge knows of a client beside the core.
final class ClientRecord {
    let id: ClientID
    let identifier: String
    let process: ProcessHandle
    let exit: Watch
    /// What it said of how it was started, if that is not how it would be launched.
    let launch: WireLaunchSpecification?
    let wantsWakeWord: Bool
    /// What it said in Hello, if it goes by another identifier.
    var saidIdentifier: String?
    /// The process that was launched and has started this one, in its stead.
    var wrapper: pid_t?
    /// Where its wake word is, if it has one: the page's descriptor, and the word in it.
    var wakeWord: (descriptor: CInt, index: UInt16)?
    /// Why this client cannot be suspended, if it cannot. Said once, shown as long as it is there.
    var obstacle: String?
    /// What it was given of its last process, until it says something: then it has it.
    var bequest: Bequest?
    /// Whether it was warned about already that this client sleeps with file locks held.
    var hasWarnedOfLocks = false
    /// Whether it is to be looked at for locks, and when it was the last time.
    var awaitsLookAtLocks = false
    var lookedAtLocks: Instant?
    /// When its last sleep ended, for watchers; nil while it sleeps, and before.
    var awakeSince: Instant?

    init(
        id: ClientID, identifier: String, process: consuming ProcessHandle, launch: WireLaunchSpecification?,
        wantsWakeWord: Bool, connection key: UInt64, loop: LoopExecutor
    ) throws(LoopError) {
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
