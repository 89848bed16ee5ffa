import Glibc
import LinuxSystem
import Nightbell
import NightbellWire
import SwiftProtobuf
import Testing

extension Client {
    /// A client of this supervisor, driven by a thread of its own unless the test says otherwise.
    convenience init(
        of supervisor: FakeSupervisor, handlers: Handlers = Handlers(),
        _ change: (inout Configuration) -> Void = { _ in }
    ) throws {
        var configuration = Configuration(
            identifier: "org.example.test", modes: [.voip, .audio], socketPath: supervisor.path)
        configuration.requestTimeout = .seconds(20)
        change(&configuration)
        try self.init(configuration, handlers: handlers)
    }
}

/// The error that a call throws; a test fails without one.
func thrown(
    sourceLocation: SourceLocation = #_sourceLocation, _ body: () throws -> Void
) throws -> NightbellError {
    try #require(#expect(throws: NightbellError.self, sourceLocation: sourceLocation, performing: body))
}

/// The first result that is not an error, within 20 seconds.
func eventually<Result>(_ body: () throws -> Result) throws -> Result {
    let deadline = BootClock.now() + 20_000_000_000
    while true {
        do {
            return try body()
        } catch  where BootClock.now() < deadline {
            usleep(1_000)
        }
    }
}

@Suite struct RequestTests {
    @Test func registersWithItsConfiguration() throws {
        let supervisor = try FakeSupervisor()
        let client = try Client(of: supervisor) { $0.wakeLimitPolicy = .terminate }
        let hello = try supervisor.expect("Hello") { $0.message.hello }
        #expect(hello.version == 1)
        #expect(hello.identifier == "org.example.test")
        #expect(hello.modes == [.voip, .audio])
        #expect(hello.wakeLimitPolicy == .terminate)
        #expect(client.isConnected)
        #expect(client.suspensionMethod == "signal")
        #expect(client.minimumKeepAliveTimeout == .seconds(600))
    }

    @Test func reportsWhyItCannotConnect() throws {
        let supervisor = try FakeSupervisor()
        let error = try thrown { _ = try Client(of: supervisor) { $0.socketPath = "/tmp/no/such/socket" } }
        #expect(error.code == .cannotConnect)
        #expect(error.errorNumber == ENOENT)
        #expect(error.description.contains("No such file"))
    }

    @Test func throwsTheSupervisorsRefusal() throws {
        let supervisor = try FakeSupervisor()
        supervisor.script { _ in .answer([.error(.sample(.identifierInUse))]) }
        let error = try thrown { _ = try Client(of: supervisor) }
        #expect(error.code == .identifierInUse)
        #expect(error.description == "Another running client has this identifier: as the test says.")
    }

    @Test func givesUpRegisteringWithASilentSupervisor() throws {
        let supervisor = try FakeSupervisor()
        supervisor.script { _ in .silence }
        let error = try thrown { _ = try Client(of: supervisor) { $0.requestTimeout = .milliseconds(50) } }
        #expect(error.code == .requestTimedOut)
    }

    @Test(arguments: ["", String(repeating: "a", count: 129), "org.example phone", "org.exämple"])
    func refusesIdentifiers(_ identifier: String) throws {
        let supervisor = try FakeSupervisor()
        let error = try thrown { _ = try Client(of: supervisor) { $0.identifier = identifier } }
        #expect(error.code == .invalidIdentifier)
        #expect(supervisor.unexpected.isEmpty)
    }

    @Test func handsOverAndReleases() throws {
        let supervisor = try FakeSupervisor()
        let client = try Client(of: supervisor)
        let pipe = try Pipe()
        let parked = try client.handOver(pipe.descriptor, as: .device, name: "pipe")
        #expect(parked.descriptor == pipe.descriptor)
        #expect(parked.name == "pipe")
        let (handOver, descriptors) = try supervisor.expect("HandOver") { received in
            if case .handOver(let body)? = received.message.body { (body, received.descriptors) } else { nil }
        }
        #expect(descriptors == 1)
        #expect(handOver.sockets.map(\.tag) == [.device])
        #expect(handOver.sockets.map(\.name) == ["pipe"])

        try client.release(parked)
        let token = try supervisor.expect("Release") { received in
            if case .release(let body)? = received.message.body { body.token } else { nil }
        }
        #expect(token == 0x1000)
        #expect(try thrown { try client.release(parked) }.code == .invalidToken)
        // The descriptor is still open: the library has only forgotten the number.
        #expect(!Poll.now(pipe.descriptor).contains(.invalid))
    }

