import Keeper
import Launching
import NightbellCore

/// Who a client is: what does not change while its process lives. Kept with its control connection, if it has one.
struct ClientRecordBytes {
    private static let version: UInt8 = 2

    var registration: Registration
    var registeredAt: Instant
    var wantsWakeWord = false
    /// What it said of how it was started, if that is not how it would be launched. Encoded as on the wire.
    var launch: [UInt8] = []
    var presence = Presence.registered
    /// nil: nobody may launch it.
    var recipe: LaunchRecipe?
    /// The process that we have made for it; 0: it came by itself.
    var madeProcess: UInt32 = 0
    /// What its new process is given of the last one's, until it is known to have it.
    var bequest: Bequest?

    /// What there is of its process.
    enum Presence: UInt8 {
        case registered = 0
        case absent = 1
        case launched = 2
        /// Launched, and it has said who it is; whether it has heard that it is welcome is not known.
        case welcomed = 3
    }

    init(registration: Registration, registeredAt: Instant) {
        self.registration = registration
        self.registeredAt = registeredAt
    }

    var bytes: [UInt8] {
        var writer = RecordWriter(version: Self.version)
        writer.write(registration.identifier.description)
        writer.write(registration.user)
        writer.write(registration.modes.rawValue)
        writer.write(registration.wakeLimitPolicy == .terminate)
        writer.write(registration.exitsOnSuspend)
        writer.write(UInt64(bitPattern: registeredAt.nanoseconds))
        writer.write(wantsWakeWord)
        writer.write(launch)
        writer.write(presence.rawValue)
        writer.write(madeProcess)
        writer.write(bequest)
        writer.write(recipe)
        return writer.bytes
    }

    init(_ key: RecordKey, _ record: [UInt8]) throws(RecordError) {
        var reader = try RecordReader(key, record, version: Self.version)
        guard let identifier = ClientIdentifier(try reader.read()) else {
            throw reader.problem("has no identifier")
        }
        registration = Registration(
            identifier: identifier, user: try reader.read(), modes: Modes(rawValue: try reader.read()))
        let terminates: Bool = try reader.read()
        registration.wakeLimitPolicy = terminates ? .terminate : .linger
        registration.exitsOnSuspend = try reader.read()
        let registeredAt: UInt64 = try reader.read()
        self.registeredAt = Instant(nanoseconds: Int64(bitPattern: registeredAt))
        wantsWakeWord = try reader.read()
        launch = try reader.read()
        guard let presence = Presence(rawValue: try reader.read()) else {
            throw reader.problem("says nothing of its process")
        }
        self.presence = presence
        madeProcess = try reader.read()
        bequest = try reader.readBequest()
        recipe = try reader.readRecipe()
        registration.isLaunchable = recipe != nil
        try reader.end()
    }
}

/// What a new process of a client is given of the last one's.
struct Bequest: Sendable, Equatable {
    /// It was launched, and finds the sockets open.
    var wasLaunched: Bool
    /// In the order of the descriptors.
    var sockets: [SocketToken]
}

extension RecordWriter {
    fileprivate mutating func write(_ bequest: Bequest?) {
        guard let bequest else { return write(UInt8(0)) }
        write(UInt8(bequest.wasLaunched ? 2 : 1))
        write(UInt32(bequest.sockets.count))
        for socket in bequest.sockets { write(socket.rawValue) }
    }

    fileprivate mutating func write(_ recipe: LaunchRecipe?) {
        switch recipe {
        case nil:
            write(UInt8(0))
        case .recorded(let bytes, let limits, let identity):
            write(UInt8(1))
            write(bytes)
            write(limits)
            write(identity)
        case .declared(let launch, let identity):
            write(UInt8(identity == nil ? 2 : 3))
            write(launch)
            if let identity { write(identity) }
        }
    }

    private mutating func write(_ launch: LaunchSpecification) {
        write(UInt32(launch.arguments.count))
        for argument in launch.arguments { write(argument) }
        write(launch.directory)
        write(UInt32(launch.environment.count))
        for (name, value) in launch.environment.sorted(by: { $0.key < $1.key }) {
            write(name)
            write(value)
        }
        write(launch.limits)
        write(launch.fileModeMask)
        write(launch.output ?? "")
    }

    private mutating func write(_ limits: [ResourceLimit]) {
        write(UInt8(clamping: limits.count))
        for limit in limits {
            write(UInt8(clamping: limit.resource.rawValue))
            write(limit.soft)
            write(limit.hard)
        }
    }

    private mutating func write(_ identity: ProcessIdentity) {
        write(identity.user)
        write(identity.group)
        write(UInt32(identity.otherGroups.count))
        for group in identity.otherGroups { write(group) }
    }
}

extension RecordReader {
    fileprivate mutating func readBequest() throws(RecordError) -> Bequest? {
        let kind: UInt8 = try read()
        guard kind != 0 else { return nil }
        let count: UInt32 = try read()
        var sockets: [SocketToken] = []
        for _ in 0..<count { sockets.append(SocketToken(rawValue: try read())) }
        return Bequest(wasLaunched: kind == 2, sockets: sockets)
    }

    fileprivate mutating func readRecipe() throws(RecordError) -> LaunchRecipe? {
        let kind: UInt8 = try read()
        switch kind {
        case 0:
            return nil
        case 1:
            return .recorded(try read(), limits: try readLimits(), try readIdentity())
        case 2, 3:
            let launch = try readLaunch()
            let identity = kind == 3 ? try readIdentity() : nil
            return .declared(launch, identity)
        default:
            throw problem("says in an unknown way how it is launched")
        }
    }

    private mutating func readLaunch() throws(RecordError) -> LaunchSpecification {
        var arguments: [String] = []
        let count: UInt32 = try read()
        for _ in 0..<count { arguments.append(try read()) }
        var launch = LaunchSpecification(arguments: arguments, directory: try read())
        let variables: UInt32 = try read()
        for _ in 0..<variables {
            let name: String = try read()
            launch.environment[name] = try read()
        }
        launch.limits = try readLimits()
        launch.fileModeMask = try read()
        let output: String = try read()
        launch.output = output.isEmpty ? nil : output
        return launch
    }

    private mutating func readLimits() throws(RecordError) -> [ResourceLimit] {
        let count: UInt8 = try read()
        var limits: [ResourceLimit] = []
        for _ in 0..<count {
            let number: UInt8 = try read()
            guard let resource = ResourceLimit.Resource(rawValue: UInt32(number)) else {
                throw problem("has an unknown limit")
            }
            limits.append(ResourceLimit(resource, soft: try read(), hard: try read()))
        }
        return limits
    }

    private mutating func readIdentity() throws(RecordError) -> ProcessIdentity {
        var identity = ProcessIdentity(user: try read(), group: try read(), otherGroups: [])
        let count: UInt32 = try read()
        for _ in 0..<count { identity.otherGroups.append(try read()) }
        return identity
    }
}
