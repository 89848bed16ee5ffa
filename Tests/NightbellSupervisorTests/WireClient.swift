import Foundation
import LinuxSystem
import NightbellWire
import SwiftProtobuf

/// A client that speaks the bare protocol, so that tests can also send messages that the library never would.
final class WireClient {
    let socket: SeqPacketSocket
    private var buffer = PacketBuffer()
    private var lastRequest: UInt64 = 0
    /// Unrequested messages of the supervisor that have not been read yet.
    private var notices: [WireSupervisorMessage] = []
    private var events: [WireWatchEvent] = []

    static let patience: Int32 = 10_000

    init(path: String) throws {
        socket = try Self.connect(path)
    }

    init(adopting descriptor: consuming OwnedDescriptor) {
        socket = SeqPacketSocket(adopting: descriptor)
    }

    private static func connect(_ path: String) throws(SystemError) -> SeqPacketSocket {
        let until = BootClock.now() + Int64(patience) * 1_000_000
        while true {
            do {
                return try SeqPacketSocket.connect(path: path)
            } catch {
                // With a full backlog the kernel returns EAGAIN.
                guard error.code == EAGAIN, BootClock.now() < until else { throw error }
                sched_yield()
            }
        }
    }

    convenience init(_ supervisor: TestSupervisor) throws {
        try self.init(path: supervisor.socketPath)
    }

    /// Connects and says Hello.
    convenience init(
        _ supervisor: TestSupervisor, _ identifier: String, modes: [WireMode] = [.voip],
        policy: WireWakeLimitPolicy = .linger
    ) throws {
        try self.init(supervisor)
        try hello(identifier, modes: modes, policy: policy)
    }

    func hello(
        _ identifier: String, modes: [WireMode] = [.voip], policy: WireWakeLimitPolicy = .linger,
        wantsNetworkChanges: Bool = false, launch: WireLaunchSpecification? = nil
    ) throws {
        var hello = WireHello()
        if let launch { hello.launch = launch }
        hello.wantsNetworkChanges = wantsNetworkChanges
        hello.version = 1
        hello.identifier = identifier
        hello.modes = modes
        hello.wakeLimitPolicy = policy
        guard case .welcome = try ask(.hello(hello)) else { throw TestFailure("no welcome") }
    }

    /// Says Hello and asks for a wake word.
    func helloForWakeWord(
        _ identifier: String, policy: WireWakeLimitPolicy = .linger
    ) throws -> SharedWord {
        var hello = WireHello()
        hello.version = 1
        hello.identifier = identifier
        hello.modes = [.voip]
        hello.wakeLimitPolicy = policy
        hello.wantsWakeWord = true
        guard case .welcome(let welcome) = try ask(.hello(hello)), let descriptor = buffer.takeDescriptor()
        else { throw TestFailure("no wake word") }
        return try SharedWord(mapping: descriptor, at: Int(welcome.wakeWord))
    }

    // MARK: Sending

    func sendRaw(_ bytes: [UInt8], descriptors: [Int32] = []) throws {
        while try !socket.send(bytes, descriptors: descriptors) {
            guard
                Poll.wait(socket.rawValue, for: .writable, timeoutMilliseconds: Self.patience).isEmpty
                    == false
            else { throw TestFailure("the supervisor does not read") }
        }
    }

    func send(
        _ body: WireClientMessage.OneOf_Body, request: UInt64 = 0, descriptors: [Int32] = []
    ) throws {
        var message = WireClientMessage()
        message.request = request
        message.body = body
        try sendRaw(try message.serializedBytes(), descriptors: descriptors)
    }

    /// Sends a request and waits for its answer.
    @discardableResult
    func ask(
        _ body: WireClientMessage.OneOf_Body, descriptors: [Int32] = []
    ) throws -> WireSupervisorMessage.OneOf_Body {
        lastRequest += 1
        try send(body, request: lastRequest, descriptors: descriptors)
        return try answer(to: lastRequest)
    }

