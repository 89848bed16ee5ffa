/// The owners' names for their sockets. A fleet uses the same ones as a rule, so each is stored once.
struct SocketNames {
    /// Stands for a name.
    struct Name: Equatable {
        fileprivate let number: UInt16

        fileprivate static let none = Name(number: 0)
        /// The table is full; the name is stored for its socket alone.
        fileprivate static let own = Name(number: .max)
    }

    private struct Shared {
        var text: String
        var users: Int
    }

    /// By their numbers, less one.
    private var shared: [Shared] = []
    private var numbers: [String: UInt16] = [:]
    private var free: [UInt16] = []
    /// By the slots of their sockets.
    private var own: [UInt32: String] = [:]
    /// The most shared names.
    private let limit: Int

    init(limit: Int = Int(UInt16.max) - 1) { self.limit = limit }

    mutating func add(_ text: String, slot: UInt32) -> Name {
        guard !text.isEmpty else { return .none }
        if let number = numbers[text] {
            shared[Int(number) - 1].users += 1
            return Name(number: number)
        }
        if let number = free.popLast() {
            shared[Int(number) - 1] = Shared(text: text, users: 1)
            numbers[text] = number
            return Name(number: number)
        }
        guard shared.count < limit else {
            own[slot] = text
            return .own
        }
        shared.append(Shared(text: text, users: 1))
        let number = UInt16(shared.count)
        numbers[text] = number
        return Name(number: number)
    }

    mutating func remove(_ name: Name, slot: UInt32) {
        switch name {
        case .none: return
        case .own: own[slot] = nil
        default:
            let index = Int(name.number) - 1
            shared[index].users -= 1
            guard shared[index].users == 0 else { return }
            numbers[shared[index].text] = nil
            shared[index].text = ""
            free.append(name.number)
        }
    }

    func text(of name: Name, slot: UInt32) -> String {
        switch name {
        case .none: ""
        case .own: own[slot] ?? ""
        default: shared[Int(name.number) - 1].text
        }
    }
}
