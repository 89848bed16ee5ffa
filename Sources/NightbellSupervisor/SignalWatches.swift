import Descriptors
import EventLoop

/// The watches for signals that stop the supervisor; they only have to exist.
struct SignalWatches: ~Copyable {
    private var watches = UniqueSlots<Watch>()

    init(_ signals: [Int32], _ loop: LoopExecutor) throws(LoopError) {
        for signal in signals {
            let watch = try loop.watchSignal(signal, token: WatchToken(.signal).rawValue)
            try watch.arm()
            watches.append(watch)
        }
    }
}
