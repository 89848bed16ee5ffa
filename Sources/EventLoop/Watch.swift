import CLibevent
import Glibc
import LinuxSystem

/// A libevent event, and what its callback needs.
@unsafe
struct WatchRecord {
    var event = unsafe CLibevent.event()
    /// The token in the watch's events.
    let token: UInt64
    let loop: Unmanaged<LoopExecutor>
}

/// The loop's interest in one descriptor or signal, as a libevent event; releasing it disarms it. For parked
/// sockets, of which there are thousands, see ``EpollSet``. Used on the loop's thread only.
@safe
package struct Watch: ~Copyable {
    private let record: UnsafeMutablePointer<WatchRecord>
    /// The record is linked into this loop's memory.
    private let loop: LoopExecutor

    /// Not armed yet.
    init(_ subject: CInt, _ what: CInt, token: UInt64, loop: LoopExecutor) throws(LoopError) {
        let record = UnsafeMutablePointer<WatchRecord>.allocate(capacity: 1)
        unsafe record.initialize(to: WatchRecord(token: token, loop: .passUnretained(loop)))
        let result = unsafe event_assign(
            &record.pointee.event, loop.base, subject, CShort(what), reportEvent, record)
        guard result == 0 else {
            unsafe record.deallocate()
            throw LoopError(code: .cannotWatch, underlying: SystemError(code: EINVAL, call: "event_assign"))
        }
        unsafe self.record = record
        self.loop = loop
    }

    deinit {
        unsafe event_del(&record.pointee.event)
        unsafe record.deinitialize(count: 1)
        unsafe record.deallocate()
    }

    /// The token in the watch's events.
    package var token: UInt64 { unsafe record.pointee.token }

    /// Starts watching; does nothing if armed. Conditions that already hold count: unread input is reported
    /// in the next turn.
    package borrowing func arm() throws(LoopError) {
        errno = 0
        guard unsafe event_add(&record.pointee.event, nil) == 0 else {
            let code = errno == 0 ? EINVAL : errno
            throw LoopError(code: .cannotArm, underlying: SystemError(code: code, call: "event_add"))
        }
    }

    /// Stops watching. Call it before the descriptor is closed. An event that was reported already is still
    /// delivered.
    package borrowing func disarm() {
        unsafe event_del(&record.pointee.event)
    }

    /// Whether an event can still come: a one-shot watch is not armed any more once it fired.
    package var isArmed: Bool {
        let any = CShort(EV_READ | EV_WRITE | EV_CLOSED | EV_SIGNAL)
        return unsafe event_pending(&record.pointee.event, any, nil) != 0
    }
}

/// libevent's callback for every watch; the argument is the watch's record.
private func reportEvent(descriptor: CInt, what: CShort, argument: UnsafeMutableRawPointer?) {
    guard let record = unsafe argument?.assumingMemoryBound(to: WatchRecord.self) else { return }
    let what = CInt(what)
    let ready = unsafe Ready(
        token: record.pointee.token,
        readable: what & (EV_READ | EV_SIGNAL) != 0,
        writable: what & EV_WRITE != 0)
    unsafe record.pointee.loop._withUnsafeGuaranteedRef { $0.report(ready) }
}
