import NightbellCore
import NightbellWire

/// Refusals of the core, as the wire has them.
extension WireError {
    init(_ code: WireErrorCode, _ message: String) {
        self.init()
        self.code = code
        self.message = message
    }

    init(_ refusal: Refusal) {
        let (code, message): (WireErrorCode, String) =
            switch refusal {
            case .identifierInUse:
                (.identifierInUse, "a running client has this identifier")
            case .identifierOfOtherUser:
                (
                    .identifierOfOtherUser,
                    """
                    this identifier belongs to another user, the first one to use it; an administrator can give \
                    it up with nightbell forget
                    """
                )
            case .tooManyClients:
                (.tooManyClients, "this user has as many clients as it may")
            case .shuttingDown:
                (.shuttingDown, "the supervisor is stopping")
            case .modeRequired(let modes):
                (
                    .modeRequired,
                    "needs \(modes.names.contains(",") ? "one of the modes" : "the mode") \(modes.names)"
                )
            case .noStream:
                (
                    .noStream,
                    "PipeWire knows this user's streams, and no stream of this client runs without being muted"
                )
            case .timeoutTooShort(let minimum):
                (.timeoutTooShort, "the shortest keep-alive timeout is \(minimum)")
            case .timeoutTooLong(let maximum):
                (.timeoutTooLong, "the longest keep-alive timeout is \(maximum)")
            case .invalidToken:
                (.invalidToken, "no socket of this client has this token")
            case .invalidTask:
                (.invalidTask, "no background task of this client has this number")
            case .noFetch:
                (.noFetch, "no fetch is going on that this wake told of")
            case .noPush:
                (.noPush, "no pushes are being handled that this wake told of")
            case .noSuchObservation:
                (
                    .noSuchObservation,
                    "the client has no observation of this name to which that can happen"
                )
            case .tooManyObservations:
                (
                    .tooManyObservations,
                    "this client or its user observes as much as it may now; devices and characteristics of one "
                        + "user count over all its clients"
                )
            case .tooManyNotifications:
                (.tooManyNotifications, "this user has as many notifications as it may, over all its clients")
            case .illegalState(let state):
                (.illegalState, "not possible while the client is \(state.name)")
            case .notPollable:
                (.notPollable, "files, directories and epoll sets cannot be watched")
            case .listeningSocket:
                (.listeningSocket, "a listening socket is handed over with the tag listener only")
            case .notAListener:
                (.notAListener, "the tag listener is for listening sockets")
            case .notASocket:
                (.notASocket, "the tag voip is for sockets")
            case .notConnected:
                (.notConnected, "the stream is not connected")
            case .socketError:
                (.socketError, "the socket has a pending error")
            case .tooManySockets:
                (.tooManySockets, "this client, or user, has as many sockets as it may")
            case .tooManyTasks:
                (.invalidArgument, "this client holds as many background tasks as it may")
            case .invalidProfile:
                (.invalidProfile, "the profile is invalid")
            case .opaqueSocket:
                (.opaqueSocket, "encrypted, and not by the kernel: the supervisor cannot see messages in it")
            case .receiveBufferNotForThis:
                (.invalidArgument, "a receive buffer is for UDP sockets")
            case .profileNotForThis:
                (.profileNotForThis, "the profile is not for descriptors of this kind")
            case .cannotLaunch:
                (.cannotLaunch, "the supervisor does not know, or may not, start this program")
            case .stateTooLarge(let limit):
                (.stateTooLarge, "the state has more than \(limit) bytes")
            case .networkChangesNotWanted:
                (.invalidArgument, "the client has not asked to be told of other networks")
            case .noKeepAlive:
                (.illegalState, "the client has no keep-alive timeout, or is in the foreground")
            case .noSuchClient:
                (.noSuchClient, "no running client that you may see has this identifier")
            }
        self.init(code, message)
    }
}
