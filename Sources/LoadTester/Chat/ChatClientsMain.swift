import CChat
import CFloors
import Glibc
import Simulation

/// The main function of a process with clients of chat servers. Inherits the socket on which it gets orders
/// as descriptor 3, and the memory in which it reports as descriptor 4.
struct ChatClientsMain {
    private let control: CInt = 3
    private let sharedMemory: ChatSharedMemory
    private let seed: UInt64

    init(_ arguments: [String]) throws(LoadError) {
        guard arguments.count == 2, let calls = Int(arguments[0]), let seed = UInt64(arguments[1]) else {
            throw .missing("arguments")
        }
        sharedMemory = try ChatSharedMemory(inherited: 4, calls: calls)
        self.seed = seed
    }

    func run() throws {
        _ = cfloors_raise_descriptor_limit()
        let clients = cchat_clients_make(seed)
        defer { cchat_clients_free(clients) }
        var random = SplitMix64(seed: seed)
        while true {
            try require(cchat_idle(clients, control), clients)
            var order = ChatOrder(.join)
            let size = MemoryLayout<ChatOrder>.size
            guard recv(control, &order, size, 0) == size else { return }
            try perform(order, clients, &random)
            var answer: UInt8 = 1
            guard send(control, &answer, 1, CInt(MSG_NOSIGNAL)) == 1 else { return }
        }
    }

    private func require(_ code: CInt, _ clients: OpaquePointer?) throws(LoadError) {
        let complaint = cchat_first_error(clients).map { String(cString: $0) } ?? ""
        guard complaint.isEmpty else { throw .missing(complaint) }
        guard code == 0 else { throw LoadError("chat", code: code) }
    }

    private func perform(
        _ order: ChatOrder, _ clients: OpaquePointer?, _ random: inout SplitMix64
    ) throws(LoadError) {
        let (first, count, roomSize) = (Int(order.first), Int(order.count), Int(order.roomSize))
        switch order.kind {
        case .join:
            try require(
                cchat_join(
                    clients, UInt16(order.port), cchat_room(UInt32(order.room)), first, count, roomSize),
                clients)
        case .call:
            try call(order, clients, &random)
        case .throughput:
            try require(
                cchat_measure_throughput(
                    clients, first, count, roomSize, order.nanoseconds,
                    &sharedMemory.report.pointee.throughput), clients
            )
        case .soak:
            try require(
                cchat_soak(
                    clients, first, count, roomSize, UInt64(order.amount), order.nanoseconds,
                    sharedMemory.progress,
                    &sharedMemory.report.pointee.deliveries), clients)
        case nil: throw .missing("an order that is none")
        }
    }

    /// Each sender in turn, in an order drawn anew for each time around: none pauses for long.
    private func call(
        _ order: ChatOrder, _ clients: OpaquePointer?, _ random: inout SplitMix64
    ) throws(LoadError) {
        var senders = Array(0..<Int(order.count))
        for call in 0..<Int(order.amount) {
            let turn = call % senders.count
            if turn == 0 { senders.shuffle(using: &random) }
            let oursFirst = Bool.random(using: &random)
            for side in oursFirst ? [0, 1] : [1, 0] {
                try rest(&random)
                let sender = Int(side == 0 ? order.first : order.otherFirst) + 2 * senders[turn]
                try require(
                    cchat_call(clients, sender, sender + 1, sharedMemory.samples(side) + call), clients)
            }
        }
    }

    /// A random pause: the moment of a call must not depend on the one before.
    private func rest(_ random: inout SplitMix64) throws(LoadError) {
        let drawn = min(random.exponential(perSecond: 2_000), 0.02)
        try pause(nanoseconds: 200_000 + Int64(drawn * 1e9))
    }
}
