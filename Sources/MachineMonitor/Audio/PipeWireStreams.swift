import CAudio
import EventHandlers
import EventLoop
import Glibc
import LinuxSystem

/// The streams of the user's PipeWire that run and are not muted.
final class PipeWireStreams {
    private let loop: HandlerLoop
    private let path: String
    private let onChange: () -> Void
    private var observer: Observer?
    private var watch: DescriptorWatch?
    private var resuming: LoopTimer?
    private var reconnecting: LoopTimer?
    private var failures = 0
    private var socketPath: PathWatch?
    private var share = TimeShare()

    /// In milliseconds; after the last one, it is tried again when the socket changes.
    private static let pauses: [Int64] = [50, 200, 800, 3_200, 12_800]
    private static let mostStreams = 512

    init(_ loop: HandlerLoop, directory: String, onChange: @escaping () -> Void) {
        self.loop = loop
        path = directory + "/pipewire-0"
        self.onChange = onChange
        resuming = LoopTimer(loop) { [unowned self] in
            setPaused(false)
            process()
        }
        reconnecting = LoopTimer(loop) { [unowned self] in open() }
        // Also while it is connected: the socket of the next server is another one.
        socketPath = PathWatch(loop, [path]) { [unowned self] in
            guard observer == nil else { return }
            failures = 0
            reconnecting?.set(milliseconds: 10)
        }
        open()
    }

    deinit { watch = nil }

    /// Whether the server has still to tell of its streams.
    var isConnecting: Bool { observer.map { !$0.isComplete } ?? false }

    /// The processes that stream; nil: unknown.
    var processes: Set<UInt32>? {
        guard let observer, observer.isComplete else { return nil }
        var processes: Set<UInt32> = []
        for stream in observer.streams(atMost: Self.mostStreams) {
            // A server of another protocol connects for its clients; it cannot name a process of another
            // user.
            if stream.claimed_pid > 0, ProcFS.uid(stream.claimed_pid) == getuid() {
                processes.insert(UInt32(stream.claimed_pid))
            } else if stream.pid > 0 {
                processes.insert(UInt32(stream.pid))
            }
        }
        return processes
    }

    private func open() {
        guard observer == nil else { return }
        // libpipewire would look for the socket of the user in several places.
        guard unsafe access(path, F_OK) == 0 else { return }
        do {
            let observer = try Observer(path)
            watch = try DescriptorWatch(loop, observer.descriptor, .read) { [unowned self] _ in process() }
            self.observer = observer
        } catch {
            return retry()
        }
        failures = 0
        process()
    }

    private func retry() {
        guard failures < Self.pauses.count else { return }
        reconnecting?.set(milliseconds: Self.pauses[failures])
        failures += 1
    }

    private func process() {
        guard let observer else { return }
        let start = ThreadClock.now()
        let result = observer.process()
        if result & CInt(CAUDIO_LOST.rawValue) != 0 {
            watch = nil
            self.observer = nil
            onChange()
            return retry()
        }
        if let instant = share.spend(ThreadClock.now() - start, at: BootClock.now()) {
            resuming?.deadline = instant
            setPaused(true)
        }
        if result & CInt(CAUDIO_CHANGED.rawValue) != 0 { onChange() }
    }

    private func setPaused(_ isPaused: Bool) {
        do throws(LoopError) {
            try watch?.setArmed(!isPaused)
        } catch {
            watch = nil
            observer = nil
            onChange()
        }
    }

    /// Owns the connection.
    @safe
    private final class Observer {
        private let pointer: OpaquePointer

        init(_ path: String) throws(SystemError) {
            guard let pointer = unsafe caudio_open(path) else { throw SystemError("connect \(path)") }
            unsafe self.pointer = pointer
        }

        deinit { unsafe caudio_close(pointer) }

        var descriptor: CInt { unsafe caudio_descriptor(pointer) }
        var isComplete: Bool { unsafe caudio_is_complete(pointer) != 0 }

        func process() -> CInt { unsafe caudio_process(pointer) }

        func streams(atMost limit: Int) -> [caudio_stream] {
            unsafe Array(unsafeUninitializedCapacity: limit) { buffer, count in
                count = unsafe caudio_streams(pointer, buffer.baseAddress, limit)
            }
        }
    }
}
