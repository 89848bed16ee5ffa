/// Names a record. The keeper only compares keys.
package struct RecordKey: Sendable, Hashable, Comparable {
    /// The kind of record. Kinds below 16 are the keeper's own.
    package let kind: UInt8
    package let id: UInt64

    package init(kind: UInt8, id: UInt64) {
        self.kind = kind
        self.id = id
    }

    package static func < (one: RecordKey, other: RecordKey) -> Bool {
        (one.kind, one.id) < (other.kind, other.id)
    }

    /// The socket that clients connect to.
    package static let listener = RecordKey(kind: 0, id: 0)
    /// The lock on the runtime directory.
    package static let lock = RecordKey(kind: 0, id: 1)
    /// The shared memory of small values that change often.
    package static let sharedState = RecordKey(kind: 0, id: 2)
    /// The paths of the lock and the listening socket, so that no worker continues with those of another
    /// configuration.
    package static let place = RecordKey(kind: 0, id: 3)
}
