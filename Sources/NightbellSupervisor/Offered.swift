import NightbellProfiles

/// What comes with the descriptors of the HandOver that is being handled, in their order. They themselves stay in the
/// packet until they are adopted; whatever is not is closed.
struct Offered {
    var names: [String] = []
    /// By their places; few sockets have one.
    private(set) var profiles: [Int: OfferedProfile] = [:]
    /// By their places, too.
    private(set) var receiveBuffers: [Int: Int32] = [:]
    /// What is wrong with the profiles that are not right.
    private(set) var problems: [Int: String] = [:]

    mutating func note(_ profile: OfferedProfile, at index: Int) { profiles[index] = profile }

    mutating func note(problem: String, at index: Int) { problems[index] = problem }

    mutating func note(receiveBuffer: Int32, at index: Int) { receiveBuffers[index] = receiveBuffer }

    mutating func removeAll() {
        names.removeAll(keepingCapacity: true)
        profiles = [:]
        receiveBuffers = [:]
        problems = [:]
    }
}

/// A profile that fits its socket.
struct OfferedProfile {
    var settings: ProfileSettings
    var transport: Transport
    /// As it came.
    var bytes: [UInt8]
}
