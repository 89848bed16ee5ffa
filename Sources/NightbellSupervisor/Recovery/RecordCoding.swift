import Keeper
import NightbellWire
import SwiftProtobuf

/// Why a record of an earlier worker cannot be used: a newer version of the program has made it, or it is
/// damaged.
struct RecordError: Error, CustomStringConvertible {
    let key: RecordKey
    let problem: String

    var description: String { "the record \(key.id) of kind \(key.kind) \(problem)" }
}

extension SwiftProtobuf.Message {
    /// - Parameter record: nil: it is missing.
    init(_ key: RecordKey, _ record: [UInt8]?) throws(RecordError) {
        do {
            try self.init(serializedBytes: record ?? [])
        } catch {
            throw RecordError(key: key, problem: "does not decode")
        }
        guard !hasUnknownFields else {
            throw RecordError(
                key: key, problem: "has fields that this program does not know: it is older than the writer")
        }
    }

    var record: [UInt8] {
        do {
            return try serializedBytes()
        } catch {
            preconditionFailure("our own records can be encoded: \(error)")
        }
    }
}
