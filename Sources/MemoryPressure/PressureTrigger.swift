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
            /// This kernel has none, or it was started without.
            case missing
            /// What is there is no file of the kernel's about pressure. Nothing was done to it.
            case anotherFile
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
        let trigger = try Self.open(path)
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

    /// Whatever else lies there must not be written to, and devices and pipes not even be opened.
    private static func open(_ path: String) throws(SystemError) -> OwnedDescriptor {
        let flags = O_RDWR | O_NONBLOCK | O_NOCTTY
        let file = OwnedDescriptor(
            adopting: try systemCall("open") { unsafe clinux_open_file_of_kernel(path, flags) })
        let beginning = Array("some avg10=".utf8)
        var text = [UInt8](repeating: 0, count: beginning.count)
        let source = file.rawValue
        let count = try systemCall("read") { CInt(clamping: unsafe read(source, &text, text.count)) }
        guard count == beginning.count, text == beginning else { throw notPressure }
        return file
    }

    private static var notPressure: SystemError { SystemError(code: EMEDIUMTYPE, call: "read") }

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
        case ENOENT, EOPNOTSUPP, ENXIO, ENOTDIR:
            reason = .missing
            description =
                "\(path) is not there: the kernel tells nothing of memory pressure (CONFIG_PSI, psi=1)"
        case EMEDIUMTYPE, EISDIR:
            reason = .anotherFile
            description =
                "\(path) is no file in which the kernel tells of pressure, such as \(PressureTrigger.machineFile)"
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
