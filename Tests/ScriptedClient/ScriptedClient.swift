import Glibc
import LinuxSystem
import Nightbell

/// Why a command was not carried out.
struct Refusal: Error {
    var code: String
    var message: String

    init(_ code: String, _ message: String) {
        self.code = code
        self.message = message
    }

    init(_ error: NightbellError) { self.init(error.code.rawValue, error.message) }
    init(_ error: SystemError) { self.init("system", error.description) }
}

/// The client's resources and its scripted behaviour.
final class ScriptedClient: Sendable {
    struct State {
        var client: Client?
        /// Open descriptors by name; `NAME.peer` is the other end of a pair or pipe.
        var descriptors: [String: CInt] = [:]
        var parked: [String: ParkedSocket] = [:]
        var tasks: [String: BackgroundTask] = [:]
        /// By identifier.
        var transfers: [String: TransferSession] = [:]
        /// Files are kept there; nil: they are not.
        var keptIn: String?
        var readsByItself = false
        var echoes = false
        /// Reports input in hexadecimal digits, too.
        var tellsContents = false
        var beginsTaskInWake = false
        var foregroundsWhenActivated = false
        /// How many more preparations report this name as not idle.
        var notIdle: [String: Int] = [:]
        /// How many milliseconds the next call of this handler hangs.
        var hangs: [Moment: Int] = [:]
        /// The result of its fetches; nil: it does not complete them.
        var fetchResult: FetchResult? = .newData
        /// Raised to resume all hanging handlers.
        var releases = 0
    }

    enum Moment: String, CaseIterable { case prepare, wake, enter, keepalive, transfer }

    let state = Monitor(State())
    /// The number of lines written. It is counted because the thread sanitizer takes a value without a size
    /// for its neighbour.
    private let output = Monitor(0)
    let processID = getpid()

    /// Writes one line at once.
    func say(_ line: String) {
        output.withLock { said in
            said += 1
            let bytes = Array((line + "\n").utf8)
            var written = 0
            while written < bytes.count {
                let count = bytes[written...].withUnsafeBytes { write(1, $0.baseAddress, $0.count) }
                // The reader is gone.
                if count < 0, errno != EINTR { _exit(0) }
                written += max(0, count)
            }
        }
    }

    func client() throws(Refusal) -> Client {
        guard let client = state.withLock({ $0.client }) else { throw Refusal("usage", "hello first") }
        return client
    }

    func descriptor(_ name: String) throws(Refusal) -> CInt {
        guard let descriptor = state.withLock({ $0.descriptors[name] }) else {
            throw Refusal("usage", "no descriptor is named \(name)")
        }
        return descriptor
    }

    func parked(_ name: String) throws(Refusal) -> ParkedSocket {
        guard let socket = state.withLock({ $0.parked[name] }) else {
            throw Refusal("usage", "\(name) is not handed over")
        }
        return socket
    }

    // MARK: Handlers

    func handlers() -> Client.Handlers {
        var handlers = Client.Handlers()
        handlers.restored = { self.restored($0) }
        handlers.wake = { self.woken($0) }
        handlers.fetch = { fetch in
            let result = self.state.withLock { $0.fetchResult }
            self.say("fetch budget_ms=\(fetch.budget.milliseconds) result=\(result.map { "\($0)" } ?? "-")")
            if let result { fetch.complete(result) }
        }
        handlers.push = { self.pushed($0) }
        handlers.notificationDelivered = { delivery in
            self.say("delivered \(delivery.notification.identifier) number=\(delivery.number)")
        }
        handlers.notificationActivated = { activation in
            let payload = String(decoding: activation.notification.payload, as: UTF8.self)
            self.say(
                "activated \(activation.notification.identifier) action=\(activation.action) payload=\(payload)"
                    + " token=\(activation.token)")
            if self.state.withLock({ $0.foregroundsWhenActivated }) { self.enterForeground() }
        }
        handlers.prepareToSuspend = { self.prepare() }
        handlers.suspendCancelled = { self.say("cancelled at=\(BootClock.now())") }
        handlers.didEnterBackground = {
            self.say("did-enter-background at=\(BootClock.now())")
            self.hang(.enter)
        }
        handlers.backgroundTimeExpiring = { self.say("expiring remaining_ms=\($0.milliseconds)") }
        handlers.willTerminate = { self.say("will-terminate budget_ms=\($0.milliseconds)") }
        handlers.connectionLost = { self.say("lost \($0.code.rawValue) \($0.message)") }
        handlers.reconnected = { self.say("reconnected") }
        handlers.socketLost = { self.say("socket-lost \($0.name) \($1.code.rawValue)") }
        handlers.keepAliveLost = { self.say("keepalive-lost \($0.code.rawValue)") }
        return handlers
    }

    private func restored(_ context: LaunchContext) {
        state.withLock { state in
            for socket in context.sockets {
                state.parked[socket.name] = socket
                state.descriptors[socket.name] = socket.descriptor
            }
        }
        let sockets = context.sockets.map { "\($0.name):\($0.descriptor)" }.joined(separator: ",")
        say(
            "restored launched=\(context.wasLaunched) sockets=\(sockets.isEmpty ? "-" : sockets) "
                + "state=\(String(decoding: context.state, as: UTF8.self))")
    }

