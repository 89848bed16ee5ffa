import CLinux
import Glibc
package import LinuxSystem

/// Closes descriptors handed over by clients, without a thread and without blocking.
///
/// close(2) may block on a peer or on a file system's server for as long as those like. A process that ends
/// does not linger for a peer (`PF_EXITING` in the kernel's `inet_release`), and if it blocks on a server, no
/// process waits for it. So the last reference is left to a child that ends. (Threads, as `ForeignDescriptor`
/// has, would not survive `fork`.)
package struct BackgroundCloser {
    /// Between two children, in nanoseconds: to start one takes as long as hundreds of closes, and clients decide how
    /// many there are.
    private static let pause: Int64 = 10_000_000
    /// After a child could not be started.
    private static let pauseAfterFailure: Int64 = 1_000_000_000
    /// Further descriptors are closed at once, which takes a millisecond each at most.
    package static let mostWaiting = 1_024

    private var children: [pid_t] = []
    /// Left to the next child, together. As numbers: in the child nothing but its end must close them.
    private var sockets: [CInt] = []
    /// Left to another child: what takes long with them, such as a terminal's output, delays the end of no connection.
    private var others: [CInt] = []
    private var nextChild: Int64 = 0

    package init() {}

    /// The number of children that have not been reaped.
    package var childCount: Int { children.count }

    /// When to call `leaveToChild`, by `RunningClock`; nil: nothing waits.
    package var due: Int64? { sockets.isEmpty && others.isEmpty ? nil : nextChild }

    /// Closes it now, or by the next child.
    package mutating func close(_ descriptor: consuming OwnedDescriptor) {
        guard ForeignDescriptor.mayBlock(descriptor.rawValue), sockets.count + others.count < Self.mostWaiting
        else { return ForeignDescriptor.closePromptly(descriptor) }
        if Self.isSocket(descriptor.rawValue) {
            sockets.append(descriptor.take())
        } else {
            others.append(descriptor.take())
        }
    }

    private static func isSocket(_ descriptor: CInt) -> Bool {
        var status = stat()
        return unsafe fstat(descriptor, &status) == 0 && status.st_mode & S_IFMT == S_IFSOCK
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
        guard due != nil else { return }
        do {
            if let child = try Self.startChild(&sockets) { children.append(child) }
            if let child = try Self.startChild(&others) { children.append(child) }
            nextChild = RunningClock.now() + Self.pause
        } catch {
            nextChild = RunningClock.now() + Self.pauseAfterFailure
        }
    }

    /// In a child of another kind: closes what `leaveToChild` could not leave, which the parent has open, too.
    package mutating func closeInherited() {
        for descriptor in sockets + others { OwnedDescriptor(adopting: descriptor).close() }
        (sockets, others, children) = ([], [], [])
    }

    /// Reaps the children that have ended.
    package mutating func reap() {
        children.removeAll { Fork.reap($0) != nil }
    }

    /// - Returns: nil: nothing waits.
    private static func startChild(_ waiting: inout [CInt]) throws(SystemError) -> pid_t? {
        guard !waiting.isEmpty else { return nil }
        // The child waits until the pipe is closed, so that its references are the last.
        var ends: [CInt] = [-1, -1]
        _ = try systemCall("pipe") { unsafe pipe(&ends) }
        defer { for end in ends { Glibc.close(end) } }
        let kept = (waiting + [ends[0]]).sorted()
        guard let pid = try Fork.split() else { endWithPipe(ends[0], kept) }
        for descriptor in waiting { OwnedDescriptor(adopting: descriptor).close() }
        waiting = []
        return pid
    }

    /// The body of the child.
    private static func endWithPipe(_ pipe: CInt, _ kept: [CInt]) -> Never {
        // Otherwise it would hold all sockets open while it waits.
        var next: UInt32 = 0
        for descriptor in kept.map(UInt32.init) {
            if descriptor > next { _ = clinux_close_range(next, descriptor - 1) }
            next = descriptor + 1
        }
        _ = clinux_close_range(next, .max)
        var byte: UInt8 = 0
        _ = unsafe read(pipe, &byte, 1)
        _exit(0)
    }
}
