import CFloors
import Glibc
import LinuxSystem
import Nightbell
import NightbellWire
import SwiftProtobuf

/// The process that the clients of a push run are forked from. A client that is launched again is this program
/// in the same role, with its own number.
///
/// The first one inherits the shared memory as descriptor 3 and a lifetime pipe as descriptor 4.
struct PushClients {
    private let clients: Int
    private let pushes: Int
    private let supervisorSocket: String
    /// Paths by which launched clients find the shared memory and the lifetime pipe.
    private let sharedMemoryPath: String
    private let lifelinePath: String
    /// nil: all of them.
    private let own: Int?

    /// Starts the process, and waits until its clients have addresses. It ends with the pipe, or by the run directory.
    static func start(
        _ sharedMemory: PushSharedMemory, _ supervisor: PrivateSupervisor, _ pipe: borrowing Pipe,
        _ runDirectory: RunDirectory
    ) throws -> ChildProcess {
        let starter = try runDirectory.start(
            .pushClients,
            [
                "\(sharedMemory.clients)", "\(sharedMemory.pushes)", supervisor.socketPath,
                "/proc/\(getpid())/fd/\(sharedMemory.descriptor.rawValue)", runDirectory.lifelinePath,
            ],
            descriptors: [sharedMemory.descriptor.rawValue, pipe.reading.rawValue])
        try wait(for: "the clients to have addresses", atMost: .seconds(300)) {
            (0..<sharedMemory.clients).allSatisfy { sharedMemory[$0, .isReady] != 0 }
        }
        return starter
    }

    static func identifier(_ client: Int) -> String { "load.push.\(client)" }

    init(_ arguments: [String]) throws(LoadError) {
        guard 5...6 ~= arguments.count, let clients = Int(arguments[0]), let pushes = Int(arguments[1]) else {
            throw .missing("arguments")
        }
        self.clients = clients
        self.pushes = pushes
        supervisorSocket = arguments[2]
        sharedMemoryPath = arguments[3]
        lifelinePath = arguments[4]
        own = arguments.count == 6 ? Int(arguments[5]) : nil
    }

    func run() throws {
        if let own { return try runLaunched(own) }
        cfloors_ignore_children()
        for index in 0..<clients {
            let child = cfloors_fork()
            guard child >= 0 else { throw LoadError(failed: "fork") }
            guard child == 0 else { continue }
            do {
                if PushSharedMemory.isLaunchable(index) { try recordLaunchCommand(index) }
                try beClient(index, try PushSharedMemory(clients: clients, pushes: pushes, inherited: 3))
            } catch {
                logError("client \(index): \(error)")
            }
            _exit(1)
        }
        var ending = pollfd(fd: 4, events: Int16(POLLIN), revents: 0)
        while poll(&ending, 1, -1) < 0 {}
    }

    private func runLaunched(_ index: Int) throws {
        // Stopped or frozen it would notice no end of its parent.
        let lifeline = open(lifelinePath, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
        guard lifeline >= 0, cfloors_die_with_pipe(lifeline) != 0 else {
            throw LoadError.missing("the harness has ended")
        }
        let memory = open(sharedMemoryPath, O_RDWR | O_CLOEXEC)
        guard memory >= 0 else { throw LoadError(failed: "open \(sharedMemoryPath)") }
        try beClient(index, try PushSharedMemory(clients: clients, pushes: pushes, inherited: memory))
    }

    private func beClient(_ index: Int, _ sharedMemory: PushSharedMemory) throws -> Never {
        nonisolated(unsafe) let shared = sharedMemory
        var configuration = Client.Configuration(
            identifier: Self.identifier(index), modes: [], socketPath: supervisorSocket)
        configuration.requestTimeout = .seconds(60)
        var handlers = Client.Handlers()
        handlers.wake = { wake in
            if wake.reasons.contains(.push) { shared[index, .wakes] += 1 }
        }
        handlers.handlingPushes { message in
            guard let push = Int(String(decoding: message.body, as: UTF8.self)),
                (0..<shared.pushes).contains(push)
            else {
                shared[index, .failures] += 1
                return .noData
            }
            shared.note(push: push, id: message.id)
            return .newData
        }
        let client = try Client(configuration, handlers: handlers)
        let address = try patiently { () throws(NightbellError) in try client.pushEndpoint() }
        shared[address: index] = "/" + address.split(separator: "/").suffix(2).joined(separator: "/")
        shared[index, .isReady] = 1
        try client.enterBackground()
        while true { pause() }
    }

    /// The gateway may have been killed just now.
    private func patiently<Value>(
        _ body: () throws(NightbellError) -> Value
    ) throws(NightbellError) -> Value {
        for _ in 0..<200 {
            do throws(NightbellError) {
                return try body()
            } catch {
                guard error.code == .pushUnavailable else { throw error }
                usleep(50_000)
            }
        }
        return try body()
    }

    /// Tells the client library how to launch this client again, as `nightbell run` would.
    private func recordLaunchCommand(_ index: Int) throws {
        let specification = WireLaunchSpecification.with {
            $0.arguments = [
                CommandLine.arguments[0], ProcessRole.pushClients.rawValue, "0", "\(clients)", "\(pushes)",
                supervisorSocket, sharedMemoryPath, lifelinePath, "\(index)",
            ]
            $0.directory = "/"
        }
        let bytes: [UInt8] = try specification.serializedBytes()
        setenv("NIGHTBELL_LAUNCH", base64(bytes), 1)
    }
}
