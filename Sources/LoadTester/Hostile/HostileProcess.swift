import CFloors
import Glibc
import LinuxSystem
import NightbellWire
import SwiftProtobuf

/// A process that attacks a supervisor until it is ended, as another user if possible.
struct HostileProcess {
    private let kind: HostileKind
    let socketPath: String
    private let user: uid_t?
    let number: Int

    static func arguments(
        _ kind: HostileKind, supervisorSocket: String, user: uid_t?, number: Int
    ) -> [String] {
        [kind.rawValue, supervisorSocket, user.map { "\($0)" } ?? "-", "\(number)"]
    }

    init(_ arguments: [String]) throws(LoadError) {
        guard arguments.count == 4, let kind = HostileKind(rawValue: arguments[0]),
            let number = Int(arguments[3])
        else { throw .missing("arguments") }
        self.kind = kind
        socketPath = arguments[1]
        user = uid_t(arguments[2])
        self.number = number
    }

    func run() throws {
        let parent = getppid()
        cfloors_catch_interrupts()
        _ = cfloors_raise_descriptor_limit()
        // The share of a processor that a user gets is the kernel's decision; this run is about the
        // supervisor's, which may use any processor. So may the process that is busy in its place.
        guard kind == .busy && number > 0 || cfloors_leave_a_processor() == 0 else {
            throw LoadError(failed: "sched_setaffinity")
        }
        if let user {
            guard setgid(user) == 0, setuid(user) == 0 else { throw LoadError(failed: "setuid") }
            // A process that changes its user loses the parent-death signal and must ask for it again.
            guard cfloors_die_with(parent) != 0 else { return }
        }
        signal(SIGPIPE, SIG_IGN)
        switch kind {
        case .none: return
        case .busy: while !isOver {}
        case .handOver: try flood(connections: 100, packets: [.init(Self.emptySockets)])
        case .patterns: try floodWithPatterns()
        case .identifiers: try flood(connections: 100, packets: [show(130_000), show(1_000)])
        case .connections: floodWithConnections()
        case .messages:
            let packets = [try Packet(.status(WireStatus())), try Packet(.list(WireList()))]
            try flood(connections: 50, packets: packets)
        case .crashes: crash()
        case .unread: try sleepWithUnreadSockets()
        case .slowPings: try sendSlowPings()
        case .lingering: try sendLingeringSockets()
        case .lingeringAdopted: try handOverLingeringSockets()
        case .fileLocks: try sleepWithFileLocks()
        case .descendants: try speakForManyDescendants()
        case .epollMembers: try handOverEpollSets()
        }
    }

    var isOver: Bool { cfloors_interrupted() != 0 }

    // MARK: Packets

    struct Packet {
        let bytes: [UInt8]
        var descriptors: [CInt] = []

        init(_ bytes: [UInt8], descriptors: [CInt] = []) {
            self.bytes = bytes
            self.descriptors = descriptors
        }

        init(_ body: WireClientMessage.OneOf_Body, descriptors: [CInt] = []) throws {
            var message = WireClientMessage()
            message.request = 1
            message.body = body
            self.init(try message.serializedBytes(), descriptors: descriptors)
        }
    }

    private static let emptySockets: [UInt8] = {
        let body = (0..<64_000).flatMap { _ in [1 << 3 | 2, 0] as [UInt8] }
        let length = [body.count & 0x7F | 0x80, body.count >> 7 & 0x7F | 0x80, body.count >> 14]
        return [3 << 3 | 2] + length.map { UInt8($0) } + body
    }()

    private func show(_ length: Int) throws -> Packet {
        var show = WireShow()
        show.identifier = String(repeating: "x", count: length)
        return try Packet(.show(show))
    }

    func hello(_ number: Int) throws -> Packet { try Packet(.hello(greeting(number))) }

    func greeting(_ number: Int) -> WireHello {
        var hello = WireHello()
        hello.version = 1
        hello.modes = [.voip]
        hello.identifier = "org.nightbell.load.hostile.u\(user ?? getuid()).c\(number)"
        if kind == .crashes {
            hello.launch.arguments = ["/bin/false"]
            hello.launch.directory = "/"
        }
        return hello
    }

    private func patterns(_ sockets: Int, _ length: Int, _ descriptor: CInt) throws -> Packet {
        var handOver = WireHandOver()
        handOver.sockets = (0..<sockets).map { _ in
            var socket = WireHandOver.Socket()
            socket.tag = .voip
            var exchange = WireProfile.Pattern.Exchange()
            exchange.pattern = [UInt8](repeating: 97, count: length / 2).asField
            exchange.reply = [UInt8](repeating: 98, count: length / 2).asField
            socket.profile.pattern.exchanges = [exchange]
            return socket
        }
        return try Packet(.handOver(handOver), descriptors: Array(repeating: descriptor, count: sockets))
    }

