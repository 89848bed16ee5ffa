import CFloors
import Glibc
import LinuxSystem
import Nightbell
import NightbellWire
import SwiftProtobuf

/// The process that the clients of a chaos run are forked from, again for each generation.
///
/// Inherits the shared memory as descriptor 3 and a lifetime pipe as descriptor 4.
struct ChaosZygote {
    private let clients: Int
    private let socketsPerClient: Int
    private let transport: Transport
    private let endpoint: String
    private let supervisorSocket: String
    /// The number of sockets of each client that are not handed over, for a test.
    private let withheldSockets: Int
    private let sharedMemory: ChaosSharedMemory
    /// Paths by which relaunched clients find the shared memory and the lifetime pipe.
    private let sharedMemoryPath: String
    private let lifelinePath: String

    static func arguments(
        _ sharedMemory: ChaosSharedMemory, _ callers: ChaosCallers, supervisorSocket: String,
        lifelinePath: String,
        withheldSockets: Int
    ) -> [String] {
        [
            "\(sharedMemory.clients)", "\(sharedMemory.socketsPerClient)", callers.transport.rawValue,
            callers.endpoint,
            supervisorSocket, "/proc/\(getpid())/fd/\(sharedMemory.descriptor.rawValue)", lifelinePath,
            "\(withheldSockets)",
        ]
    }

    init(_ arguments: [String]) throws(LoadError) {
        guard arguments.count == 8, let clients = Int(arguments[0]), let each = Int(arguments[1]),
            let transport = Transport(rawValue: arguments[2]), let withheldSockets = Int(arguments[7])
        else { throw .missing("arguments") }
        self.clients = clients
        socketsPerClient = each
        self.transport = transport
        endpoint = arguments[3]
        supervisorSocket = arguments[4]
        sharedMemoryPath = arguments[5]
        lifelinePath = arguments[6]
        self.withheldSockets = withheldSockets
        sharedMemory = try ChaosSharedMemory(clients: clients, socketsPerClient: each, inherited: 3)
    }

    /// Starts each client in the generation that the harness asks for, until the harness ends.
    func run() throws {
        cfloors_ignore_children()
        cfloors_catch_interrupts()
        var ending = pollfd(fd: 4, events: Int16(POLLIN), revents: 0)
        repeat {
            for index in 0..<clients
            where sharedMemory[index, .generation] != sharedMemory[index, .requestedGeneration] {
                sharedMemory[index, .generation] = sharedMemory[index, .requestedGeneration]
                let child = cfloors_fork()
                guard child >= 0 else { throw LoadError(failed: "fork") }
                if child == 0 { becomeClient(index) }
            }
        } while cfloors_interrupted() == 0 && poll(&ending, 1, 5) == 0
    }

    /// Tells the client library how to launch this client again, as `nightbell run` would.
    private func recordLaunchCommand(_ index: Int) throws {
        let specification = WireLaunchSpecification.with {
            $0.arguments = [
                CommandLine.arguments[0], ProcessRole.relaunchedChaosClient.rawValue, "0", "\(index)",
                "\(clients)",
                "\(socketsPerClient)", sharedMemoryPath, lifelinePath,
            ]
            $0.directory = "/"
        }
        let bytes: [UInt8] = try specification.serializedBytes()
        setenv("NIGHTBELL_LAUNCH", base64(bytes), 1)
    }

    private func becomeClient(_ index: Int) -> Never {
        do {
            signal(SIGTERM, SIG_DFL)
            var kept: [CInt] = [3]
            cfloors_close_all_but(&kept, 1)
            let first = index * socketsPerClient
            var sockets: [CInt] = []
            for socket in first..<first + socketsPerClient {
                sockets.append(try transport.connect(to: endpoint, as: socket))
            }
            if ChaosSharedMemory.isRelaunchable(index) { try recordLaunchCommand(index) }
            try ChaosClient(
                index, sockets, sharedMemory, supervisorSocket: supervisorSocket,
                // A relaunched client must find all of its sockets.
                withheldSockets: ChaosSharedMemory.isRelaunchable(index) ? 0 : withheldSockets
            ).run()
        } catch {
            logError("client \(index): \(error)")
        }
        sharedMemory[index, .connectionsLost] += 1
        _exit(1)
    }
}
