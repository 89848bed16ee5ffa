import BasicContainers
import Descriptors

/// The descriptors that came with the HandOver being handled, in order. Whatever is not adopted is closed.
struct Offered: ~Copyable {
    struct Entry: ~Copyable {
        let descriptor: OwnedDescriptor
        let name: String
    }

    private var entries = UniqueArray<Entry?>()
    private var next = 0

    mutating func append(_ descriptor: consuming OwnedDescriptor, name: String) {
        entries.append(Entry(descriptor: descriptor, name: name))
    }

    /// Passes the next one on.
    mutating func takeNext(_ body: (consuming OwnedDescriptor, String) -> Void) {
        guard next < entries.count, let entry = entries[next].take() else { return }
        next += 1
        let name = entry.name
        body(entry.descriptor, name)
    }

    mutating func removeAll() {
        entries.removeAll()
        next = 0
    }
}
