import Glibc

/// The other ends of all sleepers' sockets: in the load tester itself while it may have so many descriptors, else
/// spread over further processes, which speak when they are told to.
final class Callers {
    let transport: Transport
    let places: Places
    private let homes: Homes
    private var sequences: [UInt64]
    private(set) var connected = 0

    private enum Homes {
        case here(OtherEnds)
        case spread([PeerProcess])
    }

    /// All in this process.
    init(_ transport: Transport, slots count: Int, directory: String) throws(LoadError) {
        self.transport = transport
        let ends = try OtherEnds(transport, slots: count, path: "\(directory)/callers")
        homes = .here(ends)
        places = Places([ends.place])
        sequences = Array(repeating: 0, count: count)
    }

    /// In as many processes as the bench knows to be needed.
    convenience init(_ transport: Transport, slots count: Int, _ bench: Workbench) throws(LoadError) {
        guard bench.peerProcesses > 0, transport.isStream else {
            try self.init(transport, slots: count, directory: bench.directory)
            return
        }
        var peers: [PeerProcess] = []
        for number in 0..<bench.peerProcesses {
            peers.append(
                try PeerProcess(bench, transport, slots: count, path: "\(bench.directory)/callers-\(number)"))
        }
        self.init(transport, slots: count, peers)
    }

    private init(_ transport: Transport, slots count: Int, _ peers: [PeerProcess]) {
        self.transport = transport
        homes = .spread(peers)
        places = Places(peers.map(\.place))
        sequences = Array(repeating: 0, count: count)
    }

    /// Takes in whoever has connected.
    func takeIn() throws {
        switch homes {
        case .here(let ends):
            try ends.takeIn()
            connected = ends.connected
        case .spread(let peers):
            connected = 0
            for peer in peers { connected += try peer.connected() }
        }
    }

    /// Whoever speaks for us must be there.
    func requireAllThere() throws(LoadError) {
        switch homes {
        case .here: break
        case .spread(let peers): for peer in peers { try peer.requireRunning() }
        }
    }

    // MARK: Sleepers

    /// Sends the next packet to a sleeper. What it carries is the time at which it was sent, by whichever process.
    func call(_ index: Int) throws {
        sequences[index] += 1
        switch homes {
        case .here(let ends): try ends.call(index, sequence: sequences[index])
        case .spread(let peers):
            try peers[places.number(of: index)].tell([.call(index, sequence: sequences[index])])
        }
    }

    /// Sends the next packet to each of these, as fast as one caller can. One process speaks after the other: they
    /// would take processors from those who are called.
    func call(_ indices: [Int]) throws {
        switch homes {
        case .here:
            for index in indices { try call(index) }
        case .spread(let peers):
            for (number, peer) in peers.enumerated() {
                let share = indices.filter { places.number(of: $0) == number }
                for index in share { sequences[index] += 1 }
                try peer.tell(share.map { .call($0, sequence: sequences[$0]) })
                try peer.waitUntilDone()
            }
        }
    }

    /// How many packets were sent to a sleeper.
    func sent(to index: Int) -> UInt64 { sequences[index] }

    // MARK: Phones

    /// Calls a phone, which will answer.
    func ring(_ index: Int, number: UInt64) throws {
        switch homes {
        case .here(let ends): try ends.ring(index, number: number)
        case .spread(let peers): try peers[places.number(of: index)].tell([.ring(index, number: number)])
        }
    }

    /// Waits for the answer to the call with this number; see `OtherEnds.answer`.
    func answer(_ index: Int, number: UInt64, within milliseconds: CInt) throws -> Int64? {
        switch homes {
        case .here(let ends): try ends.answer(index, number: number, within: milliseconds)
        case .spread(let peers):
            try peers[places.number(of: index)].answer(index, number: number, within: milliseconds)
        }
    }
}

/// Where callers are to be found, and who of them is whose: neighbours share one, of whom every other may run under
/// another uid, and both are to be called at the same time.
struct Places {
    private let names: [String]

    init(_ names: [String]) { self.names = names }

    /// What `argument` said.
    init(argument: String) { names = argument.split(separator: "\n").map(String.init) }

    /// For the command line of a part.
    var argument: String { names.joined(separator: "\n") }

    func number(of index: Int) -> Int { index / 2 % names.count }

    /// For `Transport.connect`.
    subscript(index: Int) -> String { names[number(of: index)] }
}