    func answer(to request: UInt64) throws -> WireSupervisorMessage.OneOf_Body {
        while true {
            let message = try receive()
            if message.request == request, let body = message.body { return body }
            try endIfRestarted(message)
            // An error that closes the connection may belong to no request.
            if case .error = message.body, message.request == 0 { notices.append(message); continue }
            notices.append(message)
        }
    }

    // MARK: Receiving

    /// The number of descriptors that came with the last message.
    var descriptorsReceived: Int { buffer.descriptorCount }

    /// The next message; fails when none comes in time.
    func receive(within milliseconds: Int32 = patience) throws -> WireSupervisorMessage {
        guard let message = try receiveIfAny(within: milliseconds) else {
            throw TestFailure("no message within \(milliseconds) ms")
        }
        return message
    }

    func receiveIfAny(within milliseconds: Int32) throws -> WireSupervisorMessage? {
        let ready = Poll.wait(socket.rawValue, for: .readable, timeoutMilliseconds: milliseconds)
        guard !ready.isEmpty else { return nil }
        switch try socket.receive(into: &buffer) {
        case .packet: return try WireSupervisorMessage(serializedBytes: buffer.bytes)
        case .wouldBlock: return nil
        case .end: throw EndOfConnection()
        }
    }

    struct EndOfConnection: Error {}

    /// Another worker counts as the end of the connection while this one waits for something: that would have to be
    /// asked for again.
    var endsWithWorker = false

    private func endIfRestarted(_ message: WireSupervisorMessage) throws {
        if endsWithWorker, case .supervisorRestarted = message.body { throw EndOfConnection() }
    }

    /// The next notice for which `pick` returns a value; others before it are dropped.
    func notice<Result>(
        within milliseconds: Int32 = patience, _ pick: (WireSupervisorMessage.OneOf_Body) -> Result?
    ) throws -> Result {
        let deadline = BootClock.now() + Int64(milliseconds) * 1_000_000
        while true {
            let message: WireSupervisorMessage
            if notices.isEmpty {
                let left = Int32(max(0, (deadline - BootClock.now()) / 1_000_000))
                message = try receive(within: left)
            } else {
                message = notices.removeFirst()
            }
            if let body = message.body, let result = pick(body) { return result }
            try endIfRestarted(message)
        }
    }

    /// Waits, as a watcher, for an event like this one.
    func event(where isWanted: (WireWatchEvent) -> Bool) throws -> WireWatchEvent {
        while true {
            while !events.isEmpty {
                let event = events.removeFirst()
                if isWanted(event) { return event }
            }
            events = try notice { body in
                if case .watchEvents(let events) = body { events.events } else { nil }
            }
        }
    }

    /// Waits for the end of the connection; returns the last error before it.
    func end() throws -> WireError? {
        var last: WireError?
        for case .error(let error)? in notices.map(\.body) { last = error }
        do {
            while true {
                if case .error(let error)? = try receive().body { last = error }
            }
        } catch is EndOfConnection {
            return last
        }
    }

    /// All messages until the end, read as a simple client would: a reset is an error.
    func plainWords() throws -> [WireSupervisorMessage] {
        var messages: [WireSupervisorMessage] = []
        var bytes = [UInt8](repeating: 0, count: 65_536)
        while true {
            let ready = Poll.wait(socket.rawValue, for: .readable, timeoutMilliseconds: Self.patience)
            guard !ready.isEmpty else { throw TestFailure("neither a message nor the end") }
            let rawValue = socket.rawValue
            let count = try systemCall("recv") { recv(rawValue, &bytes, bytes.count, 0) }
            if count == 0 { return messages }
            messages.append(try WireSupervisorMessage(serializedBytes: Array(bytes.prefix(count))))
        }
    }

    // MARK: Common steps

