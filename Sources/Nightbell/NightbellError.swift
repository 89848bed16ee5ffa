package import LinuxSystem
package import NightbellWire

/// An error, as a code for programs and a sentence for people.
///
/// Codes up to ``Code/profileNotForThis`` are the supervisor's answers; the others arise in this library.
/// ``errorNumber`` is the `errno` of the system call that failed, where one did.
public struct NightbellError: Error, Sendable, Hashable, CustomStringConvertible {
    public enum Code: String, Sendable, Hashable, CaseIterable {
        // The supervisor refused what was sent and closed the connection.

        /// A packet did not decode, was too long, or carried descriptors it must not.
        case malformedPacket
        /// The supervisor does not know this kind of message.
        case unknownMessage
        /// The supervisor speaks another version of the protocol.
        case unsupportedVersion
        /// A request was sent before Hello.
        case helloRequired
        /// The client sent Hello twice.
        case alreadyRegistered
        /// Identifiers have 1 to 128 characters out of `A-Z a-z 0-9 . _ -`.
        case invalidIdentifier
        /// Another running client has this identifier.
        case identifierInUse
        /// Another user was the first to use this identifier.
        case identifierOfOtherUser
        /// This user has reached its limit of clients.
        case tooManyClients
        /// The supervisor is shutting down.
        case shuttingDown
        /// The client did not read its messages.
        case tooSlow
        /// The process that connected could not be identified, or has ended.
        case processGone
        /// The supervisor has reached its limit of connections.
        case tooManyConnections

        // The supervisor refused one request.

        /// The client did not declare the ``Mode`` that this needs.
        case modeRequired
        /// ``Client/mediaActivity()`` has no effect: PipeWire runs, and no stream of the client's does.
        case noStream
        /// The keep-alive timeout is shorter than ``Client/minimumKeepAliveTimeout``.
        case timeoutTooShort
        /// The keep-alive timeout is longer than 30 days.
        case timeoutTooLong
        /// This handle stands for no parked socket of this client, or no longer.
        case invalidToken
        /// This handle stands for no background task of this client, or no longer.
        case invalidTask
        /// Not possible in this state; the message names it.
        case illegalState
        /// A regular file, a directory or an epoll set cannot be watched.
        case notPollable
        /// A listening socket cannot be handed over as ``SocketTag/voip``.
        case listeningSocket
        /// Handed over as ``SocketTag/listener``, but it does not listen.
        case notAListener
        /// Handed over as ``SocketTag/voip``, but it is not a socket.
        case notASocket
        /// Handed over as ``SocketTag/voip``: a stream socket without a peer.
        case notConnected
        /// The socket has a pending error.
        case socketError
        /// This client or this user has reached its limit of parked sockets.
        case tooManySockets
        /// No fetch is going on that this wake told of.
        case noFetch
        /// No pushes are being handled that this wake told of.
        case noPush
        /// This client or this user observes as much as it may.
        case tooManyObservations
        /// The client has no observation of this name, or that cannot happen to its subject.
        case noSuchObservation
        /// This user has as many notifications as it may, pending and shown.
        case tooManyNotifications
        /// The supervisor does not know how to start this program, or may not: see `nightbell run` and
        /// manifests.
        case cannotLaunch
        /// The state is larger than the limit of this client or this user.
        case stateTooLarge
        /// The supervisor has no descriptor left.
        case outOfDescriptors
        /// This user may not do that. Another user's client is ``noSuchClient`` instead.
        case permissionDenied
        /// No client that this user may see has this identifier.
        case noSuchClient
        /// An argument is out of its range, such as a name that is too long.
        case invalidArgument
        /// The kernel dropped descriptors on the way to the supervisor.
        case truncatedDescriptors
        /// The supervisor's program was not replaced: nothing has changed.
        case upgradeFailed
        /// The configuration cannot be used, or there is none to read: nothing has changed.
        case reloadFailed
        /// The settings of a profile are not valid; the message says which.
        case invalidProfile
        /// A profile that reads messages, for a connection that is encrypted.
        case opaqueSocket
        /// A profile for streams on a datagram socket or on a descriptor that is no socket, or one in which
        /// the supervisor may not act for the client; the message says which.
        case profileNotForThis

