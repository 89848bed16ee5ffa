import Glibc
import LinuxSystem
import NightbellCore
import NightbellWire
import Suspension
import SwiftProtobuf

/// Describes clients and their sockets to those that administrate.
extension Supervisor {
    /// A client as it is told to those that list and show.
    ///
    /// - Returns: nil: there is none.
    func info(
        of client: ClientID, inFull: Bool, for connection: Connection
    ) -> WireClientInfo? {
        guard var view = supervision.view(of: client, at: now) else { return nil }
        guard isGateway(connection) else { return info(view, inFull: inFull) }
        view.hideWhereabouts()
        var info = info(view, inFull: inFull)
        info.hideSecrets()
        return info
    }

    private func info(_ view: ClientView, inFull: Bool) -> WireClientInfo {
        let client = view.id
        let record = connection(of: client)?.client
        var info = WireClientInfo()
        info.identifier = view.identifier.description
        info.clientID = Self.text(of: client)
        info.processID = UInt32(record?.process.pid ?? launches.attempt(of: client)?.pid ?? 0)
        info.uid = view.user
        info.state = view.state.wire
        let reasons = view.reasonsToRun
        info.stateDetail = view.detail(reasons, at: now)
        info.awakeCauses = view.awakeCauses(reasons)
        if let record, record.programStart != nil {
            info.isUnmodified = true
            if view.state == .active { info.stateDetail = record.awakeReason }
            if let pagedOut = record.pagedOut { info.pagedOut = pagedOut }
        }
        info.inStateMs = elapsedNow.since(view.enteredStateAt).wireMilliseconds
        info.modes = view.modes.wire
        info.socketCount = UInt64(view.sockets.count)
        info.keepAliveTimeoutMs = view.keepAliveTimeout?.wireMilliseconds ?? 0
        if let window = view.keepAliveWindow {
            info.keepAliveDueInMs = window.latest.since(elapsedNow).wireMilliseconds
        }
        info.backgroundTasks = Array(view.backgroundTasks.prefix(Self.mostTasksShown))
        info.mediaActive = view.media != nil
        info.counters = WireCounters(view.counters)
        if let record { info.suspension = suspensionName(of: client, record) }
        if let record {
            info.connectedMs = elapsedNow.since(record.connectedAt).wireMilliseconds
            let asleep = view.counters.asleepNanoseconds
            info.asleepSinceHelloNs = asleep - min(asleep, record.asleepBefore)
        }
        info.canLaunch = view.launches.isPossible
        info.stateBytes = UInt64(view.launches.stateBytes)
        info.launchesInRow = UInt64(view.launches.inRow)
        info.wantsNetworkChanges = view.wantsNetworkChanges
        if let offload = offloadCounters(of: client) { info.offload = offload }
        if let fetch = view.fetch { info.fetch = WireClientInfo.Fetch(fetch, at: elapsedNow) }
        info.pendingNotifications = UInt32(clamping: view.pendingNotifications)
        info.warnings = [record?.obstacle, launches.problem(of: client)].compactMap(\.self)
        if view.isOutOfReach {
            info.warnings.append(
                "out of reach: no socket, keep-alive timeout or observation that could wake it")
        }
        if let said = record?.saidIdentifier {
            info.warnings.append("its program says Hello as \(said), and was started as \(info.identifier)")
        }
        if view.isSilent { info.warnings.append("its program does not speak to Nightbell") }
        guard inFull else { return info }
        info.observations = view.observations.map { observation in
            var wire = WireClientInfo.Observation(observation, at: elapsedNow)
            wire.waitsFor = WirePushObstacle(ask { $0.pushObstacle(observation, client, at: now) })
            return wire
        }
        if let specification = launches.recipe(of: client)?.wire ?? record?.launch,
            !specification.arguments.isEmpty
        {
            info.launch = specification
        }
        if let locks = record?.locks, locks > 0 {
            info.warnings.append("holds \(locks) file lock\(locks == 1 ? "" : "s"), also while it sleeps")
        }
        describeSockets(view.sockets, in: &info)
        return info
    }

    /// Describes as many sockets as are not too much work for one turn, and fit into the packet.
    private func describeSockets(_ tokens: [SocketToken], in info: inout WireClientInfo) {
        do {
            var room =
                Self.maximumPacket - Self.roomForEnvelope - (try info.serializedBytes() as [UInt8]).count
            for token in tokens.prefix(Self.mostSocketsShown) {
                let socket = describe(token)
                room -= (try socket.serializedBytes() as [UInt8]).count + Self.roomForEnvelope
                guard room >= 0 else { return }
                info.sockets.append(socket)
            }
        } catch {
            preconditionFailure("our own messages can be encoded: \(error)")
        }
    }

    private static let mostSocketsShown = 256
    private static let mostTasksShown = 64
    /// The numbers and lengths in front of a message within another one, at most.
    private static let roomForEnvelope = 32

    private func describe(_ token: SocketToken) -> WireClientInfo.Socket {
        var socket = WireClientInfo.Socket()
        socket.token = token.rawValue
        socket.name = parked.name(of: token)
        socket.survives = supervision.survives(token)
        if let tag = supervision.tag(of: token) { socket.tag = tag.wire }
        if let condition = supervision.condition(of: token) { socket.condition = condition.name }
        if let offload = describeOffload(token) { socket.offload = offload }
        if receiveBuffers.contains(token) { socket.receiveBuffer = UInt32(receiveBuffers[token].wanted) }
        guard let descriptor = parked.descriptor(of: token) else { return socket }
        if SocketFacts.isDatagram(descriptor) {
            socket.dropped = UInt64(SocketMemory.drops(of: descriptor) ?? 0)
        }
        do {
            let facts = try SocketFacts(inspecting: descriptor)
            socket.kind = facts.kind.name
            socket.local = facts.local ?? ""
            socket.peer = facts.peer ?? ""
        } catch {
            socket.kind = "unknown: \(error)"
        }
        return socket
    }
}

extension SocketFacts.Kind {
    fileprivate var name: String {
        switch self {
        case .tcp: "tcp"
        case .udp: "udp"
        case .unixStream: "unix stream"
        case .unixDatagram: "unix datagram"
        case .unixSeqPacket: "unix seqpacket"
        case .otherSocket: "socket"
        case .pipe: "pipe"
        case .device: "device"
        case .anonymous(let name): name
        case .regularFile: "file"
        case .directory: "directory"
        }
    }
}
