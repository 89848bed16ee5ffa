import EventLoop
import Glibc
import LinuxSystem
import NightbellCore
import NightbellParking
import NightbellProfiles
import NightbellWire

/// A socket with pings that the supervisor handles.
struct OffloadedSocket: Sendable {
    let settings: ProfileSettings
    var profile: Profile
    /// The other end of a stream.
    var peer: Endpoint?
    /// Its peer's messages may carry descriptors.
    var isLocal = false
    /// State that the owner has delegated for its next sleep, and gets back afterwards.
    var delegated = DelegatedValues.nothing
    /// The owner slept, and has not been given its delegated state back.
    var owesReturn = false
    /// The delegated state was lost with a worker that died.
    var hasLost = false
    /// Urgent data, read or unread, may be among the input.
    var mayHaveMark = true
    /// Its events while it is in the backlog.
    var waiting: Ready?
    /// The profile is in effect.
    var isActive = false
    /// The original kernel keep-alives, while others are set.
    var formerKeepAlive: TCPKeepAlive?
    /// The random number of the last ping.
    var pingRandom: UInt128 = 0
    /// The profile as received, for the owner's next process if the socket survives.
    var bytes: [UInt8] = []

    init(_ settings: ProfileSettings, _ transport: Transport) throws(SettingsError) {
        self.settings = settings
        profile = try Profile(settings, over: transport)
    }

    /// Inspects the input while the owner sleeps, and handles the noise. One call for everything that is to
    /// be known of the socket: each access of its own would copy the profile.
    ///
    /// - Parameter ready: all that the kernel has reported since the last inspection; nil: that is not known.
    /// - Returns: nil: the profile is not in effect.
    mutating func inspect(
        _ token: SocketToken, _ descriptor: CInt, _ ready: Ready?, allowance: Int,
        with engine: inout OffloadEngine, _ journal: Journal?
    ) -> InspectionResult? {
        guard isActive else { return nil }
        guard profile.isDelegated else { return inspect(descriptor, ready, allowance, &engine) }
        journal?.invalidateDelegated(token)
        defer { journal?.storeDelegated(profile.delegated, of: token) }
        return inspect(descriptor, ready, allowance, &engine)
    }

    private mutating func inspect(
        _ descriptor: CInt, _ ready: Ready?, _ allowance: Int, _ engine: inout OffloadEngine
    ) -> InspectionResult {
        // The kernel reports each arrival: a socket that had no mark has none as long as no urgent data is
        // reported.
        mayHaveMark = mayHaveMark || ready?.hasUrgentData ?? true
        let inspection = engine.inspect(
            descriptor, &profile, peer: peer, isLocal: isLocal, allowance: allowance,
            ready.flatMap(Conditions.init(reported:)) ?? Conditions(Poll.now(descriptor)),
            mayHaveMark: mayHaveMark)
        // Input that is inspected before its event is handled may end in front of urgent data.
        mayHaveMark = mayHaveMark && (ready == nil || !inspection.rest.isNothing)
        return inspection
    }
}

extension Conditions {
    /// nil: the socket has to be asked which failure it is.
    fileprivate init?(reported ready: Ready) {
        if ready.failed { return nil }
        self.init(rawValue: (ready.readable ? 1 : 0) | (ready.closed ? 2 : 0))
    }
}

/// The sockets with a profile. Most sockets have none, and are not in here.
struct OffloadTable: ~Copyable {
    private var sockets = SideTable<OffloadedSocket>()
    /// By the profile as received, so that thousands of sockets with the same one share it.
    private var settings: [SettingsKey: ProfileSettings] = [:]
    /// Clients with delegated state to be returned, by slot.
    private(set) var owing: Set<UInt32> = []
    let tagKey: UInt128

    /// More than any client uses; a client that keeps sending others causes the cache to be emptied.
    private static let mostSettings = 256

    private struct SettingsKey: Hashable {
        let profile: WireProfile
        let transport: Transport
    }

    init() {
        var random = RandomNumbers()
        tagKey = random.next()
    }

    var isEmpty: Bool { sockets.isEmpty }

    func contains(_ token: SocketToken) -> Bool { sockets.contains(token.slot) }

    subscript(token: SocketToken) -> OffloadedSocket {
        _read { yield sockets[token.slot] }
        _modify { yield &sockets[token.slot] }
    }

    mutating func insert(_ socket: OffloadedSocket, _ token: SocketToken) {
        sockets.insert(socket, at: token.slot)
    }

    mutating func remove(_ token: SocketToken) {
        sockets.remove(token.slot)
        if sockets.isEmpty { settings = [:] }
    }

    mutating func settings(
        for profile: WireProfile, over transport: Transport
    ) throws(ProfileProblem) -> ProfileSettings {
        let key = SettingsKey(profile: profile, transport: transport)
        if let known = settings[key] { return known }
        let new = try ProfileSettings(profile, over: transport, tagKey: tagKey)
        if settings.count >= Self.mostSettings { settings.removeAll() }
        settings[key] = new
        return new
    }

    // MARK: Returning delegated state

    mutating func noteReturn(_ token: SocketToken, to client: UInt32) {
        sockets[token.slot].owesReturn = true
        owing.insert(client)
    }

    /// The delegated state to be returned to a client that runs again.
    mutating func takeReturned(_ tokens: [SocketToken], of client: UInt32) -> [WireDelegatedState] {
        guard owing.remove(client) != nil else { return [] }
        var returned: [WireDelegatedState] = []
        for token in tokens where contains(token) && sockets[token.slot].owesReturn {
            sockets[token.slot].owesReturn = false
            if sockets[token.slot].hasLost {
                sockets[token.slot].hasLost = false
                var lost = WireDelegatedState()
                lost.token = token.rawValue
                lost.lost = true
                returned.append(lost)
            } else if let delegated = sockets[token.slot].delegated.wire(token: token.rawValue) {
                returned.append(delegated)
            }
            sockets[token.slot].delegated = .nothing
        }
        return returned
    }
}
