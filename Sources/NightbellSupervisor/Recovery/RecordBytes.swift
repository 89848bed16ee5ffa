import Keeper

/// Writes a record: numbers in groups of seven bits, the least significant first, because most are small; texts
/// are preceded by their length.
struct RecordWriter {
    private(set) var bytes: [UInt8]

    /// - Parameter capacity: an exact capacity for records of which there are thousands; the buffer grows if it
    ///   is too small.
    init(version: UInt8, capacity: Int = 1) {
        bytes = []
        bytes.reserveCapacity(capacity)
        bytes.append(version)
    }

    mutating func write(_ value: UInt8) { bytes.append(value) }
    mutating func write(_ value: Bool) { bytes.append(value ? 1 : 0) }
    mutating func write(_ value: UInt16) { write(UInt64(value)) }
    mutating func write(_ value: UInt32) { write(UInt64(value)) }

    mutating func write(_ value: UInt64) {
        var rest = value
        while rest > 0x7F {
            write(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        write(UInt8(rest))
    }

    mutating func write(_ blob: [UInt8]) {
        write(count: blob.count)
        bytes += blob
    }

    /// The number of elements that follow.
    mutating func write(count: Int) { write(UInt32(clamping: count)) }

    mutating func write(_ text: String) { write(Array(text.utf8)) }
}

/// Why a record of an earlier worker cannot be used: a newer version of the program has made it, or it is
/// damaged.
struct RecordError: Error, CustomStringConvertible {
    let key: RecordKey
    let problem: String

    var description: String { "the record \(key.id) of kind \(key.kind) \(problem)" }
}

/// Reads what a `RecordWriter` wrote, to the last byte.
struct RecordReader {
    private let key: RecordKey
    private let record: [UInt8]
    private var position = 0

    init(_ key: RecordKey, _ record: [UInt8], version: UInt8) throws(RecordError) {
        self.key = key
        self.record = record
        let found: UInt8 = try read()
        guard found == version else {
            let which =
                found > version ? "older than the writer" : "newer, and no longer reads it"
            throw RecordError(
                key: key, problem: "is of version \(found), this program knows \(version): it is \(which)")
        }
    }

    private mutating func take(_ count: Int) throws(RecordError) -> Range<Int> {
        guard count <= record.count - position else { throw RecordError(key: key, problem: "is too short") }
        defer { position += count }
        return position..<position + count
    }

    mutating func read() throws(RecordError) -> UInt8 { record[try take(1).lowerBound] }
    mutating func read() throws(RecordError) -> Bool { try read() != (0 as UInt8) }
    mutating func read() throws(RecordError) -> UInt16 { try readNumber() }
    mutating func read() throws(RecordError) -> UInt32 { try readNumber() }
    mutating func read() throws(RecordError) -> UInt64 { try readNumber() }

    private mutating func readNumber<Number: FixedWidthInteger>() throws(RecordError) -> Number {
        var number: UInt64 = 0
        for shift in stride(from: UInt64(0), to: 64, by: 7) {
            let byte: UInt8 = try read()
            number |= UInt64(byte & 0x7F) << shift
            guard byte < 0x80 else { continue }
            guard let number = Number(exactly: number) else { throw problem("has too large a number") }
            return number
        }
        throw problem("has a number that does not end")
    }

    mutating func read() throws(RecordError) -> [UInt8] { Array(record[try take(try readCount())]) }

    mutating func read() throws(RecordError) -> String {
        String(decoding: record[try take(try readCount())], as: UTF8.self)
    }

    mutating func readCount() throws(RecordError) -> Int { Int(try readNumber() as UInt32) }

    /// The record must end here.
    func end() throws(RecordError) {
        guard position == record.count else { throw RecordError(key: key, problem: "is too long") }
    }

    func problem(_ text: String) -> RecordError { RecordError(key: key, problem: text) }
}
