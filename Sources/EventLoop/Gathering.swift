import CLibevent

/// Where the set and libevent's callbacks put what they are told, until the turn takes it. Confined to the loop's thread.
///
/// Not gathered in an array: that is looked after by the runtime, and each page of code or memory that a wake needs and
/// the processor does not have at hand costs more than a hundred instructions.
@safe
struct Gathering: ~Copyable {
    private var base: UnsafeMutablePointer<Ready>
    private var capacity = 64
    private(set) var count = 0
    /// How many of them were dealt with early.
    private(set) var dealt = 0
    private var spare: [Ready] = []
    /// Whether the loop was woken for its inbox.
    var bellRang = false
    /// Whether libevent has something to tell.
    var isLibeventReady = false

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

    mutating func markDealt(_ index: Int) {
        precondition(index >= 0 && index < count, "no such event")
        unsafe base[index].isDealt = true
        dealt += 1
    }

    /// What was gathered first and not taken yet. Give the array back with `recycle` when it is dealt with: so nothing is
    /// allocated.
    mutating func take(atMost limit: Int) -> [Ready] {
        var batch = spare
        spare = []
        let taken = min(limit, count)
        unsafe batch.append(contentsOf: UnsafeBufferPointer(start: base, count: taken))
        for index in 0..<taken where unsafe base[index].isDealt { dealt -= 1 }
        count -= taken
        unsafe base.update(from: base + taken, count: count)
        return batch
    }

    mutating func recycle(_ batch: consuming [Ready]) {
        batch.removeAll(keepingCapacity: true)
        spare = batch
    }
}

/// libevent's callback for every watch; the argument is the watch's record.
func gatherEvent(descriptor: CInt, what: CShort, argument: UnsafeMutableRawPointer?) {
    guard let record = unsafe argument?.assumingMemoryBound(to: WatchRecord.self) else { return }
    let what = CInt(what)
    unsafe record.pointee.gathering.pointee.append(
        Ready(
            token: record.pointee.token,
            readable: what & (EV_READ | EV_SIGNAL) != 0,
            writable: what & EV_WRITE != 0))
}
