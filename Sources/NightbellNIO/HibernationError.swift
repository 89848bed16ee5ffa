/// Why a channel is not, or cannot be, hibernated.
public struct HibernationError: Error, Sendable, Hashable, CustomStringConvertible {
    public enum Code: Sendable, Hashable {
        /// The connection is encrypted: what TLS keeps in this process cannot be saved. Hibernate behind something that
        /// terminates TLS.
        case tls
        /// The channel is none of a stream socket of SwiftNIO's own (`NIOPosix`).
        case notASocket
        /// The supervisor could not take the socket, or there was no descriptor to be had. The channel goes on, and it
        /// is tried again.
        case notParked
    }

    public let code: Code
    public let description: String

    init(_ code: Code, _ description: String) {
        self.code = code
        self.description = description
    }

    static let tls = HibernationError(
        .tls, "an encrypted connection cannot be hibernated: its keys are in the pipeline, and would be lost")
    static let notASocket = HibernationError(
        .notASocket, "the channel has no stream socket that could be parked")
}
