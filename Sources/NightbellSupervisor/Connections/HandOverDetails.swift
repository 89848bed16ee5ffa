import NightbellProfiles

/// The data beside the descriptors of the HandOver that is being handled, in their order. The descriptors
/// stay in the packet until they are adopted; the others are closed.
struct HandOverDetails {
    var names: [String] = []
    /// By their position; few sockets have one.
    private(set) var profiles: [Int: OfferedProfile] = [:]
    /// By their position as well.
    private(set) var receiveBuffers: [Int: Int32] = [:]
    /// The problems of invalid profiles.
    private(set) var problems: [Int: String] = [:]

    /// Whether any socket has a profile or a receive buffer.
    var hasOptions: Bool { !profiles.isEmpty || !receiveBuffers.isEmpty }

    mutating func setProfile(_ profile: OfferedProfile, at index: Int) { profiles[index] = profile }

    mutating func setProblem(_ problem: String, at index: Int) { problems[index] = problem }

    mutating func setReceiveBuffer(_ receiveBuffer: Int32, at index: Int) {
        receiveBuffers[index] = receiveBuffer
    }
}

/// A profile that fits its socket.
struct OfferedProfile {
    var settings: ProfileSettings
    var transport: Transport
    /// As received.
    var bytes: [UInt8]
}
