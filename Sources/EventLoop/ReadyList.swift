import CLibevent

/// Collects the reports of libevent's callbacks and of the urgent set until a turn takes them. Confined to
/// the loop's thread.
///
/// The events do not lie in an array: the runtime checks access to arrays, and on the wake path each page of
/// code or memory that is not in the processor's caches costs more than a hundred instructions.
@safe
struct ReadyList: ~Copyable {
    private var base: UnsafeMutablePointer<Ready>
    private var capacity = 64
    private(set) var count = 0
    /// How many of the events were handled early.
    private(set) var handledEarly = 0
    private var spare: [Ready] = []
    /// Another thread has woken the loop for its inbox.
    var isWakeupSignalled = false
    /// The urgent set has something to report.
    var isUrgentReady = false

    init() {
        unsafe base = .allocate(capacity: capacity)
    }

    deinit {
        unsafe base.deallocate()
    }

    subscript(index: Int) -> Ready {
        precondition(index >= 0 && index < count, "no such event")
        return unsafe base[index]
    }

    mutating func append(_ ready: Ready) {
        if count == capacity { grow() }
        unsafe (base + count).initialize(to: ready)
        count += 1
    }

    @inline(never)
    private mutating func grow() {
        let larger = UnsafeMutablePointer<Ready>.allocate(capacity: 2 * capacity)
        unsafe larger.moveInitialize(from: base, count: count)
        unsafe base.deallocate()
        unsafe base = larger
        capacity *= 2
    }

    mutating func markHandledEarly(_ index: Int) {
        precondition(index >= 0 && index < count, "no such event")
        unsafe base[index].wasHandledEarly = true
        handledEarly += 1
    }

    /// Removes and returns the oldest events. Hand the array to `recycle` afterwards, so that the next one
    /// needs no allocation.
    mutating func removeFirst(atMost limit: Int) -> [Ready] {
        var batch = spare
        spare = []
        let taken = min(limit, count)
        unsafe batch.append(contentsOf: UnsafeBufferPointer(start: base, count: taken))
        for index in 0..<taken where unsafe base[index].wasHandledEarly { handledEarly -= 1 }
        count -= taken
        unsafe base.update(from: base + taken, count: count)
        return batch
    }

    mutating func recycle(_ batch: consuming [Ready]) {
        batch.removeAll(keepingCapacity: true)
        spare = batch
    }
}
