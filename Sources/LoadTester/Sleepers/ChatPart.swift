import CChat
import CFloors
import Glibc
import Simulation

/// A process with clients of chat servers. It inherits the socket on which it is told what to do as descriptor 3, and the
/// memory in which it tells what it has seen as descriptor 4.
struct ChatPart {
    private let control: CInt = 3
    private let area: ChatArea
    private let seed: UInt64

    init(_ arguments: [String]) throws(LoadError) {
        guard arguments.count == 2, let calls = Int(arguments[0]), let seed = UInt64(arguments[1]) else {
            throw .missing("arguments")
        }
        area = try ChatArea(inherited: 4, calls: calls)
        self.seed = seed
    }

    func run() throws {
        _ = cfloors_raise_descriptor_limit()
        let crowd = cchat_crowd_make(seed)
        defer { cchat_crowd_free(crowd) }
        var random = SplitMix64(seed: seed)
        while true {
            try require(cchat_idle(crowd, control), crowd)
            var order = ChatOrder(.join)
            let size = MemoryLayout<ChatOrder>.size
            guard recv(control, &order, size, 0) == size else { return }
            try perform(order, crowd, &random)
            var answer: UInt8 = 1
            guard send(control, &answer, 1, CInt(MSG_NOSIGNAL)) == 1 else { return }
        }
    }

    private func require(_ code: CInt, _ crowd: OpaquePointer?) throws(LoadError) {
        let complaint = cchat_complaint(crowd).map { String(cString: $0) } ?? ""
        guard complaint.isEmpty else { throw .missing(complaint) }
        guard code == 0 else { throw LoadError("chat", code: code) }
    }

    private func perform(
        _ order: ChatOrder, _ crowd: OpaquePointer?, _ random: inout SplitMix64
    ) throws(LoadError) {
        let (first, count, roomSize) = (Int(order.first), Int(order.count), Int(order.roomSize))
        switch order.kind {
        case .join:
            try require(
                cchat_join(
                    crowd, UInt16(order.port), cchat_room(UInt32(order.room)), first, count, roomSize), crowd)
        case .call:
            try call(order, crowd, &random)
        case .talk:
            try require(
                cchat_talk(crowd, first, count, roomSize, order.nanoseconds, &area.report.pointee.talk), crowd
            )
        case .stir:
            try require(
                cchat_stir(
                    crowd, first, count, roomSize, UInt64(order.amount), order.nanoseconds, area.progress,
                    &area.report.pointee.verdict), crowd)
        case nil: throw .missing("an order that is none")
        }
    }

    /// Every sender in turn, in an order that is drawn anew for each time around: none pauses for long.
    private func call(
        _ order: ChatOrder, _ crowd: OpaquePointer?, _ random: inout SplitMix64
    ) throws(LoadError) {
        var senders = Array(0..<Int(order.count))
        for call in 0..<Int(order.amount) {
            let turn = call % senders.count
            if turn == 0 { senders.shuffle(using: &random) }
            let oursFirst = Bool.random(using: &random)
            for side in oursFirst ? [0, 1] : [1, 0] {
                try rest(&random)
                let sender = Int(side == 0 ? order.first : order.otherFirst) + 2 * senders[turn]
                try require(cchat_call(crowd, sender, sender + 1, area.samples(side) + call), crowd)
            }
        }
    }

    /// So that the moment of a call has nothing to do with what was before.
    private func rest(_ random: inout SplitMix64) throws(LoadError) {
        let drawn = min(random.exponential(perSecond: 2_000), 0.02)
        try pause(nanoseconds: 200_000 + Int64(drawn * 1e9))
    }
}
