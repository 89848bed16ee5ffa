import Glibc
import LinuxSystem

/// The listening socket with one descriptor in reserve: when no other is left, a connection can still be
/// accepted for long enough to be told why it is refused.
struct Acceptance: ~Copyable {
    let listener: SeqPacketSocket
    private var reserve: EventDescriptor?

    enum AcceptResult: ~Copyable {
        case none
        case connection(SeqPacketSocket)
        /// No descriptor is left for it: send the refusal, close it, then call `refill`.
        case noRoom(SeqPacketSocket)
        /// Even the reserve is used up: stop listening until a descriptor is free.
        case exhausted
    }

    init(_ configuration: SupervisorConfiguration) throws(SupervisorError) {
        listener = try Self.listen(configuration)
        refill()
    }

    init(_ listener: consuming SeqPacketSocket) {
        self.listener = listener
        refill()
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

    /// Removes the socket's path, so that no new connection can be made.
    static func unlink(_ configuration: SupervisorConfiguration) {
        _ = unsafe Glibc.unlink(configuration.socketPath)
    }
}
