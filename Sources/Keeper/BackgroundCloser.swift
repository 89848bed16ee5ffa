import CLinux
import Glibc
import LinuxSystem

/// Closes descriptors handed over by clients, without a thread and without blocking.
///
/// close(2) may block on a peer or on a file system's server for as long as those like. A process that ends
/// does not linger for a peer (`PF_EXITING` in the kernel's `inet_release`), and if it blocks on a server, no
/// process waits for it. So the last reference is left to a child that ends. (Threads, as `ForeignDescriptor`
/// has, would not survive `fork`.)
struct BackgroundCloser {
    private var children: [pid_t] = []

    mutating func close(_ descriptor: consuming OwnedDescriptor) {
        reap()
        guard ForeignDescriptor.mayBlock(descriptor.rawValue) else {
            return ForeignDescriptor.closePromptly(descriptor)
        }
        do {
            try leaveToChild(descriptor)
        } catch {
            // Without memory for a child there are worse problems than a slow close.
        }
    }

    /// Reaps the children that have ended.
    mutating func reap() {
        children.removeAll { Fork.reap($0) != nil }
    }

    private mutating func leaveToChild(_ descriptor: consuming OwnedDescriptor) throws(SystemError) {
        // The child waits until this is closed, so that its reference is the last.
        var ends: [CInt] = [-1, -1]
        _ = try systemCall("pipe") { unsafe pipe(&ends) }
        let reading = OwnedDescriptor(adopting: ends[0])
        let writing = OwnedDescriptor(adopting: ends[1])
        guard let pid = try Fork.split() else {
            writing.close()
            // As numbers: only the end of this process closes them.
            let (one, other) = (UInt32(reading.take()), UInt32(descriptor.take()))
            // Otherwise it would hold all sockets open while it waits.
            let (first, last) = (min(one, other), max(one, other))
            if first > 0 { _ = clinux_close_range(0, first - 1) }
            if last > first + 1 { _ = clinux_close_range(first + 1, last - 1) }
            _ = clinux_close_range(last + 1, .max)
            var byte: UInt8 = 0
            _ = unsafe read(ends[0], &byte, 1)
            _exit(0)
        }
        children.append(pid)
        descriptor.close()
        reading.close()
        writing.close()
    }
}
