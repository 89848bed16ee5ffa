import Keeper

/// Writes a record: numbers of a fixed length, the least significant byte first, and texts with their length.
struct RecordWriter {
    private(set) var bytes: [UInt8]

    init(version: UInt8) {
        bytes = [version]
    }

    mutating func write(_ value: UInt8) { bytes.append(value) }
    mutating func write(_ value: Bool) { bytes.append(value ? 1 : 0) }
    mutating func write(_ value: UInt16) { bytes.append(number: UInt64(value), bytes: 2) }
    mutating func write(_ value: UInt32) { bytes.append(number: UInt64(value), bytes: 4) }
    mutating func write(_ value: UInt64) { bytes.append(number: value, bytes: 8) }

    mutating func write(_ blob: [UInt8]) {
        write(UInt32(blob.count))
        bytes += blob
    }

    mutating func write(_ text: String) { write(Array(text.utf8)) }
}

/// Why a record of an earlier worker is of no use: a newer version of the program has made it, or it is damaged.
struct RecordError: Error, CustomStringConvertible {
    let key: RecordKey
    let problem: String

    var description: String { "the record \(key.id) of kind \(key.kind) \(problem)" }
}

/// Reads what a `RecordWriter` wrote, to the last byte.
struct RecordReader {
    private let key: RecordKey
    private var rest: ArraySlice<UInt8>

    init(_ key: RecordKey, _ record: [UInt8], version: UInt8) throws(RecordError) {
        self.key = key
        rest = record[...]
        let found: UInt8 = try read()
        guard found <= version else {
            throw RecordError(
                key: key, problem: "is of version \(found), this program knows \(version): it is older")
        }
    }

    private mutating func take(_ count: Int) throws(RecordError) -> ArraySlice<UInt8> {
        guard count <= rest.count else { throw RecordError(key: key, problem: "is too short") }
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }

    mutating func read() throws(RecordError) -> UInt8 { UInt8(try take(1).number) }
    mutating func read() throws(RecordError) -> Bool { try take(1).number != 0 }
    mutating func read() throws(RecordError) -> UInt16 { UInt16(try take(2).number) }
    mutating func read() throws(RecordError) -> UInt32 { UInt32(try take(4).number) }
    mutating func read() throws(RecordError) -> UInt64 { try take(8).number }

    mutating func read() throws(RecordError) -> [UInt8] {
        let count: UInt32 = try read()
        return Array(try take(Int(count)))
    }

    mutating func read() throws(RecordError) -> String {
        String(decoding: try read() as [UInt8], as: UTF8.self)
    }

    /// Nothing may be left.
    func end() throws(RecordError) {
        guard rest.isEmpty else { throw RecordError(key: key, problem: "is too long") }
    }

    func problem(_ text: String) -> RecordError { RecordError(key: key, problem: text) }
}
