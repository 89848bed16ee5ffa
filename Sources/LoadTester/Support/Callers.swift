import Glibc

/// The peer sockets of all sleepers: in the load tester itself while its descriptor limit allows, else spread
/// over further processes, which send on request.
final class Callers {
    let transport: Transport
    let callPlan: CallPlan
    private let location: Location
    private var sequences: [UInt64]
    private(set) var connected = 0

    private enum Location {
        case inProcess(PeerSockets)
        case distributed([PeerProcess])
    }

    /// All peer sockets in this process.
    init(_ transport: Transport, slots count: Int, directory: String) throws(LoadError) {
        self.transport = transport
        let ends = try PeerSockets(transport, slots: count, path: "\(directory)/callers")
        location = .inProcess(ends)
        callPlan = CallPlan([ends.endpoint])
        sequences = Array(repeating: 0, count: count)
    }

    /// In as many processes as the run needs.
    convenience init(_ transport: Transport, slots count: Int, _ runDirectory: RunDirectory) throws(LoadError)
    {
        guard runDirectory.peerProcesses > 0, transport.isStream else {
            try self.init(transport, slots: count, directory: runDirectory.path)
            return
        }
        var peers: [PeerProcess] = []
        for number in 0..<runDirectory.peerProcesses {
            peers.append(
                try PeerProcess(
                    runDirectory, transport, slots: count, path: "\(runDirectory.path)/callers-\(number)"))
        }
        self.init(transport, slots: count, peers)
    }

    private init(_ transport: Transport, slots count: Int, _ peers: [PeerProcess]) {
        self.transport = transport
        location = .distributed(peers)
        callPlan = CallPlan(peers.map(\.endpoint))
        sequences = Array(repeating: 0, count: count)
    }

    /// Accepts pending connections.
    func acceptConnections() throws {
        switch location {
        case .inProcess(let ends):
            try ends.acceptConnections()
            connected = ends.connected
        case .distributed(let peers):
            connected = 0
            for peer in peers { connected += try peer.connected() }
        }
    }

    /// Throws when a peer process has ended.
    func requirePeersRunning() throws(LoadError) {
        switch location {
        case .inProcess: break
        case .distributed(let peers): for peer in peers { try peer.requireRunning() }
        }
    }

    // MARK: Sleepers

    /// Sends the next packet to a sleeper. The sending process writes the time of sending into it.
    func call(_ index: Int) throws {
        sequences[index] += 1
        switch location {
        case .inProcess(let ends): try ends.call(index, sequence: sequences[index])
        case .distributed(let peers):
            try peers[callPlan.process(of: index)].submit([.call(index, sequence: sequences[index])])
        }
    }

    /// Sends the next packet to each of these, as fast as one process can. Peer processes send one after the
    /// other: in parallel they would take processors from the sleepers.
    func call(_ indices: [Int]) throws {
        switch location {
        case .inProcess:
            for index in indices { try call(index) }
        case .distributed(let peers):
            for (number, peer) in peers.enumerated() {
                let share = indices.filter { callPlan.process(of: $0) == number }
                for index in share { sequences[index] += 1 }
                try peer.submit(share.map { .call($0, sequence: sequences[$0]) })
                try peer.waitUntilDone()
            }
        }
    }

    /// The number of packets sent to a sleeper.
    func sent(to index: Int) -> UInt64 { sequences[index] }

    // MARK: Phones

    /// Calls a phone, which will answer.
    func callPhone(_ index: Int, number: UInt64) throws {
        switch location {
        case .inProcess(let ends): try ends.callPhone(index, number: number)
        case .distributed(let peers):
            try peers[callPlan.process(of: index)].submit([.callPhone(index, number: number)])
        }
    }

    /// Waits for the answer to the call with this number; see `PeerSockets.answer`.
    func answer(_ index: Int, number: UInt64, within milliseconds: CInt) throws -> Int64? {
        switch location {
        case .inProcess(let ends): try ends.answer(index, number: number, within: milliseconds)
        case .distributed(let peers):
            try peers[callPlan.process(of: index)].answer(index, number: number, within: milliseconds)
        }
    }
}

/// The assignment of sleepers to peer processes, and the endpoint of each process. Neighbours share a
/// process: every other sleeper may run under another uid, and both must be called at the same time.
struct CallPlan {
    private let endpoints: [String]

    init(_ endpoints: [String]) { self.endpoints = endpoints }

    /// Parses the value of `argument`.
    init(argument: String) { endpoints = argument.split(separator: "\n").map(String.init) }

    /// The plan as an argument of another process of the run.
    var argument: String { endpoints.joined(separator: "\n") }

    /// The index of the process that calls this sleeper.
    func process(of index: Int) -> Int { index / 2 % endpoints.count }

    /// The endpoint that a sleeper connects to: see `Transport.connect`.
    subscript(index: Int) -> String { endpoints[process(of: index)] }
}
