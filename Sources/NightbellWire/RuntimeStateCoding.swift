import SwiftProtobuf

extension StoredRuntimeState {
    /// The changes before the first one that is damaged, or that this program does not know.
    ///
    /// - Returns: the changes, and the number of bytes that they take.
    package static func decode(_ bytes: [UInt8]) -> (changes: [StoredRuntimeChange], byteCount: Int) {
        var reader = PacketReader(bytes)
        var changes: [StoredRuntimeChange] = []
        var byteCount = 0
        while reader.varint() == 1 << 3 | 2, let end = reader.end() {
            guard let change = try? StoredRuntimeChange(serializedBytes: Array(bytes[reader.position..<end])),
                !change.hasUnknownFields, change.stoppedPids.count == change.stoppedStartTimes.count
            else { break }
            changes.append(change)
            reader.skip(to: end)
            byteCount = end
        }
        return (changes, byteCount)
    }

    package init(_ change: StoredRuntimeChange) { changes = [change] }

    package var encoded: [UInt8] {
        do {
            return try serializedBytes()
        } catch {
            preconditionFailure("our own state can be encoded: \(error)")
        }
    }
}
