import CLinux

/// A thaw prepared in advance: one system call, without lookup or bookkeeping.
///
/// It holds a descriptor number of the suspender. So it is valid until the client is thawed or detached;
/// afterwards the number may belong to another file.
package struct QuickThaw: Sendable {
    private let descriptor: CInt
    private let method: clinux_thaw_method

    /// The client runs already, or was stopped by another process, which has to continue it.
    package static let none = QuickThaw(descriptor: -1, method: CLINUX_THAW_NOTHING)

    /// By the open `cgroup.freeze` of its cgroup.
    static func freezer(_ descriptor: CInt) -> QuickThaw {
        QuickThaw(descriptor: descriptor, method: CLINUX_THAW_BY_CGROUP)
    }

    /// By `SIGCONT` to this pidfd.
    static func pidfd(_ descriptor: CInt) -> QuickThaw {
        QuickThaw(descriptor: descriptor, method: CLINUX_THAW_BY_SIGNAL)
    }

    /// Report it to the suspender by `markThawed` soon. False: the kernel refused, and `thaw` throws the
    /// reason.
    package func perform() -> Bool { clinux_thaw(descriptor, method) == 0 }
}