    @Test func closesAReleasedSocket() throws {
        let supervisor = try FakeSupervisor()
        let client = try Client(of: supervisor)
        let pipe = try Pipe()
        let mine = try pipe.reader.duplicate().take()
        let parked = try client.handOver(mine, as: .device)
        try client.close(socket: parked)
        _ = try supervisor.expect("Release") { if case .release? = $0.message.body { true } else { nil } }
    }

    @Test func handsOverManyInPacketsThatFit() throws {
        let supervisor = try FakeSupervisor()
        let client = try Client(of: supervisor)
        let pipe = try Pipe()
        let sockets = (0..<260).map { Client.SocketToPark(pipe.descriptor, as: .device, name: "\($0)") }
        let results = try client.handOver(sockets)
        #expect(try results.map { try $0.get().name } == (0..<260).map(String.init))
        for count in [250, 10] {
            let descriptors = try supervisor.expect("HandOver") { received in
                if case .handOver? = received.message.body { received.descriptors } else { nil }
            }
            #expect(descriptors == count)
        }
    }

    @Test func saysWhichSocketsHaveAnAddressThatTheMachineCanLose() throws {
        let supervisor = try FakeSupervisor()
        let client = try Client(of: supervisor)
        // 192.0.2.1 and 127.0.0.1.
        let descriptors = try [0xC000_0201, 0x7F00_0001].map { try Self.datagramSocket(boundTo: $0) }
        defer { for descriptor in descriptors { close(descriptor) } }
        _ = try client.handOver(descriptors.map { Client.SocketToPark($0, as: .voip) })
        let routed = try supervisor.expect("HandOver") { received in
            if case .handOver(let body)? = received.message.body { body.sockets.map(\.routed) } else { nil }
        }
        #expect(routed == [true, false])
    }

