import Keeper
import NightbellCore

/// A client's record: its identity, which does not change while its process lives. Kept with its control
/// connection, if it has one.
struct ClientRecordBytes {
    private static let version: UInt8 = 4

    var registration: Registration
    var registeredAt: Instant
    /// The number of its ownership of its identifier.
    var ownership: UInt64
    var wantsWakeWord = false
    /// How it says it was started, if it would not be launched that way. Encoded as on the wire.
    var launch: [UInt8] = []
    var presence = RecoverySnapshot.Presence.registered
    /// nil: it cannot be launched.
    var recipe: LaunchRecipe?
    /// The process that we made for it; 0: it connected by itself.
    var madeProcess: UInt32 = 0
    /// The sockets and state left to its new process, until it is known to have received them.
    var previous: PreviousProcess?

    init(registration: Registration, registeredAt: Instant, ownership: UInt64) {
        self.registration = registration
        self.ownership = ownership
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
        writer.write(ownership)
        writer.write(wantsWakeWord)
        writer.write(launch)
        writer.write(presence.rawValue)
        writer.write(madeProcess)
        writer.write(previous)
        writer.write(recipe)
        return writer.bytes
    }

    init(
        _ key: RecordKey, _ record: [UInt8], _ settings: [UInt64: LaunchSetting]
    ) throws(RecordError) {
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
        ownership = try reader.read()
        wantsWakeWord = try reader.read()
        launch = try reader.read()
        guard let presence = RecoverySnapshot.Presence(rawValue: try reader.read()) else {
            throw reader.problem("has no valid process state")
        }
        self.presence = presence
        madeProcess = try reader.read()
        previous = try reader.readPreviousProcess()
        recipe = try reader.readRecipe(key, settings)
        registration.isLaunchable = recipe != nil
        try reader.end()
    }
}

/// The sockets and state that a client's new process is given of the last one's.
struct PreviousProcess: Sendable, Equatable {
    /// It was launched, or started by a process that was.
    var wasLaunched: Bool
    /// It receives the sockets with its Welcome; otherwise it inherits them open.
    var isAttached: Bool
    /// In the order of the descriptors.
    var sockets: [SocketToken]
}

extension RecordWriter {
    fileprivate mutating func write(_ previous: PreviousProcess?) {
        guard let previous else { return write(UInt8(0)) }
        write(UInt8(previous.wasLaunched ? previous.isAttached ? 3 : 2 : 1))
        write(UInt32(previous.sockets.count))
        for socket in previous.sockets { write(socket.rawValue) }
    }

    fileprivate mutating func write(_ recipe: LaunchRecipe?) {
        guard let recipe else { return write(UInt64(0)) }
        write(recipe.setting.number)
        write(recipe.own)
    }
}

extension RecordReader {
    fileprivate mutating func readPreviousProcess() throws(RecordError) -> PreviousProcess? {
        let kind: UInt8 = try read()
        guard kind != 0 else { return nil }
        let count: UInt32 = try read()
        var sockets: [SocketToken] = []
        for _ in 0..<count { sockets.append(SocketToken(rawValue: try read())) }
        return PreviousProcess(wasLaunched: kind != 1, isAttached: kind != 2, sockets: sockets)
    }

    fileprivate mutating func readRecipe(
        _ key: RecordKey, _ settings: [UInt64: LaunchSetting]
    ) throws(RecordError) -> LaunchRecipe? {
        let number: UInt64 = try read()
        guard number != 0 else { return nil }
        guard let setting = settings[number] else {
            throw problem("names launch setting \(number), which does not exist")
        }
        let own: [UInt8] = try read()
        _ = try LaunchRecipe.Own(key, own)
        return LaunchRecipe(setting, own: own)
    }
}
