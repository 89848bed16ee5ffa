import CLinux
import Descriptors
import Glibc

/// Tells when processes have had to wait for memory (pressure stall information, Linux 5.2): a trigger of the
/// kernel's, as a descriptor for somebody's event loop.
///
/// It fires at most once in a window, when the time that was lost within it reaches a threshold.
package struct PressureTrigger: ~Copyable, Sendable {
    /// When it fires.
    package struct Threshold: Sendable, Hashable {
        /// Who must have waited.
        package enum Share: String, Sendable, Hashable, CaseIterable {
            /// Some processes.
            case some
            /// All that had anything to do at the same time.
            case full
        }

        package var share: Share
        /// How much time must have been lost …
        package var stall: Duration
        /// … within how much: 500 ms to 10 s, and whole multiples of 2 s without `CAP_SYS_RESOURCE`.
        package var window: Duration

        package init(_ share: Share, _ stall: Duration, in window: Duration) {
            self.share = share
            self.stall = stall
            self.window = window
        }
    }

    /// Why there is no trigger.
    package struct Unavailable: Error, Sendable, Hashable, CustomStringConvertible {
        package enum Reason: Sendable, Hashable {
            /// This kernel has none, it was started without, or the file is none of it.
            case missing
            /// We may not.
            case notPermitted
            /// The kernel takes no such threshold from us.
            case threshold
            case system
        }

        package let reason: Reason
        package let code: Int32
        package let description: String
    }

    /// Where the kernel tells of the whole machine.
    package static let machineFile = "/proc/pressure/memory"

    private let trigger: OwnedDescriptor
    /// The trigger's event is an exceptional condition, and everything else about it is always true: a set with this
    /// only condition is readable when it holds, as event loops expect.
    private let event: OwnedDescriptor

    /// - Parameter path: `machineFile`, or `memory.pressure` of a cgroup.
    package static func set(
        path: String, _ threshold: Threshold
    ) throws(Unavailable) -> PressureTrigger {
        do throws(SystemError) {
            return try PressureTrigger(path, threshold)
        } catch {
            throw Unavailable(error, path, threshold)
        }
    }

    private init(_ path: String, _ threshold: Threshold) throws(SystemError) {
        let trigger = try OwnedDescriptor(opening: path, O_RDWR | O_NONBLOCK | O_NOCTTY)
        let event = OwnedDescriptor(
            adopting: try systemCall("epoll_create1") { epoll_create1(CInt(EPOLL_CLOEXEC)) })
        let line = Array("\(threshold.share) \(threshold.stall.us) \(threshold.window.us)\0".utf8)
        let file = trigger.rawValue
        _ = try systemCall("write") { unsafe write(file, line, line.count) }
        var interest = unsafe epoll_event()
        unsafe interest.events = EPOLLPRI.rawValue
        let poll = event.rawValue
        _ = try systemCall("epoll_ctl") { unsafe epoll_ctl(poll, EPOLL_CTL_ADD, file, &interest) }
        self.trigger = trigger
        self.event = event
    }

    /// Readable when the threshold was reached; `clear` makes it unreadable until it is again.
    package var rawValue: CInt { event.rawValue }

    package borrowing func clear() {
        var interest = unsafe epoll_event()
        // What has happened is taken by being looked at.
        _ = unsafe epoll_wait(event.rawValue, &interest, 1, 0)
    }
}

extension PressureTrigger.Unavailable {
    fileprivate init(_ error: SystemError, _ path: String, _ threshold: PressureTrigger.Threshold) {
        code = error.code
        switch error.code {
        case ENOENT, EOPNOTSUPP, ENXIO, EISDIR, ENOTDIR:
            reason = .missing
            description =
                "\(path) is not there: the kernel tells nothing of memory pressure (CONFIG_PSI, psi=1)"
        case EACCES, EPERM, EROFS:
            reason = .notPermitted
            description = "\(path) may not be used: \(SystemError.message(for: error.code))"
        case EINVAL:
            reason = .threshold
            description =
                "\(path) takes no threshold of \(threshold.stall) in \(threshold.window): windows are 500 ms to 10 s,"
                + " and whole multiples of 2 s without CAP_SYS_RESOURCE"
        default:
            reason = .system
            description = "\(path): \(error)"
        }
    }
}

extension Duration {
    /// Whole microseconds.
    fileprivate var us: Int64 { components.seconds * 1_000_000 + components.attoseconds / 1_000_000_000_000 }
}