    /// The address need not be one of the machine's (`IP_FREEBIND`).
    private static func datagramSocket(boundTo number: UInt32) throws -> CInt {
        let descriptor = socket(AF_INET, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var (yes, address) = (CInt(1), sockaddr_in())
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = number.bigEndian
        let isFree = setsockopt(descriptor, CInt(IPPROTO_IP), IP_FREEBIND, &yes, 4) == 0
        let isBound = withUnsafeBytes(of: &address) {
            bind(
                descriptor, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self),
                socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
        }
        guard isFree, isBound else { throw SystemError("bind") }
        return descriptor
    }

    @Test func refusesEachSocketForItsOwnReason() throws {
        let supervisor = try FakeSupervisor()
        supervisor.script { message in
            guard case .handOver? = message.body else { return .usual }
            return .answer([
                .handedOver(
                    .with {
                        $0.adoptions = [
                            .with { $0.token = 7 }, .with { $0.error = .sample(.listeningSocket) },
                        ]
                    })
            ])
        }
        let client = try Client(of: supervisor)
        let pipe = try Pipe()
        let results = try client.handOver([
            .init(pipe.descriptor, as: .device), .init(-1, as: .device),
            .init(pipe.descriptor, as: .voip), .init(pipe.descriptor, as: .voip, name: .long),
        ])
        #expect(throws: Never.self) { try results[0].get() }
        let errors = try results.dropFirst().map { result in try thrown { _ = try result.get() } }
        #expect(errors.map(\.code) == [.system, .listeningSocket, .invalidArgument])
        #expect(errors.map(\.errorNumber) == [EBADF, 0, 0])
    }

    @Test func refusesNamesThatAreTooLong() throws {
        let supervisor = try FakeSupervisor()
        let client = try Client(of: supervisor)
        #expect(try thrown { _ = try client.beginBackgroundTask(.long) }.code == .invalidArgument)
        #expect(try thrown { _ = try client.handOver(0, as: .device, name: .long) }.code == .invalidArgument)
        #expect(try thrown { try client.setKeepAliveTimeout(.zero) {} }.code == .invalidArgument)
    }

    @Test func setsAndClearsTheKeepAliveTimeout() throws {
        let supervisor = try FakeSupervisor()
        let client = try Client(of: supervisor)
        try client.setKeepAliveTimeout(.seconds(600) + .microseconds(700)) {}
        let milliseconds = try supervisor.expect("SetKeepAliveTimeout") { received in
            if case .setKeepAliveTimeout(let body)? = received.message.body { body.timeoutMs } else { nil }
        }
        #expect(milliseconds == 600_000)
        try client.clearKeepAliveTimeout()
        supervisor.script { _ in .answer([.error(.sample(.timeoutTooShort))]) }
        #expect(try thrown { try client.setKeepAliveTimeout(.seconds(1)) {} }.code == .timeoutTooShort)
    }

    @Test func holdsBackgroundTasks() throws {
        let supervisor = try FakeSupervisor()
        let client = try Client(of: supervisor)
        #expect(try client.backgroundTimeRemaining() == .limited(.seconds(170)))
        let task = try client.beginBackgroundTask("call")
        #expect(task.isValid)
        try client.end(task)
        #expect(try thrown { try client.end(task) }.code == .invalidTask)
        supervisor.script { message in
            switch message.body {
            case .beginBackgroundTask: .answer([.backgroundTask(.init())])
            case .backgroundTimeRemaining: .answer([.backgroundTimeLeft(.with { $0.unlimited = true })])
            default: .usual
            }
        }
        let invalid = try client.beginBackgroundTask("late")
        #expect(!invalid.isValid)
        try client.end(invalid)
        #expect(try client.backgroundTimeRemaining() == .unlimited)
        try client.mediaActivity()
    }

    @Test func timesOutAndReleasesLateGrants() throws {
        let supervisor = try FakeSupervisor()
        let client = try Client(of: supervisor) { $0.requestTimeout = .milliseconds(200) }
        let pipe = try Pipe()
        let numbers = Monitor<[UInt64]>([])
        supervisor.script { message in
            switch message.body {
            case .handOver, .beginBackgroundTask:
                numbers.withLock { $0.append(message.request) }
                return .silence
            default: return .usual
            }
        }
        #expect(try thrown { _ = try client.handOver(pipe.descriptor, as: .device) }.code == .requestTimedOut)
        #expect(try thrown { _ = try client.beginBackgroundTask() }.code == .requestTimedOut)
        let late = numbers.withLock { $0 }
        try #require(late.count == 2)
        try supervisor.send(.handedOver(.with { $0.adoptions = [.with { $0.token = 99 }] }), request: late[0])
        try supervisor.send(.backgroundTask(.with { $0.taskID = 98 }), request: late[1])
        let released = try supervisor.expect("Release") { received in
            if case .release(let body)? = received.message.body {
                (body.token, received.message.request)
            } else {
                nil
            }
        }
        #expect(released == (99, 0))
        let ended = try supervisor.expect("EndBackgroundTask") { received in
            if case .endBackgroundTask(let body)? = received.message.body { body.taskID } else { nil }
        }
        #expect(ended == 98)
        #expect(client.isConnected)
    }

    @Test func answersManyThreadsAtOnce() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        let client = try Client(of: supervisor, handlers: diary.handlers())
        let finished = (0..<4).map { _ in Promise<Int>() }
        for promise in finished {
            startThread {
                var good = 0
                for _ in 0..<100 {
                    guard let task = try? client.beginBackgroundTask("x") else { continue }
                    if (try? client.end(task)) != nil { good += 1 }
                }
                promise.fulfil(good)
            }
        }
        for id in 1...50 { try supervisor.wake(UInt64(id), [.request]) }
        for promise in finished { #expect(try promise.wait() == 100) }
        for id in 1...50 { try diary.expect("wake \(id) request") }
        #expect(diary.all == (1...50).map { "wake \($0) request" })
    }

    @Test func waitsWhenTheSupervisorDoesNotRead() throws {
        let supervisor = try FakeSupervisor()
        let diary = EventLog()
        // A timeout so short that even registering may take a few attempts.
        let client = try eventually {
            try Client(of: supervisor, handlers: diary.handlers()) { $0.requestTimeout = .milliseconds(2) }
        }
        supervisor.setReading(false)
        // More than the socket can hold: the later ones are never sent.
        for _ in 0..<600 { #expect(try thrown { try client.mediaActivity() }.code == .requestTimedOut) }
        try supervisor.wake(1, [.request])
        try diary.expect("wake 1 request")
        supervisor.setReading(true)
        // Messages queued meanwhile are sent once there is room.
        _ = try supervisor.expect("WakeDone") { if case .wakeDone? = $0.message.body { true } else { nil } }
        #expect(client.isConnected)
    }
}

extension String {
    static let long = String(repeating: "ü", count: 33)
}
