internal import Glibc

/// Turns SIGTERM and SIGINT into a descriptor to poll.
public struct StopSignals: Sendable {
    /// Readable once one of the signals has come, until `take`.
    public let descriptor: CInt

    /// Catches the signals for the rest of the life of the process. To be made once.
    public init() throws(SIPSocketError) {
        var ends: [CInt] = [-1, -1]
        guard pipe(&ends) == 0 else { throw .system(call: "pipe", code: errno) }
        for end in ends {
            _ = fcntl(end, F_SETFD, FD_CLOEXEC)
            _ = fcntl(end, F_SETFL, O_NONBLOCK)
        }
        descriptor = ends[0]
        stopPipe = ends[1]
        var action = sigaction()
        action.__sigaction_handler.sa_handler = { _ in
            // `write` is async-signal-safe.
            let before = errno
            var byte: UInt8 = 1
            write(stopPipe, &byte, 1)
            errno = before
        }
        var numbers = sigset_t()
        sigemptyset(&numbers)
        for number in [SIGTERM, SIGINT, SIGHUP] {
            sigaction(number, &action, nil)
            sigaddset(&numbers, number)
        }
        // The parent process may have blocked them.
        pthread_sigmask(SIG_UNBLOCK, &numbers, nil)
        signal(SIGPIPE, SIG_IGN)
    }

    /// Clears `descriptor`, which is readable again after the next signal.
    public func take() {
        var bytes = [UInt8](repeating: 0, count: 16)
        _ = read(descriptor, &bytes, bytes.count)
    }
}

/// Where the signal handler writes: set once, before the handler is installed.
nonisolated(unsafe) private var stopPipe: CInt = -1
