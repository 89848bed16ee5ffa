import CLinux
import Glibc
package import LinuxSystem

/// Closes descriptors handed over by clients, without a thread and without blocking.
///
/// close(2) may block on a peer or on a file system's server for as long as those like. A process that ends
/// does not linger for a peer (`PF_EXITING` in the kernel's `inet_release`), and if it blocks on a server, no
/// process waits for it. So the last reference is left to a child that ends. (Threads, as `ForeignDescriptor`
/// has, would not survive `fork`.)
package struct BackgroundCloser: ~Copyable {
    /// Between two children, in nanoseconds: to start one takes as long as hundreds of closes, and clients decide how
    /// many there are.
    private static let pause: Int64 = 10_000_000
    /// After a child could not be started.
    private static let pauseAfterFailure: Int64 = 1_000_000_000

    private var children: [pid_t] = []
    /// Left to the next child, together.
    private var waiting: [CInt] = []
    private var nextChild = Int64.min

    package init() {}

    deinit {
        for descriptor in waiting { OwnedDescriptor(adopting: descriptor).close() }
    }

    /// The number of children that have not been reaped.
    package var childCount: Int { children.count }

    /// When to call `leaveToChild`, by `RunningClock`; nil: nothing waits.
    package var due: Int64? { waiting.isEmpty ? nil : nextChild }

    /// Closes it now, or by the next child.
    package mutating func close(_ descriptor: consuming OwnedDescriptor) {
        guard ForeignDescriptor.mayBlock(descriptor.rawValue) else {
            return ForeignDescriptor.closePromptly(descriptor)
        }
        waiting.append(descriptor.take())
    }

    /// Starts a child for those that wait, if it is time for one.
    package mutating func leaveIfDue() {
        guard let due, RunningClock.now() >= due else { return }
        leaveToChild()
    }

    /// Starts a child for those that wait. Call it before any other `fork`: of what that child has open, it would be the
    /// last to close.
    package mutating func leaveToChild() {
        reap()
        guard !waiting.isEmpty else { return }
        do {
            try startChild()
            nextChild = RunningClock.now() + Self.pause
        } catch {
            nextChild = RunningClock.now() + Self.pauseAfterFailure
        }
    }

    /// Reaps the children that have ended.
    package mutating func reap() {
        children.removeAll { Fork.reap($0) != nil }
    }

    private mutating func startChild() throws(SystemError) {
        // The child waits until this is closed, so that its references are the last.
        var ends: [CInt] = [-1, -1]
        _ = try systemCall("pipe") { unsafe pipe(&ends) }
        let reading = OwnedDescriptor(adopting: ends[0])
        let writing = OwnedDescriptor(adopting: ends[1])
        // As numbers: only the end of the child closes them.
        let kept = (waiting + [reading.rawValue]).sorted()
        guard let pid = try Fork.split() else {
            // Otherwise it would hold all sockets open while it waits.
            var next: UInt32 = 0
            for descriptor in kept.map(UInt32.init) {
                if descriptor > next { _ = clinux_close_range(next, descriptor - 1) }
                next = descriptor + 1
            }
            _ = clinux_close_range(next, .max)
            var byte: UInt8 = 0
            _ = unsafe read(ends[0], &byte, 1)
            _exit(0)
        }
        children.append(pid)
        for descriptor in waiting { OwnedDescriptor(adopting: descriptor).close() }
        waiting = []
        reading.close()
        writing.close()
    }
}
