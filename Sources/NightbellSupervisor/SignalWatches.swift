import EventLoop
import Glibc
import LinuxSystem

/// The watches for the supervisor's signals; they only have to exist.
struct SignalWatches: ~Copyable {
    private var watches = UniqueSlots<Watch>()

    init(_ signals: [Int32], _ kind: WatchToken.Kind, _ loop: LoopExecutor) throws(LoopError) {
        for signal in signals {
            // The parent of this process may have blocked it, and a mask is inherited.
            var set = sigset_t()
            unsafe sigemptyset(&set)
            unsafe sigaddset(&set, signal)
            unsafe pthread_sigmask(SIG_UNBLOCK, &set, nil)
            let watch = try loop.watchSignal(signal, token: WatchToken(kind).rawValue)
            try watch.arm()
            watches.append(watch)
        }
    }
}
