import CFloors
import Glibc

/// The parts of a run that are processes of their own: this program again, started by the harness and by nobody
/// else. The second argument is the harness's process ID: they end with it.
package enum Part: String, CaseIterable {
    case guardian = "part-guardian"
    case sleepers = "part-sleepers"
    case floorSleepers = "part-floor-sleepers"
    case floorAdopter = "part-floor-adopter"
    case floorLauncher = "part-floor-launcher"
    case holders = "part-holders"
    case peers = "part-peers"
    case chaos = "part-chaos"
    case pingPeer = "part-ping-peer"
    case pinged = "part-pinged"
    case floorPinger = "part-floor-pinger"
    case chaosHeir = "part-chaos-heir"
    case chatters = "part-chatters"

    /// Becomes a part if the arguments say so; returns if they do not.
    package static func becomeOne(_ arguments: [String]) {
        guard arguments.count > 2, let part = Part(rawValue: arguments[1]), let parent = pid_t(arguments[2])
        else { return }
        // An heir is a supervisor's child, and sees to it itself.
        guard part == .chaosHeir || cfloors_die_with(parent) != 0 else { exit(1) }
        let rest = Array(arguments.dropFirst(3))
        do {
            switch part {
            case .guardian: execute(rest)
            case .sleepers: try SleeperNest(rest).run()
            case .floorSleepers: try FloorNest(rest).run()
            case .floorAdopter: try FloorAdopter.run(rest)
            case .floorLauncher: try FloorLauncher.run(rest)
            case .holders: try HolderNest(rest).run()
            case .peers: try PeerPart(rest).run()
            case .chaos: try ChaosNest(rest).run()
            case .pingPeer: try PingArguments(rest).runPeer()
            case .pinged: try PingArguments(rest).runSleepers()
            case .floorPinger: try PingArguments(rest).runFloor()
            case .chaosHeir: try ChaosHeir.run(rest)
            case .chatters: try ChatPart(rest).run()
            }
            exit(0)
        } catch {
            complain("\(part.rawValue): \(error)")
            exit(1)
        }
    }

    private static func execute(_ arguments: [String]) {
        var pointers = arguments.map { strdup($0) } + [nil]
        execv(arguments[0], &pointers)
        complain("cannot run \(arguments[0]): \(errno)")
        exit(127)
    }
}

/// Writes a line on standard error, which is the log of a part.
func complain(_ text: String) {
    let bytes = Array("\(text)\n".utf8)
    _ = write(STDERR_FILENO, bytes, bytes.count)
}
