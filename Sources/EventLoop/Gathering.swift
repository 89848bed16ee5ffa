import CLibevent

/// Where libevent's callbacks put what they are told, until the turn takes it. Confined to the loop's thread.
/// Two arrays change places, so that in the steady state nothing is allocated.
struct Gathering {
    private var filling: [Ready] = []
    private var spare: [Ready] = []
    /// Whether the loop was woken for its inbox.
    var bellRang = false

    init() {
        filling.reserveCapacity(64)
        spare.reserveCapacity(64)
    }

    var count: Int { filling.count }

    subscript(index: Int) -> Ready { filling[index] }

    mutating func append(_ ready: Ready) {
        filling.append(ready)
    }

    /// What was gathered since the last call. Give the array back with `recycle` when it is dealt with.
    mutating func take() -> [Ready] {
        let taken = filling
        filling = spare
        spare = []
        return taken
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
    unsafe WatchPool.gathering(of: record).pointee.append(
        Ready(
            token: record.pointee.token,
            readable: what & (EV_READ | EV_SIGNAL) != 0,
            closed: what & EV_CLOSED != 0,
            writable: what & EV_WRITE != 0))
}

/// libevent's callback for the loop's own bell, which is read by the turn.
func gatherBell(descriptor: CInt, what: CShort, argument: UnsafeMutableRawPointer?) {
    unsafe argument?.assumingMemoryBound(to: Gathering.self).pointee.bellRang = true
}
