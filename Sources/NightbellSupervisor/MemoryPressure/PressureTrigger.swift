import CLinux
import Glibc
import LinuxSystem

/// Reports when processes had to wait for memory (pressure stall information, Linux 5.2): a kernel trigger,
/// as a descriptor for an event loop.
///
/// It fires at most once in a window, when the time lost within it reaches a threshold.
package struct PressureTrigger: ~Copyable, Sendable {
    /// When it fires.
    package struct Threshold: Sendable, Hashable {
        /// The processes that must have waited.
        package enum Share: String, Sendable, Hashable, CaseIterable {
            /// Some processes.
            case some
            /// All processes that had work to do, at the same time.
            case full
        }

        package var share: Share
        /// The time that must have been lost …
        package var stall: Duration
        /// … within this window: 500 ms to 10 s, in multiples of 2 s without `CAP_SYS_RESOURCE`.
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
            /// This kernel has none, or it was booted without.
            case missing
            /// The path is no pressure file of the kernel's. It was not changed.
            case anotherFile
            /// Permission denied.
            case notPermitted
            /// The kernel refuses this threshold.
            case threshold
            case system
        }

        package let reason: Reason
        package let code: Int32
        package let description: String
    }

    /// The pressure of the whole machine.
    package static let machineFile = "/proc/pressure/memory"

    private let trigger: OwnedDescriptor
    /// The trigger reports an exceptional condition, while its other conditions are always true: an epoll set
    /// with only this condition is readable when it holds, as event loops expect.
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

    /// Another file at this path must not be written to, and devices and pipes must not even be opened.
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

    /// Readable when the threshold was reached; `clear` makes it unreadable until it is reached again.
    package var rawValue: CInt { event.rawValue }

    package borrowing func clear() {
        var interest = unsafe epoll_event()
        // Collecting the event clears it.
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
                "\(path) does not exist: the kernel does not report memory pressure (CONFIG_PSI, psi=1)"
        case EMEDIUMTYPE, EISDIR:
            reason = .anotherFile
            description =
                "\(path) is not a pressure file of the kernel's, such as \(PressureTrigger.machineFile)"
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
