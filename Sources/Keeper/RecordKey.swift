/// Names a record. To the keeper it is nothing but the same name or another one.
package struct RecordKey: Sendable, Hashable, Comparable {
    /// Which kind of thing the record is about. Those below 16 are the keeper's own.
    package let kind: UInt8
    package let id: UInt64

    package init(kind: UInt8, id: UInt64) {
        self.kind = kind
        self.id = id
    }

    package static func < (one: RecordKey, other: RecordKey) -> Bool {
        (one.kind, one.id) < (other.kind, other.id)
    }

    /// The socket that everybody connects to.
    package static let listener = RecordKey(kind: 0, id: 0)
    /// The lock on the runtime directory.
    package static let lock = RecordKey(kind: 0, id: 1)
    /// The memory of small, often changing state.
    package static let ledger = RecordKey(kind: 0, id: 2)
    /// Where the lock and the listening socket are, so that nobody goes on with those of another configuration.
    package static let place = RecordKey(kind: 0, id: 3)
}
