import CLibevent
import Descriptors
import Glibc

/// Interest of the loop in one descriptor or signal. 128 bytes, allocated once; letting go of it disarms it.
/// Used on the loop's thread only.
@safe
package struct Watch: ~Copyable {
    private let record: UnsafeMutablePointer<WatchRecord>

    init(record: UnsafeMutablePointer<WatchRecord>) {
        unsafe self.record = record
    }

    deinit {
        unsafe event_del(&record.pointee.event)
        unsafe WatchPool.deallocate(record)
    }

    /// What one watch costs, libevent's own tables aside.
    package static var byteCount: Int { unsafe MemoryLayout<WatchRecord>.size }

    /// What the watch's events carry.
    package var token: UInt64 { unsafe record.pointee.token }

    /// For whoever holds the watch, to remember something by. Nothing of the loop's.
    package var isMarked: Bool {
        get { unsafe record.pointee.isMarked }
        nonmutating set { unsafe record.pointee.isMarked = newValue }
    }

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
