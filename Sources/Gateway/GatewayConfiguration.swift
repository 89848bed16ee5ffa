import Glibc

/// Settings of a gateway.
package struct GatewayConfiguration: Sendable {
    /// Where it listens. Port 0 is any free one.
    package var host = "127.0.0.1"
    package var port = 7480
    /// PEM files; nil: it speaks HTTP without TLS.
    package var certificate: TLSFiles?
    /// The file with the hashes of tokens.
    package var tokenFile: String
    /// The supervisor's control socket.
    package var socketPath: String
    /// nil: there is no push service.
    package var push: Push?
    package var limits = Limits()

    package init(tokenFile: String, socketPath: String) {
        self.tokenFile = tokenFile
        self.socketPath = socketPath
    }

    package struct TLSFiles: Sendable, Equatable {
        /// The certificate, followed by those between it and its root.
        package var chain: String
        package var key: String

        package init(chain: String, key: String) {
            self.chain = chain
            self.key = key
        }
    }

    /// The push service.
    package struct Push: Sendable, Equatable {
        /// The directory of its store.
        package var directory: String
        /// Where clients connect.
        package var socket: String
        /// The address by which senders reach this gateway; nil: the one that it listens on.
        package var origin: Origin?

        package init(directory: String, socket: String, origin: Origin? = nil) {
            self.directory = directory
            self.socket = socket
            self.origin = origin
        }
    }

    /// How it is reached on a port.
    package func url(port: Int) -> String {
        let host = host.contains(":") ? "[\(host)]" : host
        return "\(certificate == nil ? "http" : "https")://\(host):\(port)"
    }

    /// Whether it listens on all addresses of the machine: nothing can be sent to `0.0.0.0` or `::`.
    package var isWildcard: Bool {
        var (four, six) = (in_addr(), in6_addr())
        // As the resolver reads it: `0` is an address, too.
        if inet_aton(host, &four) != 0 { return four.s_addr == 0 }
        guard inet_pton(AF_INET6, host, &six) == 1 else { return false }
        let bytes = withUnsafeBytes(of: six) { Array($0) }
        let isMapped = bytes[..<12].elementsEqual([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF])
        return bytes.dropFirst(isMapped ? 12 : 0).allSatisfy { $0 == 0 }
    }

    /// Whether only processes of this machine can connect.
    package var isLoopback: Bool {
        // Names may begin with numbers, too.
        let isNumeric = host.utf8.allSatisfy { $0 == UInt8(ascii: ".") || (0x30...0x39).contains($0) }
        return host == "localhost" || host == "::1" || isNumeric && host.hasPrefix("127.")
    }
}

/// Limits on the resources that a peer takes of the gateway, and the gateway of the supervisor.
package struct Limits: Sendable {
    /// Open connections, each with a descriptor. Further ones wait in the kernel's queue.
    package var connections = 512
    /// Connections that follow events.
    package var streams = 128
    /// All header fields of a request, in bytes.
    package var headerBytes = 16_384
    package var headerFields = 64
    /// The body of a request, in bytes.
    package var bodyBytes = 4_096
    /// From the connection, or from the end of the last response, to the end of a request's header fields.
    package var headTime: Duration = .seconds(15)
    /// From there to the end of its body.
    package var bodyTime: Duration = .seconds(10)
    /// The most that the kernel keeps for a peer that does not read, in bytes; it doubles that. It would be
    /// megabytes for each peer otherwise.
    package var sendBufferBytes = 131_072
    /// How long a peer may leave unread what was written to it.
    package var writeTime: Duration = .seconds(20)
    /// Events that wait for one slow stream; it loses the oldest.
    package var eventsPerStream = 2_048
    /// Between two signs of life of a stream without events. A stream also ends this soon after its token was
    /// revoked.
    package var heartbeat: Duration = .seconds(15)
    /// Requests that wait for the supervisor.
    package var waitingRequests = 64
    /// Requests passed on to the supervisor, a second; twice as many in a burst.
    package var requestsPerSecond = 200
    /// Requests on one connection that wait for their responses, and how long more than one may wait.
    package var waitingOnConnection = 256
    package var pipelineTime: Duration = .seconds(15)
    /// When the gateway ends, how long a connection has for its last responses.
    package var endTime: Duration = .seconds(5)
    /// Refused requests of strangers answered at once, a second; five times as many in a burst. Others are
    /// answered after the pause.
    package var refusalsPerSecond = 20
    package var refusalPause: Duration = .seconds(1)
    /// Pages that need no token, and looks at its health, a second each; twice as many in a burst. Others are
    /// answered after the same pause.
    package var pagesPerSecond = 500
    /// How old the status and the list of clients may be; older if the supervisor takes long to answer.
    package var answerAge: Duration = .seconds(1)

    package init() {}
}
