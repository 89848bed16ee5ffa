import Glibc

/// Waits for SIGTERM, SIGINT and SIGHUP on a thread of its own.
///
/// A thread that sleeps in sigwait(3) costs nothing while nobody signals, and it may do what a signal handler may
/// not.
final class StopSignals: Sendable {
    private static let numbers = [SIGTERM, SIGINT, SIGHUP]
    private let received: @Sendable (CInt) -> Void

    private init(_ received: @escaping @Sendable (CInt) -> Void) {
        self.received = received
    }

    /// Keeps the signals from everybody else. Call it before there is a second thread: threads inherit this.
    static func block() {
        var set = Self.set()
        unsafe pthread_sigmask(SIG_BLOCK, &set, nil)
    }

    /// Calls `received` for each signal, on the waiting thread, as long as the process lives.
    ///
    /// - Returns: false if no thread can be started.
    static func start(_ received: @escaping @Sendable (CInt) -> Void) -> Bool {
        let context = unsafe Unmanaged.passRetained(StopSignals(received))
        var attributes = pthread_attr_t()
        unsafe pthread_attr_init(&attributes)
        unsafe pthread_attr_setstacksize(&attributes, 256 * 1_024)
        unsafe pthread_attr_setdetachstate(&attributes, CInt(PTHREAD_CREATE_DETACHED))
        defer { unsafe pthread_attr_destroy(&attributes) }
        var thread = pthread_t()
        let code = unsafe pthread_create(
            &thread, &attributes,
            { context in
                guard let context = unsafe context else { return nil }
                unsafe Unmanaged<StopSignals>.fromOpaque(context).takeRetainedValue().waitForEver()
            }, context.toOpaque())
        if code != 0 { unsafe context.release() }
        return code == 0
    }

    private func waitForEver() -> Never {
        var set = Self.set()
        while true {
            var number: CInt = 0
            if unsafe sigwait(&set, &number) == 0 { received(number) }
        }
    }

    private static func set() -> sigset_t {
        var set = sigset_t()
        unsafe sigemptyset(&set)
        for number in numbers { unsafe sigaddset(&set, number) }
        return set
    }
}
