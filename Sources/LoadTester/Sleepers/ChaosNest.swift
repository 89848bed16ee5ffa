import CFloors
import Glibc
import Nightbell

/// The process that the clients of a chaos run are forked from, again for each of their lives.
///
/// Inherits the area as descriptor 3 and the end of a pipe as descriptor 4.
struct ChaosNest {
    private let clients: Int
    private let socketsPerClient: Int
    private let transport: Transport
    private let place: String
    private let supervisorSocket: String
    private let area: ChaosArea

    static func arguments(_ area: ChaosArea, _ callers: ChaosCallers, supervisorSocket: String) -> [String] {
        [
            "\(area.clients)", "\(area.socketsPerClient)", callers.transport.rawValue, callers.place,
            supervisorSocket,
        ]
    }

    init(_ arguments: [String]) throws(LoadError) {
        guard arguments.count == 5, let clients = Int(arguments[0]), let each = Int(arguments[1]),
            let transport = Transport(rawValue: arguments[2])
        else { throw .missing("arguments") }
        self.clients = clients
        socketsPerClient = each
        self.transport = transport
        place = arguments[3]
        supervisorSocket = arguments[4]
        area = try ChaosArea(clients: clients, socketsPerClient: each, inherited: 3)
    }

    /// Gives everybody the life that the harness wants it to have, until the harness ends.
    func run() throws {
        cfloors_ignore_children()
        cfloors_catch_interrupts()
        var ending = pollfd(fd: 4, events: Int16(POLLIN), revents: 0)
        repeat {
            for index in 0..<clients where area[index, .life] != area[index, .wantedLife] {
                area[index, .life] = area[index, .wantedLife]
                let child = cfloors_fork()
                guard child >= 0 else { throw LoadError(failed: "fork") }
                if child == 0 { becomeClient(index) }
            }
        } while cfloors_interrupted() == 0 && poll(&ending, 1, 5) == 0
    }

    private func becomeClient(_ index: Int) -> Never {
        do {
            signal(SIGTERM, SIG_DFL)
            var kept: [CInt] = [3]
            cfloors_close_all_but(&kept, 1)
            let first = index * socketsPerClient
            var sockets: [CInt] = []
            for socket in first..<first + socketsPerClient {
                sockets.append(try transport.connect(to: place, as: socket))
            }
            try ChaosClient(index, sockets, area, supervisorSocket: supervisorSocket).run()
        } catch {
            complain("client \(index): \(error)")
        }
        area[index, .connectionsLost] += 1
        _exit(1)
    }
}

/// A client with many sockets, which checks every byte that it reads.
private final class ChaosClient {
    private let index: Int
    private let sockets: [CInt]
    private let area: ChaosArea
    private let client: Client
    private let life: UInt64
    /// Whether its sockets are its own at the moment.
    private let state: State

    private final class State: @unchecked Sendable {
        // Sendable: the client has no thread of its own, all runs on this one.
        var isWaiting = false
        var bytes = [UInt8](repeating: 0, count: 65_536)
    }

    init(_ index: Int, _ sockets: [CInt], _ area: ChaosArea, supervisorSocket: String) throws {
        self.index = index
        self.sockets = sockets
        self.area = area
        let life = area[index, .life]
        self.life = life
        let state = State()
        self.state = state
        var configuration = Client.Configuration(
            identifier: "org.nightbell.chaos.c\(index)", socketPath: supervisorSocket)
        configuration.driver = .manual
        configuration.requestTimeout = .seconds(60)
        nonisolated(unsafe) let shared = area
        var handlers = Client.Handlers()
        handlers.prepareToSuspend = {
            state.isWaiting = true
            return []
        }
        handlers.suspendCancelled = { state.isWaiting = false }
        handlers.connectionLost = { _ in
            state.isWaiting = false
            shared[index, .connectionsLost] += 1
        }
        let first = index * area.socketsPerClient
        handlers.wake = { wake in
            state.isWaiting = false
            shared[index, .wakes] += 1
            if wake.isRepeated { shared[index, .repeated] += 1 }
            for event in wake.sockets {
                guard let place = sockets.firstIndex(of: event.socket.descriptor) else { continue }
                Self.take(sockets[place], first + place, life, shared, state)
            }
        }
        client = try Client(configuration, handlers: handlers)
        let offers = sockets.map { Client.SocketToPark($0, as: .voip) }
        for result in try client.handOver(offers) { _ = try result.get() }
        var random = SeededRandom(seed: UInt64(index))
        let timeout = Int64.random(in: 3_000...9_000, using: &random)
        area[index, .timeout] = UInt64(timeout) * 1_000_000
        area[index, .ranAt] = UInt64(monotonicNow())
        try client.setKeepAliveTimeout(.milliseconds(timeout)) {
            let now = UInt64(monotonicNow())
            shared[index, .keepAliveRuns] += 1
            if now - shared[index, .ranAt] > shared[index, .timeout] { shared[index, .keepAliveLate] += 1 }
            shared[index, .ranAt] = now
        }
        area[index, .pid] = UInt64(getpid())
        try client.enterBackground()
    }

    /// Serves until something ends that should not.
    func run() throws {
        var waiting = ([client.fileDescriptor] + sockets).map {
            pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
        }
        let first = index * area.socketsPerClient
        while true {
            // About to sleep, it leaves its sockets to the supervisor.
            let count = state.isWaiting ? 1 : waiting.count
            guard poll(&waiting, nfds_t(count), -1) >= 0 || errno == EINTR else {
                throw LoadError(failed: "poll")
            }
            if waiting[0].revents != 0 { try client.processPending() }
            guard count > 1 else { continue }
            for place in sockets.indices where waiting[place + 1].revents != 0 && !state.isWaiting {
                Self.take(sockets[place], first + place, life, area, state)
                if area[socket: first + place, .ended] != 0 { waiting[place + 1].fd = -1 }
            }
        }
    }

    /// Reads all there is and compares it with what it should be.
    private static func take(
        _ socket: CInt, _ number: Int, _ life: UInt64, _ area: ChaosArea, _ state: State
    ) {
        while true {
            let count = recv(socket, &state.bytes, state.bytes.count, CInt(MSG_DONTWAIT))
            guard count > 0 else {
                if count == 0 || (errno != EAGAIN && errno != EINTR) { area[socket: number, .ended] = 1 }
                return
            }
            var offset = area[socket: number, .received]
            for byte in state.bytes[..<count] {
                if byte != ChaosArea.byte(number, life, offset) { area[socket: number, .wrong] += 1 }
                offset += 1
            }
            area[socket: number, .received] = offset
        }
    }
}