    // MARK: Attacks

    /// Sends these packets in turn on each of many connections, at the highest rate, and reconnects after
    /// each disconnect.
    func flood(connections count: Int, greeting: Packet? = nil, packets: [Packet]) throws {
        let lines = (0..<count).map { _ in Line(socketPath, greeting?.bytes) }
        var turn = 0
        while !isOver {
            var hasMoved = false
            for line in lines {
                turn += 1
                let packet = packets[turn % packets.count]
                if line.send(packet.bytes, packet.descriptors) { hasMoved = true }
            }
            // While all queues are full there is no work.
            if !hasMoved { usleep(100) }
        }
    }

    private func floodWithPatterns() throws {
        let (near, _) = try Self.connectedPair()
        let packets = [try patterns(1, 120_000, near), try patterns(15, 4_000, near)]
        try flood(clients: 8, packets: packets)
    }

    /// The same by so many clients, each a process with a connection of its own.
    func flood(clients: Int, packets: [Packet]) throws {
        for client in 0..<clients {
            let child = cfloors_fork()
            guard child >= 0 else { throw LoadError(failed: "fork") }
            guard child == 0 else { continue }
            try flood(connections: 1, greeting: try hello(clients * number + client), packets: packets)
            _exit(0)
        }
        while !isOver { usleep(10_000) }
    }

    private func floodWithConnections() {
        let held = (0..<HostileKind.connectionsPerUser).map { _ in Line(socketPath, nil) }
        var rounds = 0
        while !isOver {
            // The accepted connections have to send a message now and then.
            for line in held where rounds % 10_000 == 0 { _ = line.send([0x82, 0x02, 0], []) }
            rounds += 1
            if (try? SeqPacketSocket.connect(path: socketPath)) == nil { usleep(100) }
        }
    }

    /// Clients that never read what wakes them.
    private func sleepWithUnreadSockets() throws {
        for client in 0..<6 {
            let child = cfloors_fork()
            guard child >= 0 else { throw LoadError(failed: "fork") }
            guard child == 0 else { continue }
            var sleeper = try HostileSleeper(socketPath)
            try sleeper.register(greeting(6 * number + client))
            for _ in 0..<1_000 {
                let (near, far) = try Self.connectedPair()
                _ = unsafe Glibc.send(far, "x", 1, CInt(MSG_DONTWAIT))
                try sleeper.handOver(near, nil)
            }
            try sleeper.sleep { isOver }
            _exit(0)
        }
        while !isOver { usleep(10_000) }
    }

    /// Each byte has to be inspected, and none wakes the client.
    private func sendSlowPings() throws {
        let child = cfloors_fork()
        guard child >= 0 else { throw LoadError(failed: "fork") }
        let pairs = try (0..<300).map { _ in try Self.connectedPair() }
        guard child != 0 else {
            var profile = WireProfile()
            profile.irc = WireProfile.IRC()
            var sleeper = try HostileSleeper(socketPath)
            try sleeper.register(greeting(number))
            for (near, _) in pairs { try sleeper.handOver(near, profile) }
            try sleeper.sleep { isOver }
            _exit(0)
        }
        let ping = Array("PING :\(String(repeating: "a", count: 400))\r\n".utf8)
        var answer = [UInt8](repeating: 0, count: ping.count)
        while !isOver {
            for var byte in ping {
                for (_, far) in pairs {
                    _ = unsafe Glibc.send(far, &byte, 1, CInt(MSG_DONTWAIT))
                }
            }
            for (_, far) in pairs {
                while unsafe recv(far, &answer, answer.count, CInt(MSG_DONTWAIT)) > 0 {}
            }
        }
    }

    /// Sockets that the supervisor has the last reference of: it closes them because there was no Hello.
    private func sendLingeringSockets() throws {
        var handOver = WireHandOver()
        handOver.sockets = [WireHandOver.Socket()]
        handOver.sockets[0].tag = .voip
        let packet = try Packet(.handOver(handOver)).bytes
        try leaveLingeringSockets(100, rounds: 8) { sockets in
            let lines = sockets.map { _ in Line(socketPath, nil) }
            for (line, socket) in zip(lines, sockets) { _ = line.send(packet, [socket]) }
        }
    }

    /// Sockets that the keeper has the last reference of: their clients have ended.
    private func handOverLingeringSockets() throws {
        try leaveLingeringSockets(200, rounds: 4) { sockets in
            var client = try HostileSleeper(socketPath)
            try client.register(greeting(number))
            for socket in sockets { try client.handOver(socket, nil) }
        }
    }

