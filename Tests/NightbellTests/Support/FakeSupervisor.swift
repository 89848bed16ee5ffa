import Glibc
import LinuxSystem
import Nightbell
import NightbellWire
import SwiftProtobuf
import Testing

/// A scripted supervisor: it listens, records the clients' messages, and answers by its script.
final class FakeSupervisor: Sendable {
    typealias Body = WireSupervisorMessage.OneOf_Body

    /// The memory that holds the wake words of its clients, if it gives them any.
    final class WakePage: Sendable {
        /// Sendable: written by tests only, one word at a time.
        nonisolated(unsafe) private let page: SharedPage
        static let index = 5

        init() throws(SystemError) { page = try SharedPage(name: "test") }

        var descriptor: CInt { page.descriptor.rawValue }

        /// Simulates that a socket ended the suspension of this epoch.
        func set(epoch: UInt64, conditions: UInt64 = 1) {
            unsafe page.word(at: Self.index).store(epoch << 8 | conditions)
        }
    }

    struct Received: Sendable {
        var connection: Int
        var message: WireClientMessage
        var descriptors: Int
    }

    /// The script's alternatives to the usual answer.
    enum Reaction: Sendable {
        case usual
        case silence
        case answer([Body])
        /// These first, with request 0, then the usual answer.
        case unsolicitedFirst([Body])
        case raw([UInt8])
        case hangUp
    }

    private struct State {
        var received: [Received] = []
        var connection: Connection?
        var connections = 0
        var script: @Sendable (WireClientMessage) -> Reaction = { _ in .usual }
        var nextToken: UInt64 = 0x1000
        var nextTask: UInt64 = 1
        var isReading = true
        var wakePage: WakePage?
    }

    /// A connection that can be used by the supervisor's thread and by the test's.
    private final class Connection: Sendable {
        let socket: SeqPacketSocket
        init(_ socket: consuming SeqPacketSocket) { self.socket = socket }
    }

    private final class Listener: Sendable {
        let socket: SeqPacketSocket
        init(path: String) throws(SystemError) {
            socket = try SeqPacketSocket.listen(path: path, mode: 0o600, backlog: 16)
        }
    }

    let path: String
    private let state = Monitor(State())
    private let listener = Monitor<Listener?>(nil)

