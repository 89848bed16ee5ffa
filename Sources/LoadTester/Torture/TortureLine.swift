import CFloors
import CTorture
import Glibc
import LinuxSystem

/// The checker's end of the line of one thread or process of a program.
final class TortureLine {
    enum Reach {
        case line
        case signal(CInt)
        case port(UInt16)
        /// It only reports.
        case nothing
    }

    /// A call that has no answer yet.
    struct Call {
        let number: UInt64
        let since: Int64
        /// The process that was killed instead of being called: another one is to say hello.
        var killed: pid_t?
    }

    let kind: TortureKind
    let program: Int
    let process: pid_t
    let reach: Reach
    private let socket: OwnedDescriptor
    private(set) var hasEnded = false
    var call: Call?
    var calls: UInt64 = 0
    /// When something came last.
    var lastReport: Int64
    private var buffer: [UInt8] = []
    /// Bytes to be read before the next message.
    private var flood = 0
    /// It is not read before this time.
    private(set) var readsFrom: Int64 = 0
    /// The rest of a call, and when it is to be sent.
    private var secondHalf: (bytes: ArraySlice<UInt8>, at: Int64)?
    /// The connection of a call.
    private var connection: OwnedDescriptor?

    init(_ socket: consuming OwnedDescriptor, _ hello: ctorture_message) {
        self.socket = socket
        kind = TortureKind(rawValue: Int32(hello.kind))
        program = Int(hello.program)
        process = hello.process
        reach =
            switch hello.number {
            case 0: .line
            case .max: .nothing
            case 1_000...: .port(UInt16(truncatingIfNeeded: hello.number - 1_000))
            default: .signal(CInt(hello.number))
            }
        lastReport = monotonicNow()
    }

    var descriptor: CInt { socket.rawValue }

    var isCallable: Bool {
        if case .nothing = reach { return false }
        return !hasEnded && call == nil && kind.role != ctorture_timed
    }

    private static let size = MemoryLayout<ctorture_message>.size

    // MARK: Calls

    /// Calls, in the way of its kind.
    ///
    /// - Parameters:
    ///   - delay: until the call is complete, or its answer read, where that is of interest.
    ///   - kills: whether to kill the process instead, if it is one of those.
    func callNow(parent: pid_t, delay: Int64, kills: Bool) throws(LoadError) {
        calls += 1
        let now = monotonicNow()
        if kind.role == ctorture_mortal, kills {
            call = Call(number: calls, since: now, killed: process)
            kill(process, SIGKILL)
            return
        }
        let message = ctorture_message(
            type: ctorture_call.rawValue, kind: UInt32(kind.rawValue), value: 0, process: 0,
            program: UInt32(program), unused: 0, number: calls)
        let bytes = withUnsafeBytes(of: message) { Array($0) }
        switch reach {
        case .nothing: return
        case .signal(let number):
            call = Call(number: 0, since: now)
            kill(parent, number)
        case .port(let port):
            call = Call(number: calls, since: now)
            let caller = try Transport.tcp.makeSocket()
            try Transport.tcp.connect(caller.rawValue, to: "\(port)")
            try send(bytes[...], on: caller.rawValue)
            connection = consume caller
        case .line:
            let isDelayed = [ctorture_halved, ctorture_flooding].contains(kind.role)
            call = Call(number: calls, since: isDelayed ? now + delay : now)
            switch kind.role {
            case ctorture_halved:
                try send(bytes.prefix(10), on: descriptor)
                secondHalf = (bytes.dropFirst(10), now + delay)
            case ctorture_flooding:
                flood = Int(CTORTURE_FLOOD)
                readsFrom = now + delay
                try send(bytes[...], on: descriptor)
            default: try send(bytes[...], on: descriptor)
            }
        }
    }

    func proceed(at now: Int64) throws(LoadError) {
        guard let rest = secondHalf, rest.at <= now else { return }
        secondHalf = nil
        try send(rest.bytes, on: descriptor)
    }

    private func send(_ bytes: ArraySlice<UInt8>, on descriptor: CInt) throws(LoadError) {
        let sent = bytes.withUnsafeBytes {
            Glibc.send(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
        }
        guard sent != bytes.count else { return }
        // It ends at this moment: its end is noticed.
        guard errno == EPIPE || errno == ECONNRESET else { throw LoadError(failed: "call \(kind.name)") }
    }

    // MARK: Reports

    /// Reads what is there, and passes on the messages.
    func receive(_ handle: (ctorture_message) -> Void) {
        var bytes = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = recv(descriptor, &bytes, bytes.count, CInt(MSG_DONTWAIT))
            if count == 0 || count < 0 && errno != EAGAIN && errno != EINTR { hasEnded = true }
            guard count > 0 else { break }
            let skipped = min(flood, count)
            flood -= skipped
            buffer += bytes[skipped..<count]
        }
        while buffer.count >= Self.size {
            let message = buffer.withUnsafeBytes { $0.loadUnaligned(as: ctorture_message.self) }
            buffer.removeFirst(Self.size)
            lastReport = monotonicNow()
            if message.type == ctorture_answer.rawValue { connection = nil }
            handle(message)
        }
    }
}
