import Glibc
import Keeper
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// A client's record: its identity, which does not change while its process lives. Kept with its control
/// connection, if it has one.
struct ClientRecordBytes {
    var registration: Registration
    var registeredAt: Instant
    /// The number of its ownership of its identifier.
    var ownership: UInt64
    var wantsWakeWord = false
    /// How it says it was started, if it would not be launched that way. Encoded as on the wire.
    var launch: [UInt8] = []
    var presence = RecoverySnapshot.Presence.registered
    /// The identifier by which its program said Hello, if that is another one.
    var saidIdentifier: String?
    /// When its process said Hello, in elapsed time, and how long it had slept until then, in nanoseconds.
    var connectedAt = Instant(nanoseconds: 0)
    var asleepBefore: UInt64 = 0
    /// nil: it cannot be launched.
    var recipe: LaunchRecipe?
    /// Why its last launch failed, for people; nil: it did not.
    var launchProblem: String?
    /// The process that we made for it; 0: it connected by itself.
    var madeProcess: UInt32 = 0
    /// The process of an unmodified client, and when it started; nil: it is none.
    var program: (pid: pid_t, startTime: UInt64)?
    /// Whether something else suspends that process, and thaws it.
    var suspendsItself = false
    /// The launched process that started its process; 0: there is none.
    var wrapper: UInt32 = 0
    /// The sockets and state left to its new process, until it is known to have received them.
    var previous: PreviousProcess?

    init(registration: Registration, registeredAt: Instant, ownership: UInt64) {
        self.registration = registration
        self.ownership = ownership
        self.registeredAt = registeredAt
    }

    var bytes: [UInt8] {
        StoredClient.with {
            $0.identifier = registration.identifier.description
            $0.user = registration.user
            $0.modes = UInt32(registration.modes.rawValue)
            $0.terminatesAtWakeLimit = registration.wakeLimitPolicy == .terminate
            $0.exitsOnSuspend = registration.exitsOnSuspend
            $0.wantsNetworkChanges = registration.wantsNetworkChanges
            $0.waitsForUnlock = registration.waitsForUnlock
            $0.registeredAtNs = registeredAt.nanoseconds
            $0.ownership = ownership
            $0.wantsWakeWord = wantsWakeWord
            $0.launch = launch.asField
            $0.saidIdentifier = saidIdentifier ?? ""
            $0.connectedAtNs = connectedAt.nanoseconds
            $0.asleepBeforeNs = asleepBefore
            $0.presence = presence.stored
            $0.madeProcess = madeProcess
            if let program {
                $0.program = UInt32(program.pid)
                $0.programStartTime = program.startTime
            }
            $0.suspendsItself = suspendsItself
            $0.wrapper = wrapper
            if let previous { $0.previous = previous.stored }
            $0.launchProblem = launchProblem ?? ""
            guard let recipe else { return }
            $0.launchSetting = recipe.setting.number
            $0.launchRecipe = recipe.own.asField
        }.record
    }

    init(
        _ key: RecordKey, _ record: [UInt8], _ settings: [UInt64: LaunchSetting]
    ) throws(RecordError) {
        let stored = try StoredClient(key, record)
        guard let identifier = ClientIdentifier(stored.identifier) else {
            throw RecordError(key: key, problem: "has no identifier")
        }
        guard let presence = RecoverySnapshot.Presence(stored.presence) else {
            throw RecordError(key: key, problem: "has no valid process state")
        }
        registration = Registration(
            identifier: identifier, user: stored.user,
            modes: Modes(rawValue: .init(truncatingIfNeeded: stored.modes)))
        registration.wakeLimitPolicy = stored.terminatesAtWakeLimit ? .terminate : .linger
        registration.exitsOnSuspend = stored.exitsOnSuspend
        registration.wantsNetworkChanges = stored.wantsNetworkChanges
        registration.waitsForUnlock = stored.waitsForUnlock
        registeredAt = Instant(nanoseconds: stored.registeredAtNs)
        ownership = stored.ownership
        wantsWakeWord = stored.wantsWakeWord
        launch = Array(stored.launch)
        connectedAt = Instant(nanoseconds: stored.connectedAtNs)
        asleepBefore = stored.asleepBeforeNs
        saidIdentifier = stored.saidIdentifier.isEmpty ? nil : stored.saidIdentifier
        self.presence = presence
        madeProcess = stored.madeProcess
        if stored.program != 0 {
            program = (pid_t(clamping: stored.program), stored.programStartTime)
            registration.isUnmodified = true
        }
        suspendsItself = stored.suspendsItself
        wrapper = stored.wrapper
        previous = stored.hasPrevious ? PreviousProcess(stored.previous) : nil
        launchProblem = stored.launchProblem.isEmpty ? nil : stored.launchProblem
        if stored.launchSetting != 0 {
            guard let setting = settings[stored.launchSetting] else {
                throw RecordError(
                    key: key, problem: "names launch setting \(stored.launchSetting), which does not exist")
            }
            let own = Array(stored.launchRecipe)
            _ = try LaunchRecipe.Own(key, own)
            recipe = LaunchRecipe(setting, own: own)
        }
        registration.isLaunchable = recipe != nil
        registration.isDeclared = recipe?.setting.content.isRecorded == false
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

extension PreviousProcess {
    fileprivate init(_ stored: StoredClient.PreviousProcess) {
        self.init(
            wasLaunched: stored.wasLaunched, isAttached: stored.isAttached,
            sockets: stored.sockets.map(SocketToken.init(rawValue:)))
    }

    fileprivate var stored: StoredClient.PreviousProcess {
        .with {
            $0.wasLaunched = wasLaunched
            $0.isAttached = isAttached
            $0.sockets = sockets.map(\.rawValue)
        }
    }
}

extension RecoverySnapshot.Presence {
    fileprivate init?(_ stored: StoredClient.Presence) {
        switch stored {
        case .registered: self = .registered
        case .absent: self = .absent
        case .launched: self = .launched
        case .welcomed: self = .welcomed
        case .UNRECOGNIZED: return nil
        }
    }

    fileprivate var stored: StoredClient.Presence {
        switch self {
        case .registered: .registered
        case .absent: .absent
        case .launched: .launched
        case .welcomed: .welcomed
        }
    }
}
