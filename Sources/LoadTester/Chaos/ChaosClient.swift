import CFloors
import Glibc
import Nightbell
import Simulation

/// A client with many sockets, which checks every byte that it reads.
final class ChaosClient {
    private let index: Int
    private let sockets: [CInt]
    private let sharedMemory: ChaosSharedMemory
    private let client: Client
    private let generation: UInt64
    /// Whether the client owns its sockets at the moment.
    private let state: State

    private final class State: @unchecked Sendable {
        // Sendable: the client has no thread of its own, all runs on this one.
        var isWaiting = false
        var bytes = [UInt8](repeating: 0, count: 65_536)
    }

    /// - Parameters:
    ///   - isRelaunched: the sockets are inherited from the client's last process, and parked already.
    ///   - withheldSockets: the number of sockets that are not handed over, as if the supervisor forgot to
    ///     watch them.
    init(
        _ index: Int, _ sockets: [CInt], _ sharedMemory: ChaosSharedMemory, supervisorSocket: String,
        isRelaunched: Bool = false,
        withheldSockets: Int = 0
    ) throws {
        self.index = index
        self.sockets = sockets
        self.sharedMemory = sharedMemory
        let generation = sharedMemory[index, .generation]
        self.generation = generation
        let state = State()
        self.state = state
        var configuration = Client.Configuration(
            identifier: "org.nightbell.chaos.c\(index)", socketPath: supervisorSocket)
        configuration.driver = .manual
        configuration.requestTimeout = .seconds(60)
        nonisolated(unsafe) let shared = sharedMemory
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
        let first = index * sharedMemory.socketsPerClient
        handlers.wake = { wake in
            state.isWaiting = false
            shared[index, .wakes] += 1
            if wake.isRepeated { shared[index, .repeated] += 1 }
            for event in wake.sockets {
                guard let place = sockets.firstIndex(of: event.socket.descriptor) else { continue }
                Self.readAll(sockets[place], first + place, generation, shared, state)
            }
        }
        client = try Client(configuration, handlers: handlers)
        if !isRelaunched {
            let survives = ChaosSharedMemory.isRelaunchable(index)
            let offers = sockets.enumerated().dropFirst(withheldSockets).map {
                Client.SocketToPark($1, as: .voip, name: "\(first + $0)", survives: survives)
            }
            for result in try client.handOver(offers) { _ = try result.get() }
        }
        if !ChaosSharedMemory.isIsolated(index) { try keepAlive() }
        sharedMemory[index, .pid] = UInt64(getpid())
        if isRelaunched { sharedMemory[index, .returns] += 1 } else { try client.enterBackground() }
    }

    /// Sets a random timeout, and records the runs of the handler.
    private func keepAlive() throws {
        var random = SplitMix64(seed: UInt64(index))
        let timeout = Int64.random(in: 3_000...9_000, using: &random)
        sharedMemory[index, .timeout] = UInt64(timeout) * 1_000_000
        sharedMemory[index, .ranAt] = UInt64(monotonicNow())
        let index = index
        nonisolated(unsafe) let shared = sharedMemory
        try client.setKeepAliveTimeout(.milliseconds(timeout)) {
            let now = UInt64(monotonicNow())
            shared[index, .keepAliveRuns] += 1
            if now - shared[index, .ranAt] > shared[index, .timeout] { shared[index, .keepAliveLate] += 1 }
            shared[index, .ranAt] = now
        }
    }

    /// Serves until a failure.
    func run() throws {
        var waiting = ([client.fileDescriptor] + sockets).map {
            pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
        }
        let first = index * sharedMemory.socketsPerClient
        while true {
            // A client that is about to sleep leaves its sockets to the supervisor.
            let count = state.isWaiting ? 1 : waiting.count
            guard poll(&waiting, nfds_t(count), -1) >= 0 || errno == EINTR else {
                throw LoadError(failed: "poll")
            }
            if waiting[0].revents != 0 { try client.processPending() }
            crashIfRequested()
            guard count > 1 else { continue }
            for place in sockets.indices where waiting[place + 1].revents != 0 && !state.isWaiting {
                Self.readAll(sockets[place], first + place, generation, sharedMemory, state)
                if sharedMemory[socket: first + place, .ended] != 0 { waiting[place + 1].fd = -1 }
            }
        }
    }

    /// Bytes that were read and not yet recorded would be lost, so the client crashes only where it has
    /// recorded all.
    private func crashIfRequested() {
        guard sharedMemory[index, .crashes] < sharedMemory[index, .requestedCrashes] else { return }
        sharedMemory[index, .crashes] += 1
        sharedMemory[index, .pid] = 0
        kill(getpid(), SIGKILL)
    }

    /// Reads all available bytes and compares them with the expected ones.
    private static func readAll(
        _ socket: CInt, _ number: Int, _ generation: UInt64, _ sharedMemory: ChaosSharedMemory, _ state: State
    ) {
        while true {
            let count = recv(socket, &state.bytes, state.bytes.count, CInt(MSG_DONTWAIT))
            guard count > 0 else {
                if count == 0 || (errno != EAGAIN && errno != EINTR) {
                    sharedMemory[socket: number, .ended] = 1
                }
                return
            }
            var offset = sharedMemory[socket: number, .received]
            for byte in state.bytes[..<count] {
                if byte != ChaosSharedMemory.byte(number, generation, offset) {
                    sharedMemory[socket: number, .wrong] += 1
                }
                offset += 1
            }
            sharedMemory[socket: number, .received] = offset
        }
    }
}
