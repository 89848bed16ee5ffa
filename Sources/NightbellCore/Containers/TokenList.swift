/// A client's sockets by index. Most clients have one, which needs no separate allocation.
struct TokenList: Sendable, Equatable, RandomAccessCollection, MutableCollection {
    /// 0: the list is empty. A token's raw value is never 0.
    private var first: UInt64 = 0
    private var others: [SocketToken] = []

    var startIndex: Int { 0 }
    var endIndex: Int { first == 0 ? 0 : others.count + 1 }

    subscript(index: Int) -> SocketToken {
        get {
            precondition(index < endIndex, "no such place")
            return index == 0 ? SocketToken(rawValue: first) : others[index - 1]
        }
        set {
            precondition(index < endIndex, "no such place")
            if index == 0 { first = newValue.rawValue } else { others[index - 1] = newValue }
        }
    }

    /// Makes room for so many in all.
    mutating func reserveCapacity(_ count: Int) { others.reserveCapacity(Swift.max(0, count - 1)) }

    mutating func append(_ token: SocketToken) {
        if first == 0 { first = token.rawValue } else { others.append(token) }
    }

    mutating func removeLast() -> SocketToken {
        if let last = others.popLast() { return last }
        precondition(first != 0, "there is none")
        defer { first = 0 }
        return SocketToken(rawValue: first)
    }
}
