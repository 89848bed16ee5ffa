import EventHandlers
import EventLoop
import LinuxSystem
import Logging
import NightbellWire
import SwiftProtobuf

/// Tells the supervisor what waits for clients. It connects again whenever the supervisor was replaced, and
/// says everything again: a report says how things are.
final class SupervisorReporter {
    private let loop: HandlerLoop
    private let path: String
    private let logger: Logger
    private var socket: SeqPacketSocket?
    private var buffer = PacketBuffer(capacity: 131_072)
    private var input: DescriptorWatch?
    private var output: DescriptorWatch?
    private var timer: LoopTimer?
    private var isConnected = false
    private var isBlocked = false
    private var lastRequest: UInt64 = 0
    /// Reports without an answer.
    private var unanswered: Set<UInt64> = []
    private var pause = pauses.lowerBound
    private var lastProblem = ""
    /// Called when another supervisor is there.
    var onConnected: () -> Void = {}
    /// Called when that supervisor is there no more.
    var onDisconnected: () -> Void = {}

    private static let mostUnanswered = 32
    /// Between two attempts to connect, in milliseconds.
    private static let pauses: ClosedRange<Int64> = 50...2_000
    /// After a refusal, which only another configuration ends.
    private static let longPause: Int64 = 10_000

    init(_ loop: HandlerLoop, path: String, _ logger: Logger) {
        self.loop = loop
        self.path = path
        self.logger = logger
        timer = LoopTimer(loop) { [unowned self] in connect() }
        timer?.set(milliseconds: 0)
    }

    var hasRoom: Bool { isConnected && !isBlocked && unanswered.count < Self.mostUnanswered }

    private func connect() {
        do {
            let socket = try SeqPacketSocket.connect(path: path)
            let rawValue = socket.rawValue
            input = try DescriptorWatch(loop, rawValue, .read) { [unowned self] _ in receive() }
            output = try DescriptorWatch(loop, rawValue, .write, isArmed: false) { [unowned self] _ in
                isBlocked = false
                try? output?.setArmed(false)
            }
            self.socket = consume socket
            isConnected = true
            onConnected()
            // A connection that says nothing would be closed.
            _ = send(.status(.init()))
        } catch {
            disconnect("\(error)", after: pause)
            pause = min(2 * pause, Self.pauses.upperBound)
        }
    }

    private func disconnect(_ problem: String, after milliseconds: Int64) {
        // It may last for hours.
        if problem != lastProblem { logger.warning("the supervisor is not told of pushes: \(problem)") }
        lastProblem = problem
        input = nil
        output = nil
        socket = nil
        isBlocked = false
        unanswered = []
        if isConnected {
            isConnected = false
            onDisconnected()
        }
        timer?.set(milliseconds: milliseconds)
    }

    /// - Returns: whether it was sent.
    func report(_ recipient: Recipient, _ number: UInt64, _ urgency: Urgency?) -> Bool {
        guard hasRoom else { return false }
        let isSent = send(
            .pushesWaiting(
                .with {
                    $0.identifier = recipient.client
                    $0.uid = recipient.user
                    $0.number = number
                    $0.urgency = urgency?.wire ?? .unspecified
                }))
        if isSent { unanswered.insert(lastRequest) }
        return isSent
    }

    private func send(_ body: WireClientMessage.OneOf_Body) -> Bool {
        lastRequest += 1
        let message = WireClientMessage.with {
            $0.request = lastRequest
            $0.body = body
        }
        do {
            let bytes: [UInt8] = try message.serializedBytes()
            guard try socket?.send(bytes) == true else {
                isBlocked = true
                try output?.setArmed(true)
                return false
            }
            return true
        } catch {
            disconnect("\(error)", after: pause)
            return false
        }
    }

    private func receive() {
        do {
            while let arrival = try socket?.receive(into: &buffer) {
                switch arrival {
                case .wouldBlock: return
                case .end: return disconnect("it has ended the connection", after: pause)
                case .packet:
                    take(try WireSupervisorMessage(serializedBytes: buffer.bytes))
                }
            }
        } catch {
            disconnect("\(error)", after: pause)
        }
    }

    private func take(_ message: WireSupervisorMessage) {
        if case .error(let error)? = message.body, error.code != .invalidArgument {
            let isRefusal = error.code == .permissionDenied
            disconnect(error.message, after: isRefusal ? Self.longPause : pause)
            return pause = min(2 * pause, Self.pauses.upperBound)
        }
        unanswered.remove(message.request)
        (pause, lastProblem) = (Self.pauses.lowerBound, "")
    }
}
