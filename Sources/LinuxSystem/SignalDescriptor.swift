import CLinux
import Glibc

/// Delivers signals by a descriptor, so that they interrupt nothing and are handled in turn.
package struct SignalDescriptor: ~Copyable {
    private let descriptor: OwnedDescriptor

    /// Blocks these signals in this process, and in its children unless they change their mask.
    package init(_ signals: [CInt]) throws(SystemError) {
        var set = sigset_t()
        unsafe sigemptyset(&set)
        for signal in signals { unsafe sigaddset(&set, signal) }
        unsafe pthread_sigmask(SIG_BLOCK, &set, nil)
        descriptor = OwnedDescriptor(
            adopting: try systemCall("signalfd") {
                unsafe signalfd(-1, &set, CInt(SFD_NONBLOCK | SFD_CLOEXEC))
            })
    }

    package var rawValue: CInt { descriptor.rawValue }

    /// The next pending signal.
    package func next() throws(SystemError) -> CInt? { try nextWithSource()?.number }

    /// The next pending signal, and whether it is the kernel's own, such as one for the keys of a terminal:
    /// then all processes of the terminal's foreground have got it.
    package func nextWithSource() throws(SystemError) -> (number: CInt, isKernels: Bool)? {
        var information = signalfd_siginfo()
        let rawValue = descriptor.rawValue
        let count = try nonblockingSystemCall("read signalfd") {
            unsafe read(rawValue, &information, MemoryLayout<signalfd_siginfo>.size)
        }
        guard count != nil else { return nil }
        let fromKernel: CInt = 0x80  // SI_KERNEL
        return (CInt(information.ssi_signo), information.ssi_code == fromKernel)
    }
}
