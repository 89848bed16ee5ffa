import CLibevent
import Descriptors
import Glibc

/// What libevent keeps of a watch, and what its callback needs.
@unsafe
struct WatchRecord {
    var event = unsafe CLibevent.event()
    /// What the watch's events carry.
    let token: UInt64
    let gathering: UnsafeMutablePointer<Gathering>
}

/// Interest of the loop in one descriptor or signal; letting go of it disarms it. For the few: what there are thousands
/// of is watched by ``SetWatch``. Used on the loop's thread only.
@safe
package struct Watch: ~Copyable {
    private let record: UnsafeMutablePointer<WatchRecord>
    /// Whose memory the record is linked into.
    private let loop: LoopExecutor

    init(record: UnsafeMutablePointer<WatchRecord>, loop: LoopExecutor) {
        unsafe self.record = record
        self.loop = loop
    }

    deinit {
        unsafe event_del(&record.pointee.event)
        unsafe record.deinitialize(count: 1)
        unsafe record.deallocate()
    }

    /// What the watch's events carry.
    package var token: UInt64 { unsafe record.pointee.token }

    /// Starts to watch; no more than that if it does already. What is true already counts: unread input is
    /// reported in the next turn.
    package borrowing func arm() throws(LoopError) {
        errno = 0
        guard unsafe event_add(&record.pointee.event, nil) == 0 else {
            let code = errno == 0 ? EINVAL : errno
            throw LoopError(code: .cannotArm, underlying: SystemError(code: code, call: "event_add"))
        }
    }

    /// Stops watching. Call it before the descriptor is closed. An event already gathered is still delivered.
    package borrowing func disarm() {
        unsafe event_del(&record.pointee.event)
    }

    /// Whether an event can still come: a one-shot watch is not armed any more once it fired.
    package var isArmed: Bool {
        let any = CShort(EV_READ | EV_WRITE | EV_CLOSED | EV_SIGNAL)
        return unsafe event_pending(&record.pointee.event, any, nil) != 0
    }
}
