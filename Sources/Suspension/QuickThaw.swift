import CLinux

/// What is to be done to let a client run, found out beforehand: one system call, nothing to look for, nothing to note.
///
/// It has the number of a descriptor of the suspender's. So it is valid until the client is thawed or detached, and
/// then to be thrown away: the number may be another file's.
package struct QuickThaw: Sendable {
    private let descriptor: CInt
    private let method: clinux_thaw_method

    /// It runs already, or was stopped by somebody else, whose business it is.
    package static let none = QuickThaw(descriptor: -1, method: CLINUX_THAW_NOTHING)

    /// By the open `cgroup.freeze` of its cgroup.
    static func freezer(_ descriptor: CInt) -> QuickThaw {
        QuickThaw(descriptor: descriptor, method: CLINUX_THAW_BY_CGROUP)
    }

    /// By `SIGCONT` to this pidfd.
    static func pidfd(_ descriptor: CInt) -> QuickThaw {
        QuickThaw(descriptor: descriptor, method: CLINUX_THAW_BY_SIGNAL)
    }

    /// Tell the suspender of it by `noteThawed` soon. False: the kernel refused, and `thaw` tells why.
    package func perform() -> Bool { clinux_thaw(descriptor, method) == 0 }
}
