/// The reason why a channel is not, or cannot be, hibernated.
public struct HibernationError: Error, Sendable, Hashable, CustomStringConvertible {
    public enum Code: Sendable, Hashable {
        /// The connection is encrypted: its TLS state in this process cannot be saved. Hibernate behind a TLS
        /// terminator.
        case tls
        /// The channel has no stream socket of SwiftNIO's own (`NIOPosix`).
        case notASocket
        /// The supervisor could not take the socket, or no descriptor was free. The channel continues, and
        /// the attempt is repeated.
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