    init() throws {
        var template = Array("/tmp/nightbell-test-XXXXXX".utf8CString)
        let made = template.withUnsafeMutableBufferPointer { $0.baseAddress.flatMap { mkdtemp($0) } }
        path = String(cString: try #require(made)) + "/nightbell.sock"
        try start()
    }

    deinit {
        stop()
        unlink(path)
        rmdir(String(path.dropLast("/nightbell.sock".count)))
    }

    // MARK: Called by the test

    func start() throws {
        let listener = try Listener(path: path)
        self.listener.withLock { $0 = listener }
        let state = state
        startThread { Self.serve(listener, state) }
    }

    /// Simulates a crash: it stops listening, and the connection ends.
    func stop() {
        listener.withLock { listener in
            if let listener { _ = shutdown(listener.socket.rawValue, CInt(SHUT_RDWR)) }
            listener = nil
        }
        hangUp()
    }

    func hangUp() {
        state.withLock { state in
            if let connection = state.connection { _ = shutdown(connection.socket.rawValue, CInt(SHUT_RDWR)) }
        }
    }

    func script(_ script: @escaping @Sendable (WireClientMessage) -> Reaction) {
        state.withLock { $0.script = script }
    }

    /// Clients that register from now on get a wake word if they request one.
    func giveWakeWords() throws -> WakePage {
        let page = try WakePage()
        state.withLock { $0.wakePage = page }
        return page
    }

    /// While false, the clients' messages pile up.
    func setReading(_ reading: Bool) {
        state.withLock { $0.isReading = reading }
        state.changed()
    }

    func send(_ body: Body, request: UInt64 = 0) throws {
        let message = WireSupervisorMessage.with {
            $0.request = request
            $0.body = body
        }
        try send(raw: message.serializedBytes())
    }

    func send(raw bytes: [UInt8]) throws {
        let connection = try #require(state.withLock { $0.connection })
        #expect(try connection.socket.send(bytes))
    }

    func wake(_ id: UInt64, _ reasons: [WireWakeReason], tokens: [UInt64] = []) throws {
        try send(.wake(.sample(id, reasons, tokens: tokens)))
    }

    /// The next message that `pick` accepts; earlier ones are dropped.
    func expect<Picked: Sendable>(
        _ what: String, sourceLocation: SourceLocation = #_sourceLocation,
        _ pick: (Received) -> Picked?
    ) throws -> Picked {
        let deadline = BootClock.now() + 20_000_000_000
        let picked: Picked? = state.turn { state in
            for (index, received) in state.received.enumerated() {
                if let picked = pick(received) {
                    state.received.removeFirst(index + 1)
                    return .done(picked)
                }
            }
            let left = deadline - BootClock.now()
            return left > 0 ? .wait(left) : .done(nil)
        }
        return try #require(picked, "no \(what) arrived", sourceLocation: sourceLocation)
    }

    /// The messages that have arrived and were not expected yet.
    var unexpected: [WireClientMessage] { state.withLock { $0.received.map(\.message) } }

    // MARK: Run by its thread

    private static func serve(_ listener: Listener, _ state: Monitor<State>) {
        while true {
            let readiness = Poll.wait(listener.socket.rawValue, for: .readable, timeoutMilliseconds: -1)
            if readiness.contains(.hangUp) { return }
            guard let socket = try? listener.socket.accept() else { return }
            let connection = Connection(socket)
            let number = state.withLock { state in
                state.connections += 1
                state.connection = connection
                return state.connections
            }
            serve(connection, number, state)
            state.withLock { if $0.connection === connection { $0.connection = nil } }
        }
    }

    private static func serve(_ connection: Connection, _ number: Int, _ state: Monitor<State>) {
        var buffer = PacketBuffer()
        while true {
            _ = Poll.wait(connection.socket.rawValue, for: .readable, timeoutMilliseconds: -1)
            state.turn { $0.isReading ? .done(()) : .wait(60_000_000_000) }
            guard case .packet? = try? connection.socket.receive(into: &buffer),
                let message = try? WireClientMessage(serializedBytes: buffer.bytes)
            else { return }
            let received = Received(
                connection: number, message: message, descriptors: buffer.descriptorCount)
            let (script, usual, page) = state.withLock { state in
                state.received.append(received)
                return (state.script, usualAnswer(to: message, &state), state.wakePage)
            }
            state.changed()
            let wakePage = message.hello.wantsWakeWord ? page : nil
            guard react(script(message), usual, message.request, connection, wakePage) else { return }
        }
    }

    private static func react(
        _ reaction: Reaction, _ usual: [Body], _ request: UInt64, _ connection: Connection,
        _ page: WakePage?
    ) -> Bool {
        func send(_ bodies: [Body], _ request: UInt64) {
            for body in bodies {
                let message = WireSupervisorMessage.with {
                    if case .didEnterBackground = body { $0.request = 0 } else { $0.request = request }
                    $0.body = body
                }
                let descriptors = page.map { [$0.descriptor] } ?? []
                _ = try? connection.socket.send(message.serializedBytes(), descriptors: descriptors)
            }
        }
        switch reaction {
        case .usual: send(usual, request)
        case .silence: break
        case .answer(let bodies): send(bodies, request)
        case .unsolicitedFirst(let bodies):
            send(bodies, 0)
            send(usual, request)
        case .raw(let bytes): _ = try? connection.socket.send(bytes)
        case .hangUp: return false
        }
        return true
    }

    private static func usualAnswer(to message: WireClientMessage, _ state: inout State) -> [Body] {
        guard message.request != 0 else { return [] }
        switch message.body {
        case .hello:
            return [
                .welcome(
                    .with {
                        $0.version = 1
                        $0.minimumKeepAliveTimeoutMs = 600_000
                        $0.suspension = "signal"
                        $0.wakeBudgetMs = 10_000
                        $0.wakeWord = UInt32(WakePage.index)
                    })
            ]
        case .handOver(let handOver):
            return [
                .handedOver(
                    .with { answer in
                        for _ in handOver.sockets {
                            answer.adoptions.append(.with { $0.token = state.nextToken })
                            state.nextToken += 1
                        }
                    })
            ]
        case .enterBackground:
            return [.done(.init()), .didEnterBackground(.with { $0.budgetMs = 5_000 })]
        case .beginBackgroundTask:
            defer { state.nextTask += 1 }
            return [.backgroundTask(.with { $0.taskID = state.nextTask })]
        case .backgroundTimeRemaining:
            return [.backgroundTimeLeft(.with { $0.remainingMs = 170_000 })]
        default:
            return [.done(.init())]
        }
    }
}

extension WireWake {
    static func sample(_ id: UInt64, _ reasons: [WireWakeReason], tokens: [UInt64] = []) -> WireWake {
        .with {
            $0.wakeID = id
            $0.reasons = reasons
            $0.budgetMs = 10_000
            $0.asleepNs = 2_500_000_000
            $0.sockets = tokens.map { token in
                .with {
                    $0.token = token
                    $0.readable = true
                }
            }
        }
    }
}

extension WireError {
    static func sample(_ code: WireErrorCode, _ message: String = "as the test says.") -> WireError {
        .with {
            $0.code = code
            $0.message = message
        }
    }
}

/// Runs on a thread of its own, not on one of the few that the tests share.
func startThread(_ body: @escaping @Sendable () -> Void) {
    final class Box {
        let body: @Sendable () -> Void
        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    }
    var thread = pthread_t()
    let context = Unmanaged.passRetained(Box(body)).toOpaque()
    let result = pthread_create(
        &thread, nil,
        { context in
            guard let context else { return nil }
            Unmanaged<Box>.fromOpaque(context).takeRetainedValue().body()
            return nil
        }, context)
    precondition(result == 0)
    pthread_detach(thread)
}