        // Between this library and the supervisor.

        /// No supervisor could be reached; ``NightbellError/errorNumber`` says why.
        case cannotConnect
        /// The connection ended.
        case connectionLost
        /// There is no connection at the moment; the library is trying to get one.
        case disconnected
        /// The supervisor did not answer within ``Client/Configuration/requestTimeout``.
        case requestTimedOut
        /// ``Client/close()`` was called, or the connection ended for good.
        case closed
        /// The supervisor sent something that is not part of the protocol.
        case malformedAnswer
        /// The supervisor answered with a code that this version of the library does not know.
        case unrecognized
        /// A descriptor that was handed over had been closed, or its number used again, before its release.
        case descriptorGone
        /// The state that was delegated for a socket is not known any more.
        case delegatedStateLost
        /// The client was made in another process, of which this one is a fork.
        case forked
        /// There is no transfer process for this user: the supervisor has no such program, or this user is
        /// root.
        case transfersUnavailable
        /// There is no push service, or it does not answer.
        case pushUnavailable
        /// The push service has refused a request.
        case pushRefused
        /// The transfer process refused what was asked for; the message says why.
        case transferRefused
        /// A system call failed; ``NightbellError/errorNumber`` says why.
        case system
    }

    /// The error, for programs.
    public let code: Code
    /// The error, for people: the supervisor's own text, or the library's.
    public let message: String
    /// `errno` of the system call that failed, or 0.
    public let errorNumber: CInt

    package init(_ code: Code, _ message: String, errorNumber: CInt = 0) {
        self.code = code
        self.message = message
        self.errorNumber = errorNumber
    }

    /// Such as “The keep-alive timeout is too short: 1 s is less than 600 s.”
    public var description: String {
        let text = message.isEmpty ? code.summary : "\(code.summary): \(message)"
        return text.hasSuffix("?") ? text : text + "."
    }
}

extension NightbellError {
    /// A system call that failed.
    package init(_ code: Code, _ error: SystemError) {
        self.init(code, error.description, errorNumber: error.code)
    }

    /// The supervisor's answer.
    package init(_ wire: WireError) {
        let code = Code(wire.code)
        var message = wire.message
        while message.hasSuffix(".") { message.removeLast() }
        self.init(code ?? .unrecognized, code == nil ? "code \(wire.code.rawValue), \(message)" : message)
    }
}

extension NightbellError.Code {
    package init?(_ wire: WireErrorCode) {
        switch wire {
        case .malformedPacket: self = .malformedPacket
        case .unknownMessage: self = .unknownMessage
        case .unsupportedVersion: self = .unsupportedVersion
        case .helloRequired: self = .helloRequired
        case .alreadyRegistered: self = .alreadyRegistered
        case .invalidIdentifier: self = .invalidIdentifier
        case .identifierInUse: self = .identifierInUse
        case .identifierOfOtherUser: self = .identifierOfOtherUser
        case .tooManyClients: self = .tooManyClients
        case .shuttingDown: self = .shuttingDown
        case .tooSlow: self = .tooSlow
        case .processGone: self = .processGone
        case .tooManyConnections: self = .tooManyConnections
        case .modeRequired: self = .modeRequired
        case .noStream: self = .noStream
        case .timeoutTooShort: self = .timeoutTooShort
        case .timeoutTooLong: self = .timeoutTooLong
        case .invalidToken: self = .invalidToken
        case .invalidTask: self = .invalidTask
        case .illegalState: self = .illegalState
        case .notPollable: self = .notPollable
        case .listeningSocket: self = .listeningSocket
        case .notAListener: self = .notAListener
        case .notASocket: self = .notASocket
        case .notConnected: self = .notConnected
        case .socketError: self = .socketError
        case .tooManySockets: self = .tooManySockets
        case .noFetch: self = .noFetch
        case .noPush: self = .noPush
        case .tooManyObservations: self = .tooManyObservations
        case .noSuchObservation: self = .noSuchObservation
        case .tooManyNotifications: self = .tooManyNotifications
        case .cannotLaunch: self = .cannotLaunch
        case .stateTooLarge: self = .stateTooLarge
        case .outOfDescriptors: self = .outOfDescriptors
        case .permissionDenied: self = .permissionDenied
        case .noSuchClient: self = .noSuchClient
        case .invalidArgument: self = .invalidArgument
        case .truncatedDescriptors: self = .truncatedDescriptors
        case .upgradeFailed: self = .upgradeFailed
        case .reloadFailed: self = .reloadFailed
        case .invalidProfile: self = .invalidProfile
        case .opaqueSocket: self = .opaqueSocket
        case .profileNotForThis: self = .profileNotForThis
        case .unspecified, .UNRECOGNIZED: return nil
        }
    }

