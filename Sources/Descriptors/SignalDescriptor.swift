import CLinux
import Glibc

/// Signals as something to read: they interrupt nothing and are taken when it is their turn.
package struct SignalDescriptor: ~Copyable {
    private let descriptor: OwnedDescriptor

    /// Blocks these signals for this process, and for those that it starts and that do not think otherwise.
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

    /// The next one that was sent.
    package func next() throws(SystemError) -> CInt? {
        var information = signalfd_siginfo()
        let rawValue = descriptor.rawValue
        let count = try nonblockingSystemCall("read signalfd") {
            unsafe read(rawValue, &information, MemoryLayout<signalfd_siginfo>.size)
        }
        return count == nil ? nil : CInt(information.ssi_signo)
    }
}
