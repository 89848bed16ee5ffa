import LinuxSystem
import NightbellCore
import NightbellProfiles

/// The sockets that an embedded supervisor holds, by the slot of their token: 12 bytes for each, its state,
/// and its profile if it has one.
struct HeldSockets {
    private struct Held {
        static var none: Held { Held(descriptor: -1, statePlace: 0, stateLength: 0) }

        var descriptor: CInt
        var statePlace: UInt32
        var stateLength: UInt32
    }

    /// Large enough that a chunk lies in pages of its own, of which only used ones take memory, and that
    /// growing copies nothing.
    private static let chunkLength = 16_384

    private var chunks: [[Held]] = []
    private var states = StateStore()
    private var profiles = SideTable<Profile>()
    /// Sockets with a profile that can receive more than bytes.
    private var locals: Set<UInt32> = []
    /// The original kernel keep-alives of sockets for which others are set.
    private var formerKeepAlives: [UInt32: TCPKeepAlive] = [:]
    /// The random numbers of the last pings that may have to be repeated.
    private var pingRandoms: [UInt32: UInt128] = [:]

    var stateByteCount: Int { states.byteCount }

    mutating func insert(
        _ descriptor: CInt, _ profile: Profile?, _ former: TCPKeepAlive?, state: [UInt8], at slot: UInt32
    ) {
        let (chunk, index) = position(of: slot)
        while chunk >= chunks.count {
            chunks.append([])
            chunks[chunks.count - 1].reserveCapacity(Self.chunkLength)
        }
        while index >= chunks[chunk].count { chunks[chunk].append(.none) }
        let place = states.insert(state)
        chunks[chunk][index] = Held(
            descriptor: descriptor, statePlace: place, stateLength: UInt32(state.count))
        if let profile {
            profiles.insert(profile, at: slot)
            if SocketTraffic.mayCarryDescriptors(descriptor) { locals.insert(slot) }
        }
        if let former { formerKeepAlives[slot] = former }
    }

    /// Restores the socket's options and returns what was held.
    ///
    /// - Parameter isOurs: the descriptor is still that of the socket.
    mutating func remove(_ slot: UInt32, isOurs: Bool) -> (
        descriptor: CInt, state: [UInt8], delegated: DelegatedValues
    ) {
        let (chunk, index) = position(of: slot)
        let held = chunks[chunk][index]
        chunks[chunk][index] = .none
        let delegated = profiles.contains(slot) ? profiles[slot].end() : .nothing
        if profiles.contains(slot) { profiles.remove(slot) }
        locals.remove(slot)
        let former = formerKeepAlives.removeValue(forKey: slot)
        if isOurs { former?.apply(to: held.descriptor) }
        pingRandoms[slot] = nil
        return (held.descriptor, states.remove(held.statePlace, length: Int(held.stateLength)), delegated)
    }

    func descriptor(_ slot: UInt32) -> CInt {
        let (chunk, index) = position(of: slot)
        return chunks[chunk][index].descriptor
    }

    /// The profile of a socket that has one, modified in place.
    subscript(profile slot: UInt32) -> Profile {
        _read { yield profiles[slot] }
        _modify { yield &profiles[slot] }
    }

    /// Whether descriptors may come with messages to a socket with a profile.
    func isLocal(_ slot: UInt32) -> Bool { locals.contains(slot) }

    func pingRandom(_ slot: UInt32) -> UInt128? { pingRandoms[slot] }

    mutating func notePing(_ random: UInt128, _ slot: UInt32) {
        if profiles[slot].pinging?.repetition != nil { pingRandoms[slot] = random }
    }

    private func position(of slot: UInt32) -> (chunk: Int, index: Int) {
        (Int(slot) / Self.chunkLength, Int(slot) % Self.chunkLength)
    }
}
