import LinuxSystem
import NightbellCore

/// The inspection of a client's sockets after a change of the network.
struct PathInspectionProgress {
    /// Sockets are inspected from the last to the first, because the last one takes the place of one that is
    /// released. nil: it has not begun.
    var next: Int?
    var broken: [BrokenPath] = []
}

extension Supervisor {
    /// Sockets of a client that are inspected at a time: some 5 µs each.
    private static let pathsAtOnce = 16

    /// Begins to inspect the sockets of a client in its user's turn, or begins again.
    func beginInspectingPaths(_ client: ClientID) {
        let isNew = pathInspections.updateValue(PathInspectionProgress(), forKey: client) == nil
        guard isNew, let user = supervision.user(of: client) else { return }
        backlog.append(.paths(client), of: user)
    }

    func continueInspectingPaths(_ client: ClientID) {
        guard var progress = pathInspections[client], let user = supervision.user(of: client) else {
            return pathInspections[client] = nil
        }
        let tokens = ask { $0.sockets(of: client) }
        var index = min(progress.next ?? .max, tokens.count - 1)
        for _ in 0..<Self.pathsAtOnce where index >= 0 {
            inspectPath(tokens[index], &progress)
            index -= 1
        }
        guard index < 0 else {
            progress.next = index
            pathInspections[client] = progress
            return backlog.append(.paths(client), of: user)
        }
        pathInspections[client] = nil
        FaultInjection.point("before paths are reported")
        feed(.pathsInspected(client, progress.broken))
        FaultInjection.point("after paths are reported")
    }

    private func inspectPath(_ token: SocketToken, _ progress: inout PathInspectionProgress) {
        guard let descriptor = parked.descriptor(of: token),
            !progress.broken.contains(where: { $0.token == token })
        else { return }
        switch SocketPath(of: descriptor) {
        case .works: break
        case .addressGone: progress.broken.append(BrokenPath(token, .addressGone))
        case .unreachable: progress.broken.append(BrokenPath(token, .unreachable))
        }
    }
}
