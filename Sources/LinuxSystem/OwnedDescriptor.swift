package import CLinux
import Glibc

/// A file descriptor with exactly one owner. It is closed when the owner's lifetime ends, so it is never
/// leaked and never closed twice.
package struct OwnedDescriptor: ~Copyable, Sendable {
    package let rawValue: CInt

    /// Takes over a descriptor that has no other owner.
    package init(adopting rawValue: CInt) {
        precondition(rawValue >= 0, "a descriptor is never negative")
        self.rawValue = rawValue
    }

    deinit { closeDescriptor(rawValue) }

    /// Closes now, not at the end of the scope.
    package consuming func close() {
        closeDescriptor(rawValue)
        discard self
    }

    /// Gives up ownership: the caller closes it.
    package consuming func take() -> CInt {
        let rawValue = rawValue
        discard self
        return rawValue
    }

    /// A second descriptor for the same open file, close-on-exec.
    package borrowing func duplicate() throws(SystemError) -> OwnedDescriptor {
        try OwnedDescriptor(duplicating: rawValue)
    }

    /// A close-on-exec duplicate of a descriptor that has another owner.
    package init(duplicating rawValue: CInt) throws(SystemError) {
        self.init(adopting: try systemCall("fcntl(F_DUPFD_CLOEXEC)") { clinux_duplicate(rawValue) })
    }

    /// Opens a file, close-on-exec. `directory` is where a relative path starts.
    package init(
        opening path: String, _ flags: CInt, mode: mode_t = 0, in directory: CInt = AT_FDCWD
    ) throws(SystemError) {
        let opened = try systemCall("open \(path)") { unsafe clinux_openat(directory, path, flags, mode) }
        self.init(adopting: opened)
    }
}

/// Linux closes the descriptor even when `close` reports `EINTR` or an I/O error, so neither is retried.
/// `EBADF` means that it had two owners: another owner's descriptor is at risk, so continuing is unsafe.
private func closeDescriptor(_ rawValue: CInt) {
    if Glibc.close(rawValue) == -1 {
        precondition(errno != EBADF, "descriptor \(rawValue) was closed without being owned")
    }
}
