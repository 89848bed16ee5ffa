/// A growing array of slots for non-copyable values, each used or free.
///
/// `UniqueArray` of swift-collections 1.6 does not compile under the thread sanitizer, hence this type. It is
/// inlinable: each lookup of a parked socket in another module would ask the runtime for its generic type.
@safe
package struct UniqueSlots<Element: ~Copyable>: ~Copyable {
    @usableFromInline package var base: UnsafeMutablePointer<Element?>
    @usableFromInline package var capacity: Int
    @usableFromInline package var count = 0

    @inlinable package init() {
        capacity = 0
        unsafe base = .allocate(capacity: 0)
    }

    @inlinable deinit {
        unsafe base.deinitialize(count: count)
        unsafe base.deallocate()
    }

    @inlinable package subscript(index: Int) -> Element? {
        _read {
            precondition(index >= 0 && index < count, "no such slot")
            yield unsafe base[index]
        }
        _modify {
            precondition(index >= 0 && index < count, "no such slot")
            yield unsafe &base[index]
        }
    }

    @inlinable package mutating func append(_ element: consuming Element?) {
        if count == capacity { grow() }
        unsafe (base + count).initialize(to: element)
        count += 1
    }

    /// Frees and removes all slots; keeps their memory.
    @inlinable package mutating func removeAll() {
        unsafe base.deinitialize(count: count)
        count = 0
    }

    /// Removes free slots at the end, and their memory.
    @inlinable package mutating func removeFreeAtEnd() {
        while count > 0, isFree(count - 1) { count -= 1 }
        if count < capacity / 2 { move(to: count) }
    }

    @usableFromInline package func isFree(_ index: Int) -> Bool {
        switch unsafe base[index] {
        case .some: false
        case .none: true
        }
    }

    @usableFromInline package mutating func grow() { move(to: max(8, capacity + capacity / 2)) }

    @usableFromInline package mutating func move(to capacity: Int) {
        self.capacity = capacity
        let other = UnsafeMutablePointer<Element?>.allocate(capacity: capacity)
        unsafe other.moveInitialize(from: base, count: count)
        unsafe base.deallocate()
        unsafe base = other
    }
}
