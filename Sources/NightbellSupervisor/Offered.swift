import Descriptors

/// The descriptors that came with the HandOver being handled, in order. Whatever is not adopted is closed.
struct Offered: ~Copyable {
    private var descriptors = UniqueSlots<OwnedDescriptor>()
    private var names: [String] = []
    private var next = 0

    mutating func append(_ descriptor: consuming OwnedDescriptor, name: String) {
        descriptors.append(descriptor)
        names.append(name)
    }

    /// Passes the next one on.
    mutating func takeNext(_ body: (consuming OwnedDescriptor, String) -> Void) {
        guard next < descriptors.count else { return }
        defer { next += 1 }
        guard let descriptor = descriptors[next].take() else { return }
        body(descriptor, names[next])
    }

    mutating func removeAll() {
        for index in next..<max(next, descriptors.count) {
            if let descriptor = descriptors[index].take() { ForeignDescriptor.close(descriptor) }
        }
        descriptors.removeAll()
        names.removeAll(keepingCapacity: true)
        next = 0
    }
}
