/// One line of a phone's report: a flat JSON object of texts, whole numbers, flags and lists of texts. A
/// reader for that is small; a general one would have to be linked.
struct Report {
    private enum Value {
        case text(String)
        case number(Int64)
        case flag(Bool)
        case list([String])
    }

    private var values: [String: Value] = [:]

    func text(_ key: String) -> String? {
        if case .text(let text) = values[key] { text } else { nil }
    }

    func number(_ key: String, or other: Int64) -> Int64 {
        if case .number(let number) = values[key] { number } else { other }
    }

    func flag(_ key: String) -> Bool {
        if case .flag(let flag) = values[key] { flag } else { false }
    }

    func list(_ key: String) -> [String] {
        if case .list(let list) = values[key] { list } else { [] }
    }

    /// Nil: it is not such an object.
    init?(line: some Sequence<UInt8>) {
        var rest = Array(line)[...]
        guard rest.popFirst() == UInt8(ascii: "{") else { return nil }
        while rest.first != UInt8(ascii: "}") {
            guard let key = Self.takeText(&rest), rest.popFirst() == UInt8(ascii: ":"),
                let value = Self.takeValue(&rest)
            else { return nil }
            values[key] = value
            if rest.first == UInt8(ascii: ",") { rest.removeFirst() }
        }
        guard rest.count == 1 else { return nil }
    }

    private static func takeValue(_ rest: inout ArraySlice<UInt8>) -> Value? {
        switch rest.first {
        case UInt8(ascii: "\""):
            return takeText(&rest).map { .text($0) }
        case UInt8(ascii: "["):
            rest.removeFirst()
            var list: [String] = []
            while rest.first != UInt8(ascii: "]") {
                guard let text = takeText(&rest) else { return nil }
                list.append(text)
                if rest.first == UInt8(ascii: ",") { rest.removeFirst() }
            }
            rest.removeFirst()
            return .list(list)
        default:
            let word = rest.prefix { $0 != UInt8(ascii: ",") && $0 != UInt8(ascii: "}") }
            rest = rest[word.endIndex...]
            let text = String(decoding: word, as: UTF8.self)
            return Bool(text).map { .flag($0) } ?? Int64(text).map { .number($0) }
        }
    }

    private static func takeText(_ rest: inout ArraySlice<UInt8>) -> String? {
        guard rest.popFirst() == UInt8(ascii: "\"") else { return nil }
        var bytes: [UInt8] = []
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "\""): return String(decoding: bytes, as: UTF8.self)
            case UInt8(ascii: "\\"): rest.popFirst().map { bytes.append($0) }
            default: bytes.append(byte)
            }
        }
        return nil
    }
}