    /// A clause that a message can follow.
    var summary: String {
        switch self {
        case .malformedPacket: "The supervisor could not read a packet"
        case .unknownMessage: "The supervisor does not know this kind of message"
        case .unsupportedVersion: "The supervisor speaks another version of the protocol"
        case .helloRequired: "The client has not sent Hello"
        case .alreadyRegistered: "The client has already sent Hello"
        case .invalidIdentifier: "The identifier is not valid"
        case .identifierInUse: "Another running client has this identifier"
        case .identifierOfOtherUser: "The identifier belongs to another user"
        case .tooManyClients: "This user has too many clients"
        case .shuttingDown: "The supervisor is shutting down"
        case .tooSlow: "The client did not read its messages"
        case .processGone: "The supervisor could not identify this process"
        case .tooManyConnections: "The supervisor has too many connections"
        case .modeRequired: "The client did not declare the mode that this needs"
        case .noStream: "No stream of the client runs"
        case .tooManyNotifications: "This user has too many notifications"
        case .timeoutTooShort: "The keep-alive timeout is too short"
        case .timeoutTooLong: "The keep-alive timeout is too long"
        case .invalidToken: "No such parked socket"
        case .invalidTask: "No such background task"
        case .illegalState: "Not possible in this state"
        case .notPollable: "The descriptor cannot be watched"
        case .listeningSocket: "A listening socket cannot be a voip socket"
        case .notAListener: "The socket does not listen"
        case .notASocket: "The descriptor is not a socket"
        case .notConnected: "The socket has no peer"
        case .socketError: "The socket has a pending error"
        case .tooManySockets: "Too many parked sockets"
        case .noFetch: "No such fetch"
        case .noPush: "No such pushes"
        case .tooManyObservations: "Too many observations"
        case .noSuchObservation: "No such observation"
        case .cannotLaunch: "The supervisor cannot launch this program"
        case .stateTooLarge: "The state is too large"
        case .outOfDescriptors: "The supervisor has no descriptor left"
        case .permissionDenied: "Permission denied"
        case .noSuchClient: "No such client"
        case .invalidArgument: "An argument is not valid"
        case .truncatedDescriptors: "The kernel dropped descriptors"
        case .upgradeFailed: "The supervisor was not upgraded"
        case .reloadFailed: "The configuration was not reloaded"
        case .invalidProfile: "The profile is not valid"
        case .opaqueSocket: "The connection is encrypted"
        case .profileNotForThis: "The profile is not for this descriptor"
        case .cannotConnect: "No supervisor can be reached"
        case .connectionLost: "The connection to the supervisor ended"
        case .disconnected: "There is no connection to the supervisor now"
        case .requestTimedOut: "The supervisor did not answer in time"
        case .closed: "The client is closed"
        case .malformedAnswer: "The supervisor sent a malformed message"
        case .unrecognized: "The supervisor answered with an unknown error"
        case .descriptorGone: "The descriptor was closed before its release"
        case .delegatedStateLost: "The delegated state is not known any more"
        case .forked: "The client belongs to the parent process"
        case .transfersUnavailable: "There are no transfers for this user"
        case .pushUnavailable: "The push service cannot be reached"
        case .pushRefused: "The push service refuses"
        case .transferRefused: "The transfer process refused"
        case .system: "A system call failed"
        }
    }
}
