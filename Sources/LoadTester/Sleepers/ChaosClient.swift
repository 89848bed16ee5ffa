import CFloors
import Glibc
import Nightbell
import Simulation

/// A client with many sockets, which checks every byte that it reads.
final class ChaosClient {
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

    /// - Parameters:
    ///   - isHeir: the sockets are those of the client's last process, parked already.
    ///   - keptBack: so many of the first sockets are not handed over, as if the supervisor forgot to watch them.
    init(
        _ index: Int, _ sockets: [CInt], _ area: ChaosArea, supervisorSocket: String, isHeir: Bool = false,
        keptBack: Int = 0
    ) throws {
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
        if !isHeir {
            let survives = ChaosArea.comesBack(index)
            let offers = sockets.enumerated().dropFirst(keptBack).map {
                Client.SocketToPark($1, as: .voip, name: "\(first + $0)", survives: survives)
            }
            for result in try client.handOver(offers) { _ = try result.get() }
        }
        if !ChaosArea.isLone(index) { try keepAlive() }
        area[index, .pid] = UInt64(getpid())
        if isHeir { area[index, .returns] += 1 } else { try client.enterBackground() }
    }

    /// Sets a timeout of its own, and notes the runs of the handler.
    private func keepAlive() throws {
        var random = SplitMix64(seed: UInt64(index))
        let timeout = Int64.random(in: 3_000...9_000, using: &random)
        area[index, .timeout] = UInt64(timeout) * 1_000_000
        area[index, .ranAt] = UInt64(monotonicNow())
        let index = index
        nonisolated(unsafe) let shared = area
        try client.setKeepAliveTimeout(.milliseconds(timeout)) {
            let now = UInt64(monotonicNow())
            shared[index, .keepAliveRuns] += 1
            if now - shared[index, .ranAt] > shared[index, .timeout] { shared[index, .keepAliveLate] += 1 }
            shared[index, .ranAt] = now
        }
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
            endItselfIfWanted()
            guard count > 1 else { continue }
            for place in sockets.indices where waiting[place + 1].revents != 0 && !state.isWaiting {
                Self.take(sockets[place], first + place, life, area, state)
                if area[socket: first + place, .ended] != 0 { waiting[place + 1].fd = -1 }
            }
        }
    }

    /// A client that reads and does not note it would have lost that: so it ends where it has noted everything.
    private func endItselfIfWanted() {
        guard area[index, .crashes] < area[index, .wantedCrashes] else { return }
        area[index, .crashes] += 1
        area[index, .pid] = 0
        kill(getpid(), SIGKILL)
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
