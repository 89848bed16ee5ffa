import Descriptors
import Glibc
import NightbellCore
import NightbellProfiles
import NightbellWire

/// What the edge knows of a socket whose pings it deals with.
struct OffloadedSocket: Sendable {
    let settings: ProfileSettings
    var profile: Profile
    /// The other end of a stream.
    var peer: Endpoint?
    /// Descriptors may come with what it says.
    var isLocal = false
    /// What the owner has lent for the sleep that comes, and gets back after it.
    var lent = Lent.nothing
    /// It slept, and is still to be told what became of what it had lent.
    var owesReturn = false
    /// What it had lent got lost with a worker that died.
    var hasLost = false
    /// The profile is at work.
    var isActive = false
    /// The kernel's keep-alives as they were, while others are set.
    var formerKeepAlive: TCPKeepAlive?
    /// What the ping under way was made of.
    var pingRandom: UInt128 = 0
    /// The profile as it came, for the next process of an owner whose socket survives.
    var bytes: [UInt8] = []

    init(_ settings: ProfileSettings, _ transport: Transport) throws(SettingsError) {
        self.settings = settings
        profile = try Profile(settings, over: transport)
    }
}

/// The sockets with a profile. Most sockets have none, and are not in here.
struct OffloadTable: ~Copyable {
    private var sockets = SideTable<OffloadedSocket>()
    /// By the profile as it came, so that thousands with the same share it.
    private var settings: [SettingsKey: ProfileSettings] = [:]
    /// Clients with something to be given back, by slot.
    private(set) var owing: Set<UInt32> = []
    let tagKey: UInt128

    /// More different profiles than anybody has; who sends others all the time makes the cache be made anew.
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

    // MARK: What is to be given back

    mutating func noteReturn(_ token: SocketToken, to client: UInt32) {
        sockets[token.slot].owesReturn = true
        owing.insert(client)
    }

    /// What a client that runs again is told of what it has lent.
    mutating func takeReturned(_ tokens: [SocketToken], of client: UInt32) -> [WireLent] {
        guard owing.remove(client) != nil else { return [] }
        var returned: [WireLent] = []
        for token in tokens where contains(token) && sockets[token.slot].owesReturn {
            sockets[token.slot].owesReturn = false
            if sockets[token.slot].hasLost {
                sockets[token.slot].hasLost = false
                var lost = WireLent()
                lost.token = token.rawValue
                lost.lost = true
                returned.append(lost)
            } else if let lent = sockets[token.slot].lent.wire(token: token.rawValue) {
                returned.append(lent)
            }
            sockets[token.slot].lent = .nothing
        }
        return returned
    }
}