    /// Makes so many sockets in each round for a process that sends them and ends. The peers are closed some rounds later,
    /// which ends the sockets' wait.
    private func leaveLingeringSockets(_ count: Int, rounds kept: Int, send: ([CInt]) throws -> Void) throws {
        var rounds: [[CInt]] = []
        while !isOver {
            let pairs = try (0..<count).map { _ in try Self.lingeringPair() }
            let (start, gate) = try Self.connectedPair()
            let child = cfloors_fork()
            guard child >= 0 else { throw LoadError(failed: "fork") }
            if child == 0 {
                // This process must not have the last reference when it closes them.
                close(gate)
                _ = Poll.wait(start, for: .readable, timeoutMilliseconds: -1)
                try send(pairs.map(\.near))
                // A process that ends does not linger, if it is the last to have a socket.
                _exit(0)
            }
            for pair in pairs { close(pair.near) }
            close(start)
            close(gate)
            while waitpid(child, nil, 0) == -1, errno == EINTR {}
            rounds.append(pairs.map(\.far))
            if rounds.count > kept { for peer in rounds.removeFirst() { close(peer) } }
        }
    }

    /// A TCP connection over loopback with data on its way that `far` does not read.
    private static func lingeringPair() throws(LoadError) -> (near: CInt, far: CInt) {
        let stream = CInt(SOCK_STREAM.rawValue)
        let (listener, near) = (socket(AF_INET, stream, 0), socket(AF_INET, stream, 0))
        defer { close(listener) }
        // As little memory as the kernel permits.
        SocketOption.receiveBuffer.set(1, on: listener)
        SocketOption.sendBuffer.set(1, on: near)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isConnected = unsafe withUnsafeMutablePointer(to: &address) { address in
            unsafe address.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                unsafe bind(listener, address, length) == 0 && listen(listener, 1) == 0
                    && getsockname(listener, address, &length) == 0 && connect(near, address, length) == 0
            }
        }
        let far = isConnected ? accept(listener, nil, nil) : -1
        guard far >= 0 else { throw LoadError(failed: "connecting over loopback") }
        let bytes = [UInt8](repeating: 0, count: 65_536)
        while unsafe Glibc.send(near, bytes, bytes.count, CInt(MSG_DONTWAIT)) > 0 {}
        var linger = linger(l_onoff: 1, l_linger: .max)
        let size = socklen_t(MemoryLayout<Glibc.linger>.size)
        guard unsafe setsockopt(near, SOL_SOCKET, SO_LINGER, &linger, size) == 0 else {
            throw LoadError(failed: "setsockopt")
        }
        return (near, far)
    }

    static func connectedPair() throws(LoadError) -> (near: CInt, far: CInt) {
        var ends: [CInt] = [-1, -1]
        guard socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0 else {
            throw LoadError(failed: "socketpair")
        }
        return (ends[0], ends[1])
    }

    private func crash() {
        cfloors_ignore_children()
        var next = 0
        while !isOver {
            var children: [pid_t] = []
            for _ in 0..<16 {
                next += 1
                let child = cfloors_fork()
                if child == 0 {
                    let line = Line(socketPath, (try? hello(16 * (next % 64) + number))?.bytes)
                    line.waitForAnswer()
                    _exit(1)
                }
                if child > 0 { children.append(child) }
            }
            // They end by themselves; SIGCHLD is ignored, so an ended child does not exist any more.
            for child in children { while !isOver, kill(child, 0) == 0 { usleep(500) } }
        }
    }

    /// A connection that reconnects when it has ended.
    private final class Line {
        private let path: String
        private let greeting: [UInt8]?
        private var socket: Holder?
        private var bytes = [UInt8](repeating: 0, count: 4_096)

        private final class Holder {
            let socket: SeqPacketSocket
            init(_ socket: consuming SeqPacketSocket) { self.socket = socket }
        }

        init(_ path: String, _ greeting: [UInt8]?) {
            self.path = path
            self.greeting = greeting
            connect()
        }

        private func connect() {
            do {
                let made = Holder(try SeqPacketSocket.connect(path: path))
                if let greeting { _ = try made.socket.send(greeting) }
                socket = made
            } catch {
                // The accept queue is full, or the supervisor has disconnected already.
                socket = nil
            }
        }

        /// False: the queue is full now.
        func send(_ packet: [UInt8], _ descriptors: [CInt]) -> Bool {
            guard let socket else {
                connect()
                return false
            }
            do {
                let isSent = try socket.socket.send(packet, descriptors: descriptors)
                // The supervisor disconnects a client that does not read.
                while recv(socket.socket.rawValue, &bytes, bytes.count, CInt(MSG_DONTWAIT)) > 0 {}
                return isSent
            } catch {
                connect()
                return true
            }
        }

        func waitForAnswer() {
            guard let socket else { return }
            _ = Poll.wait(socket.socket.rawValue, for: .readable, timeoutMilliseconds: 1_000)
        }
    }
}
