import CFloors
import Descriptors
import Glibc
import Nightbell
import NightbellWire
import SwiftProtobuf

/// The process that the clients of a chaos run are forked from, again for each of their lives.
///
/// Inherits the area as descriptor 3 and the end of a pipe as descriptor 4.
struct ChaosNest {
    private let clients: Int
    private let socketsPerClient: Int
    private let transport: Transport
    private let place: String
    private let supervisorSocket: String
    /// So many sockets of each client are not handed over, where clients are told so for a test.
    private let keptBack: Int
    private let area: ChaosArea
    /// Where those who come back find the area, and what they end with.
    private let areaPath: String
    private let lifelinePath: String

    static func arguments(
        _ area: ChaosArea, _ callers: ChaosCallers, supervisorSocket: String, lifelinePath: String,
        keptBack: Int
    ) -> [String] {
        [
            "\(area.clients)", "\(area.socketsPerClient)", callers.transport.rawValue, callers.place,
            supervisorSocket, "/proc/\(getpid())/fd/\(area.descriptor.rawValue)", lifelinePath,
            "\(keptBack)",
        ]
    }

    init(_ arguments: [String]) throws(LoadError) {
        guard arguments.count == 8, let clients = Int(arguments[0]), let each = Int(arguments[1]),
            let transport = Transport(rawValue: arguments[2]), let keptBack = Int(arguments[7])
        else { throw .missing("arguments") }
        self.clients = clients
        socketsPerClient = each
        self.transport = transport
        place = arguments[3]
        supervisorSocket = arguments[4]
        areaPath = arguments[5]
        lifelinePath = arguments[6]
        self.keptBack = keptBack
        area = try ChaosArea(clients: clients, socketsPerClient: each, inherited: 3)
    }

    /// Gives everybody the life that the harness wants it to have, until the harness ends.
    func run() throws {
        cfloors_ignore_children()
        cfloors_catch_interrupts()
        var ending = pollfd(fd: 4, events: Int16(POLLIN), revents: 0)
        repeat {
            for index in 0..<clients where area[index, .life] != area[index, .wantedLife] {
                area[index, .life] = area[index, .wantedLife]
                let child = cfloors_fork()
                guard child >= 0 else { throw LoadError(failed: "fork") }
                if child == 0 { becomeClient(index) }
            }
        } while cfloors_interrupted() == 0 && poll(&ending, 1, 5) == 0
    }

    /// As `nightbell run` would tell it.
    private func tellHowToComeBack(_ index: Int) throws {
        let specification = WireLaunchSpecification.with {
            $0.arguments = [
                CommandLine.arguments[0], Part.chaosHeir.rawValue, "0", "\(index)", "\(clients)",
                "\(socketsPerClient)", areaPath, lifelinePath,
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
                sockets.append(try transport.connect(to: place, as: socket))
            }
            if ChaosArea.comesBack(index) { try tellHowToComeBack(index) }
            try ChaosClient(
                index, sockets, area, supervisorSocket: supervisorSocket,
                // Who comes back has to find them all.
                keptBack: ChaosArea.comesBack(index) ? 0 : keptBack
            ).run()
        } catch {
            complain("client \(index): \(error)")
        }
        area[index, .connectionsLost] += 1
        _exit(1)
    }
}