    /// Connects to the test, and makes that connection its standard input and output.
    static func connectToControl() {
        guard let path = getenv("CLIENT_CONTROL") else { return }
        let descriptor = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) {
            $0.copyBytes(from: UnsafeRawBufferPointer(start: path, count: strlen(path)))
        }
        let length = socklen_t(MemoryLayout<sockaddr_un>.size)
        let connected = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(descriptor, $0, length) }
        }
        guard connected == 0 else { exit(3) }
        dup2(descriptor, 0)
        dup2(descriptor, 1)
        close(descriptor)
    }

    func keepAlive() {
        say("keepalive at=\(BootClock.now())")
        hang(.keepalive)
    }

    private func woken(_ wake: Wake) {
        let now = BootClock.now()
        let sockets = wake.sockets.map { "\($0.socket.name):\($0.conditions)" }.joined(separator: ",")
        say(
            "wake id=\(wake.id) reasons=\(wake.reasons) sockets=\(sockets.isEmpty ? "-" : sockets) "
                + "asleep_ns=\(wake.asleepFor.nanoseconds) budget_ms=\(wake.budget.milliseconds) at=\(now)")
        for occurrence in wake.occurrences {
            say(
                "observed \(occurrence.name) \(words(occurrence.kind))"
                    + (occurrence.isSimulated ? " simulated" : ""))
        }
        for session in wake.finishedTransfers { say("finished-transfers \(session)") }
        if state.withLock({ $0.beginsTaskInWake }) { beginTaskInWake(wake) }
        if state.withLock({ $0.readsByItself }) {
            for event in wake.sockets { drain(event.socket) }
        }
        hang(.wake)
    }

    private func words(_ kind: Occurrence.Kind) -> String {
        switch kind {
        case .moved(let position): "moved \(position.latitude) \(position.longitude)"
        case .entered: "entered"
        case .exited: "exited"
        case .connected(let node): "connected" + (node.isEmpty ? "" : " \(node)")
        case .disconnected: "disconnected"
        case .value(let value): "value \(value)"
        case .finished: "finished"
        case .pushed(let urgency): "pushed \(urgency.rawValue)"
        }
    }

    /// Takes all messages and says them; how it ends is decided as for fetches.
    private func pushed(_ pushes: Pushes) {
        let result = state.withLock { $0.fetchResult }
        say("push budget_ms=\(pushes.budget.milliseconds) result=\(result.map { "\($0)" } ?? "-")")
        _ = Thread.start {
            do throws(NightbellError) {
                while case let messages = try pushes.take(), !messages.isEmpty {
                    for message in messages {
                        let text = String(validating: message.body, as: UTF8.self)
                        self.say("pushed \(message.id) \(text ?? "hex:" + Self.hex(message.body[...]))")
                        if result != .failed, result != nil { try pushes.acknowledge(message) }
                    }
                }
                if let result { pushes.complete(result) }
            } catch {
                self.say("push-failed \(error.code.rawValue)")
                pushes.complete(.failed)
            }
        }
    }

    private func enterForeground() {
        guard let client = try? client() else { return }
        do throws(NightbellError) {
            try client.enterForeground()
            say("entered-foreground")
        } catch {
            say("not in the foreground: \(error.code.rawValue)")
        }
    }

    private func beginTaskInWake(_ wake: Wake) {
        guard let client = try? client() else { return }
        let name = "wake-\(wake.id)"
        do throws(NightbellError) {
            let task = try client.beginBackgroundTask(name)
            state.withLock { $0.tasks[name] = task }
            say("began \(name) valid=\(task.isValid)")
        } catch {
            say("began \(name) \(error.code.rawValue)")
        }
    }

    private func prepare() -> [ParkedSocket] {
        say("prepare at=\(BootClock.now())")
        hang(.prepare)
        return state.withLock { state in
            var busy: [ParkedSocket] = []
            for (name, count) in state.notIdle where count > 0 {
                state.notIdle[name] = count - 1
                if let socket = state.parked[name] { busy.append(socket) }
            }
            return busy
        }
    }

    /// Hangs if the script says so, until the time is over or `unhang` comes.
    func hang(_ moment: Moment) {
        let (milliseconds, releases) = state.withLock { ($0.hangs.removeValue(forKey: moment), $0.releases) }
        guard let milliseconds else { return }
        let deadline = BootClock.now() + Int64(milliseconds) * 1_000_000
        state.turn { state in
            let left = deadline - BootClock.now()
            return left <= 0 || state.releases != releases ? .done(()) : .wait(left)
        }
        say("unhung \(moment.rawValue) at=\(BootClock.now())")
    }

    // MARK: Reading

    /// Reads all pending data, or accepts all pending connections.
    func drain(_ socket: ParkedSocket) {
        let name = socket.name
        while !Poll.now(socket.descriptor).isDisjoint(with: [.readable, .hangUp, .error]) {
            if socket.tag == .listener {
                let accepted = accept(socket.descriptor, nil, nil)
                guard accepted >= 0 else { return }
                say("accepted \(name) \(BootClock.now())")
                close(accepted)
                continue
            }
            guard readOnce(socket.descriptor, name) else { return }
        }
    }

    /// False: there is no more input.
    func readOnce(_ descriptor: CInt, _ name: String) -> Bool {
        var bytes = [UInt8](repeating: 0, count: 65_536)
        let count = read(descriptor, &bytes, bytes.count)
        let now = BootClock.now()
        if count < 0 {
            let code = errno
            say("read-error \(name) \(SystemError.message(for: code)) errno=\(code) \(now)")
            return false
        }
        if count == 0 {
            say("eof \(name) \(now)")
            return false
        }
        let contents = state.withLock { $0.tellsContents } ? " " + Self.hex(bytes[..<count]) : ""
        say("read \(name) \(count) \(now)\(contents)")
        if state.withLock({ $0.echoes }) { _ = write(descriptor, bytes, count) }
        return true
    }
}

extension Duration {
    var nanoseconds: Int64 { components.seconds * 1_000_000_000 + components.attoseconds / 1_000_000_000 }
    var milliseconds: Int64 { nanoseconds / 1_000_000 }
}
