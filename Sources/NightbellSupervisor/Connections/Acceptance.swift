import EventLoop
import Glibc
import LinuxSystem
import NightbellCore

/// The listening socket with one descriptor in reserve: when no other is left, a connection can still be
/// accepted for long enough to be told why it is refused.
struct Acceptance: ~Copyable {
    let listener: SeqPacketSocket
    private let watch: Watch
    private var reserve: EventDescriptor?
    /// The limit of descriptors of this process.
    let descriptorLimit = Acceptance.currentDescriptorLimit()

    enum AcceptResult: ~Copyable {
        case none
        case connection(SeqPacketSocket)
        /// No descriptor is left for it: send the refusal, close it, then call `refill`.
        case noRoom(SeqPacketSocket)
        /// Even the reserve is used up: stop listening until a descriptor is free.
        case exhausted
    }

    init(_ listener: consuming SeqPacketSocket, _ loop: LoopExecutor) throws(LoopError) {
        let watch = try loop.watch(
            listener.rawValue, .read, .persistent, token: WatchToken(.listener).rawValue)
        try watch.arm()
        self.watch = watch
        self.listener = listener
        refill()
    }

    static func currentDescriptorLimit() -> Int {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 1_024 }
        return Int(clamping: limit.rlim_cur)
    }

    static func listen(
        _ configuration: SupervisorConfiguration
    ) throws(SupervisorError) -> SeqPacketSocket {
        do {
            return try SeqPacketSocket.listen(
                path: configuration.socketPath, mode: mode_t(configuration.socketMode))
        } catch {
            throw SupervisorError(.socket, error, "cannot listen on \(configuration.socketPath)")
        }
    }

    mutating func accept() throws(SystemError) -> AcceptResult {
        do {
            guard let socket = try listener.accept() else { return .none }
            return .connection(socket)
        } catch  where error.code == EMFILE || error.code == ENFILE {
            guard reserve.take() != nil else { return .exhausted }
        }
        guard let socket = try listener.accept() else {
            refill()
            return .none
        }
        return .noRoom(socket)
    }

    /// Reopens the reserve descriptor if one can be had; returns whether there is one.
    @discardableResult
    mutating func refill() -> Bool {
        if reserve != nil { return true }
        do {
            reserve = try EventDescriptor()
            return true
        } catch {
            return false
        }
    }

    /// Accepts nothing until `resume` is called.
    mutating func pause() { watch.disarm() }

    /// Accepts again, unless no descriptor is free.
    mutating func resume() throws(LoopError) {
        guard refill(), !watch.isArmed else { return }
        try watch.arm()
    }

    /// Removes the socket's path, so that no new connection can be made.
    static func unlink(_ configuration: SupervisorConfiguration) {
        _ = unsafe Glibc.unlink(configuration.socketPath)
    }
}
