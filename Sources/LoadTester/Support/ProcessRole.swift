import CFloors
import Glibc

/// The further processes of a run: this program again, started by the harness alone. The second argument is
/// the harness's process ID: the process ends with the harness.
package enum ProcessRole: String, CaseIterable {
    case guardian = "role-guardian"
    case sleepers = "role-sleepers"
    case floorSleepers = "role-floor-sleepers"
    case floorAdopter = "role-floor-adopter"
    case floorWaker = "role-floor-waker"
    case floorLauncher = "role-floor-launcher"
    case holders = "role-holders"
    case peers = "role-peers"
    case chaos = "role-chaos"
    case pingPeer = "role-ping-peer"
    case pinged = "role-pinged"
    case floorPinger = "role-floor-pinger"
    case relaunchedChaosClient = "role-relaunched-chaos-client"
    case chatClients = "role-chat-clients"
    case hostile = "role-hostile"
    case transferClient = "role-transfer-client"
    case pushClients = "role-push-clients"
    case strangers = "role-strangers"

    /// Runs a role and exits if the arguments name one; returns otherwise.
    package static func runIfRequested(_ arguments: [String]) {
        guard arguments.count > 2, let role = ProcessRole(rawValue: arguments[1]),
            let parent = pid_t(arguments[2])
        else { return }
        // A relaunched client is the supervisor's child, and ends itself with the harness.
        guard
            role == .relaunchedChaosClient || role == .transferClient
                || role == .pushClients && parent == 0 || cfloors_die_with(parent) != 0
        else { exit(1) }
        let rest = Array(arguments.dropFirst(3))
        do {
            switch role {
            case .guardian: execute(rest)
            case .sleepers: try SleeperZygote(rest).run()
            case .floorSleepers: try FloorZygote(rest).run()
            case .floorAdopter: try FloorAdopter.run(rest)
            case .floorWaker: try FloorPrograms.runWaker(rest)
            case .floorLauncher: try FloorLauncher.run(rest)
            case .holders: try HolderZygote(rest).run()
            case .peers: try PeerProcessMain(rest).run()
            case .chaos: try ChaosZygote(rest).run()
            case .pingPeer: try PingArguments(rest).runPeer()
            case .pinged: try PingArguments(rest).runSleepers()
            case .floorPinger: try PingArguments(rest).runFloor()
            case .relaunchedChaosClient: try RelaunchedChaosClient.run(rest)
            case .chatClients: try ChatClientsMain(rest).run()
            case .hostile: try HostileProcess(rest).run()
            case .transferClient: try TransferClientMain(rest).run()
            case .pushClients: try PushClients(rest).run()
            case .strangers:
                var strangers = try Strangers(rest)
                try strangers.run()
            }
            exit(0)
        } catch {
            logError("\(role.rawValue): \(error)")
            exit(1)
        }
    }

    private static func execute(_ arguments: [String]) {
        var pointers = arguments.map { strdup($0) } + [nil]
        execv(arguments[0], &pointers)
        logError("cannot run \(arguments[0]): \(errno)")
        exit(127)
    }
}

/// Writes a line on standard error, which is the log of a role.
func logError(_ text: String) {
    let bytes = Array("\(text)\n".utf8)
    _ = write(STDERR_FILENO, bytes, bytes.count)
}
