package import NightbellWire
import SwiftProtobuf

/// A socket on its way to the supervisor.
package struct NewSocket: Sendable, Hashable {
    package var descriptor: CInt
    package var tag: SocketTag
    package var name: String
    /// Shows later whether the descriptor still refers to the same open file.
    package var file: FileIdentity
    /// Whether it stays parked when this process is gone.
    package var survives: Bool
    package var profile: Profile?
    package var isEncrypted: Bool
    /// Whether it has a local address that the machine can lose.
    package var isRouted: Bool
    /// In bytes, while the client sleeps; 0: unchanged.
    package var receiveBuffer: UInt32

    package init(
        descriptor: CInt, tag: SocketTag, name: String, file: FileIdentity, survives: Bool = false,
        profile: Profile? = nil, isEncrypted: Bool = false, isRouted: Bool = false,
        receiveBuffer: UInt32 = 0
    ) {
        self.receiveBuffer = receiveBuffer
        self.profile = profile
        self.isEncrypted = isEncrypted
        self.isRouted = isRouted
        self.descriptor = descriptor
        self.tag = tag
        self.name = name
        self.file = file
        self.survives = survives
    }
}

/// The open file that a descriptor referred to when it was handed over.
package struct FileIdentity: Sendable, Hashable {
    package var device: UInt64
    package var inode: UInt64

    package init(device: UInt64, inode: UInt64) {
        self.device = device
        self.inode = inode
    }
}

/// A request of a caller to the supervisor.
package enum Request: Sendable {
    case handOver([NewSocket])
    case release(ParkedSocket)
    case enterBackground
    case enterForeground
    case setKeepAlive(milliseconds: UInt64, handler: @Sendable () -> Void)
    case clearKeepAlive
    case setFetchInterval(FetchInterval)
    case fetchDone(UInt64, FetchResult)
    case pushDone(UInt64, FetchResult)
    case observe(String, Subject)
    case stopObserving(String)
    case schedule(WireLocalNotification)
    /// nil: all.
    case cancelNotifications([String]?)
    /// 0: none.
    case setBadge(UInt32)
    case listNotifications(after: UInt64)
    case beginTask(name: String, expired: (@Sendable (BackgroundTask, Duration) -> Void)? = nil)
    case endTask(BackgroundTask)
    case timeRemaining
    case media
    case saveState([UInt8])
    case hibernate
}

/// The answer for the caller.
package enum Answer: Sendable, Equatable {
    case done
    case sockets([Result<ParkedSocket, NightbellError>])
    case task(BackgroundTask)
    case time(BackgroundTimeRemaining)
    case scheduled(dropped: String?)
    case notifications([NotificationInfo], hasMore: Bool)
}

extension Request {
    /// The limit of the protocol for one packet.
    package static let socketsPerPacket = 250

    package var descriptors: [CInt] {
        if case .handOver(let sockets) = self { sockets.map(\.descriptor) } else { [] }
    }
}

extension WireClientMessage {
    package init(_ body: OneOf_Body, request: UInt64 = 0) {
        self.init()
        self.request = request
        self.body = body
    }

    package static func release(token: UInt64, request: UInt64 = 0) -> Self {
        Self(.release(.with { $0.token = token }), request: request)
    }

    package static func endTask(_ id: UInt64, request: UInt64 = 0) -> Self {
        Self(.endBackgroundTask(.with { $0.taskID = id }), request: request)
    }

    package static func beginTask(name: String, request: UInt64) -> Self {
        Self(.beginBackgroundTask(.with { $0.name = name }), request: request)
    }

    package static func setKeepAlive(milliseconds: UInt64, request: UInt64) -> Self {
        Self(.setKeepAliveTimeout(.with { $0.timeoutMs = milliseconds }), request: request)
    }

    package static func setFetchInterval(_ interval: FetchInterval, request: UInt64) -> Self {
        let milliseconds = interval.wireMilliseconds
        return Self(.setMinimumFetchInterval(.with { $0.intervalMs = milliseconds }), request: request)
    }

    package static func fetchDone(_ wakeID: UInt64, _ result: FetchResult, request: UInt64) -> Self {
        Self(
            .fetchDone(
                .with {
                    $0.wakeID = wakeID
                    $0.result = result.wire
                }), request: request)
    }

    package static func pushDone(_ wakeID: UInt64, _ result: FetchResult, request: UInt64) -> Self {
        Self(
            .pushDone(
                .with {
                    $0.wakeID = wakeID
                    $0.result = result.wire
                }), request: request)
    }

    package static func observe(_ name: String, _ subject: Subject, request: UInt64) -> Self {
        Self(.observe(subject.wire(named: name)), request: request)
    }

    package static func stopObserving(_ name: String, request: UInt64) -> Self {
        Self(.stopObserving(.with { $0.name = name }), request: request)
    }

    package static func schedule(_ notification: WireLocalNotification, request: UInt64) -> Self {
        Self(.scheduleNotification(.with { $0.notification = notification }), request: request)
    }

    package static func cancelNotifications(_ identifiers: [String]?, request: UInt64) -> Self {
        let message = WireCancelNotifications.with {
            $0.identifiers = identifiers ?? []
            $0.all = identifiers == nil
        }
        return Self(.cancelNotifications(message), request: request)
    }

    package static func setBadge(_ count: UInt32, request: UInt64) -> Self {
        Self(.setBadge(.with { $0.count = count }), request: request)
    }

    package static func listNotifications(after number: UInt64, request: UInt64) -> Self {
        Self(.listNotifications(.with { $0.after = number }), request: request)
    }

    package static func saveState(_ bytes: [UInt8], request: UInt64) -> Self {
        Self(.saveState(.with { $0.state = bytes.asField }), request: request)
    }

    package static func wakeDone(_ id: UInt64) -> Self { Self(.wakeDone(.with { $0.wakeID = id })) }

    package static func handOver(_ sockets: [NewSocket], request: UInt64) -> Self {
        let list = sockets.map { socket in
            WireHandOver.Socket.with {
                $0.tag = socket.tag.wire
                $0.name = socket.name
                if let profile = socket.profile { $0.profile = profile.wire }
                $0.encrypted = socket.isEncrypted
                $0.survives = socket.survives
                $0.routed = socket.isRouted
                $0.receiveBuffer = socket.receiveBuffer
            }
        }
        return Self(.handOver(.with { $0.sockets = list }), request: request)
    }
}

extension SocketTag {
    package var wire: WireSocketTag {
        switch self {
        case .voip: .voip
        case .listener: .listener
        case .device: .device
        }
    }
}

extension Mode {
    package var wire: WireMode {
        switch self {
        case .voip: .voip
        case .audio: .audio
        case .fetch: .fetch
        case .location: .location
        case .bluetoothCentral: .bluetoothCentral
        case .bluetoothPeripheral: .bluetoothPeripheral
        case .externalAccessory: .externalAccessory
        case .newsstand: .newsstand
        }
    }
}

extension WakeLimitPolicy {
    package var wire: WireWakeLimitPolicy {
        switch self {
        case .linger: .linger
        case .terminate: .terminate
        }
    }
}
