/// A large value that seldom changes, stored once for all copies of the struct that holds it.
///
/// The compiler copies a struct, however large, for each call of a method that does not change it from one
/// that does.
struct Shared<Value: Sendable & Equatable>: Sendable, Equatable {
    private final class Storage: Sendable {
        let value: Value

        init(_ value: Value) { self.value = value }
    }

    private let storage: Storage

    init(_ value: Value) { storage = Storage(value) }

    var value: Value { storage.value }

    static func == (one: Shared, other: Shared) -> Bool {
        one.storage === other.storage || one.storage.value == other.storage.value
    }
}