    func handOver(
        _ descriptor: Int32, _ tag: WireSocketTag = .voip, name: String = "", routed: Bool = false
    ) throws -> UInt64 {
        switch try handOverAny([descriptor], tag, name: name, routed: routed)[0].result {
        case .token(let token)?: return token
        case .error(let error)?: throw error
        case nil: throw TestFailure("an adoption without a result")
        }
    }

    func handOverAny(
        _ descriptors: [Int32], _ tag: WireSocketTag = .voip, name: String = "", routed: Bool = false
    ) throws -> [WireHandedOver.Adoption] {
        var message = WireHandOver()
        message.sockets = descriptors.map { _ in
            var socket = WireHandOver.Socket()
            socket.tag = tag
            socket.name = name
            socket.routed = routed
            return socket
        }
        switch try ask(.handOver(message), descriptors: descriptors) {
        case .handedOver(let handedOver): return handedOver.adoptions
        case .error(let error): throw error
        case let other: throw TestFailure("\(other)")
        }
    }

    func enterBackground() throws {
        guard case .done = try ask(.enterBackground(WireEnterBackground())) else {
            throw TestFailure("not in the background")
        }
        _ = try notice { body in if case .didEnterBackground = body { true } else { nil } }
        try send(.backgroundEntered(WireBackgroundEntered()))
    }

    func prepare() throws -> UInt64 {
        try notice { body in
            guard case .prepareToSuspend(let prepare) = body else { return nil }
            return prepare.epoch
        }
    }

    func ready(_ epoch: UInt64, notIdle: [UInt64] = []) throws {
        var message = WireReadyToSuspend()
        message.epoch = epoch
        message.notIdle = notIdle
        try send(.readyToSuspend(message))
    }

    /// Goes to the background and answers the supervisor, so that it is suspended.
    func goToSleep() throws {
        try enterBackground()
        try ready(try prepare())
    }

    /// Waits, as a watcher, for an event of the machine with this in it.
    func machine(_ text: String) throws {
        _ = try event { $0.kind == "machine" && $0.detail.contains(text) }
    }

    func wake(within milliseconds: Int32 = patience) throws -> WireWake {
        try notice(within: milliseconds) { body in
            guard case .wake(let wake) = body else { return nil }
            return wake
        }
    }

    func finish(_ wake: WireWake) throws {
        var message = WireWakeDone()
        message.wakeID = wake.wakeID
        try send(.wakeDone(message))
    }

    func show(_ identifier: String) throws -> WireClientInfo {
        var message = WireShow()
        message.identifier = identifier
        switch try ask(.show(message)) {
        case .clientInfo(let info): return info
        case .error(let error): throw error
        case let other: throw TestFailure("\(other)")
        }
    }

    func list() throws -> [WireClientInfo] {
        var clients: [WireClientInfo] = []
        var body = try ask(.list(WireList()))
        while case .clientInfos(let part) = body {
            clients += part.clients
            body = try answer(to: lastRequest)
        }
        guard case .done = body else { throw TestFailure("\(body)") }
        return clients
    }

    func status() throws -> WireSupervisorStatus {
        guard case .supervisorStatus(let status) = try ask(.status(WireStatus())) else {
            throw TestFailure("no status")
        }
        return status
    }

    /// Waits until a client is in `state`, according to the supervisor's own events.
    func wait(for identifier: String, toBe state: WireClientState, _ supervisor: TestSupervisor) throws {
        try wait(for: identifier, toBe: state, path: supervisor.socketPath)
    }

    func wait(for identifier: String, toBe state: WireClientState, path: String) throws {
        let watcher = try WireClient(path: path)
        var watch = WireWatch()
        watch.identifier = identifier
        guard case .done = try watcher.ask(.watch(watch)) else { throw TestFailure("cannot watch") }
        if try show(identifier).state == state { return }
        _ = try watcher.event { $0.state == state }
    }
}

extension WireError: Error {}
