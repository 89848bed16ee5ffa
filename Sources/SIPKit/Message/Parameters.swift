/// `;name=value` parameters in their order. Names are compared without regard to case.
public struct SIPParameters: Sendable, Equatable, CustomStringConvertible {
    private struct Entry: Sendable, Equatable {
        var name: String
        var value: String?
    }

    private var entries: [Entry] = []

    public init() {}

    /// Reads the pieces between the semicolons.
    init(_ pieces: some Sequence<String>) {
        for piece in pieces {
            guard let equals = piece.utf8.firstIndex(of: UInt8(ascii: "=")) else {
                entries.append(Entry(name: piece, value: nil))
                continue
            }
            let name = trimmed(piece[..<equals].utf8)
            let value = trimmed(piece[piece.index(after: equals)...].utf8)
            entries.append(Entry(name: name, value: value))
        }
    }

    /// The value of a parameter; the empty string for one without a value. Setting the empty string writes
    /// the name alone, nil removes it.
    public subscript(_ name: String) -> String? {
        get { entries.first { $0.name.lowercased() == name.lowercased() }.map { $0.value ?? "" } }
        set {
            let place = entries.firstIndex { $0.name.lowercased() == name.lowercased() }
            guard let newValue else {
                if let place { entries.remove(at: place) }
                return
            }
            let entry = Entry(name: name, value: newValue.isEmpty ? nil : newValue)
            if let place {
                entries[place] = entry
            } else {
                entries.append(entry)
            }
        }
    }

    public var isEmpty: Bool { entries.isEmpty }

    public var description: String {
        entries.reduce(into: "") { text, entry in
            text += ";\(entry.name)"
            if let value = entry.value { text += "=\(value)" }
        }
    }
}
