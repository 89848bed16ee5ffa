/// A growing array of slots for non-copyable values, each used or free.
///
/// `UniqueArray` of swift-collections 1.6 does not compile under the thread sanitizer, hence this type. It is
/// in the module that looks parked sockets up: generic code of another one would ask the runtime for its type
/// each time.
@safe
package struct UniqueSlots<Element: ~Copyable>: ~Copyable {
    private var base: UnsafeMutablePointer<Element?>
    private var capacity: Int
    package private(set) var count = 0

    package init() {
        capacity = 0
        unsafe base = .allocate(capacity: 0)
    }

    deinit {
        unsafe base.deinitialize(count: count)
        unsafe base.deallocate()
    }

    package subscript(index: Int) -> Element? {
        unsafeAddress {
            precondition(index >= 0 && index < count, "no such slot")
            return unsafe UnsafePointer(base + index)
        }
        unsafeMutableAddress {
            precondition(index >= 0 && index < count, "no such slot")
            return unsafe base + index
        }
    }

    package mutating func append(_ element: consuming Element?) {
        if count == capacity { grow() }
        unsafe (base + count).initialize(to: element)
        count += 1
    }

    /// Frees and removes all slots; keeps their memory.
    package mutating func removeAll() {
        unsafe base.deinitialize(count: count)
        count = 0
    }

    /// Removes free slots at the end, and their memory.
    package mutating func removeFreeAtEnd() {
        while count > 0, isFree(count - 1) { count -= 1 }
        if count < capacity / 2 { move(to: count) }
    }

    private func isFree(_ index: Int) -> Bool {
        switch unsafe base[index] {
        case .some: false
        case .none: true
        }
    }

    private mutating func grow() { move(to: max(8, capacity + capacity / 2)) }

    private mutating func move(to capacity: Int) {
        self.capacity = capacity
        let other = UnsafeMutablePointer<Element?>.allocate(capacity: capacity)
        unsafe other.moveInitialize(from: base, count: count)
        unsafe base.deallocate()
        unsafe base = other
    }
}
