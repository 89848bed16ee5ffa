import Descriptors
import Glibc

/// The listening socket, and a descriptor in reserve: with no other left, those who knock are still let in for
/// long enough to be told why they cannot stay.
struct Acceptance: ~Copyable {
    let listener: SeqPacketSocket
    private var reserve: EventDescriptor?

    enum Knock: ~Copyable {
        case nobody
        case somebody(SeqPacketSocket)
        /// There is no descriptor for it: tell it so and let it go, then call `refill`.
        case noRoom(SeqPacketSocket)
        /// Not even that: stop listening until a descriptor is free.
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

    mutating func accept() throws(SystemError) -> Knock {
        do {
            guard let socket = try listener.accept() else { return .nobody }
            return .somebody(socket)
        } catch  where error.code == EMFILE || error.code == ENFILE {
            guard reserve.take() != nil else { return .exhausted }
        }
        guard let socket = try listener.accept() else {
            refill()
            return .nobody
        }
        return .noRoom(socket)
    }

    /// Takes the reserve back, if a descriptor can be had; tells whether there is one.
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

    /// Nobody finds the way in any more.
    static func unlink(_ configuration: SupervisorConfiguration) {
        _ = unsafe Glibc.unlink(configuration.socketPath)
    }
}
