import EventLoop
import Glibc
import LinuxSystem

/// The watches for the supervisor's signals; they only have to exist.
private struct SignalWatches: ~Copyable {
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

/// Watches what other threads and processes ask of the supervisor besides its connections; they only have to
/// exist.
struct RequestWatches: ~Copyable {
    private let stop: Watch
    private let memory: Watch
    private let reloaded: Watch
    private let locks: Watch
    private let stopSignals: SignalWatches
    private let reloadSignals: SignalWatches

    /// - Parameters:
    ///   - stop: is signalled when the supervisor is to stop.
    ///   - memory: is signalled when memory is short.
    ///   - reloaded: is signalled when the configuration has been read again.
    ///   - locks: is signalled when the file locks of a client have been counted.
    init(
        _ configuration: SupervisorConfiguration, stop: borrowing EventDescriptor,
        memory: borrowing EventDescriptor, reloaded: borrowing EventDescriptor,
        locks: borrowing EventDescriptor, _ loop: LoopExecutor
    ) throws(LoopError) {
        let stopWatch = try loop.watch(
            stop.rawValue, .read, .persistent, token: WatchToken(.signal).rawValue)
        let memoryWatch = try loop.watch(
            memory.rawValue, .read, .persistent, token: WatchToken(.memoryPressure).rawValue)
        let reloadedWatch = try loop.watch(
            reloaded.rawValue, .read, .persistent, token: WatchToken(.reloaded).rawValue)
        let locksWatch = try loop.watch(
            locks.rawValue, .read, .persistent,
            token: WatchToken(.reloaded, id: WatchToken.locks).rawValue)
        let stopSignals = try SignalWatches(configuration.stopSignals, .signal, loop)
        let reloadSignals = try SignalWatches(configuration.reloadSignals, .reload, loop)
        try stopWatch.arm()
        try memoryWatch.arm()
        try reloadedWatch.arm()
        try locksWatch.arm()
        self.stop = stopWatch
        self.memory = memoryWatch
        self.reloaded = reloadedWatch
        self.locks = locksWatch
        self.stopSignals = stopSignals
        self.reloadSignals = reloadSignals
    }
}
