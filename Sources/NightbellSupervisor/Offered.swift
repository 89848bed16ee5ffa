import Descriptors
import NightbellProfiles

/// The descriptors that came with the HandOver being handled, in order. Whatever is not adopted is closed.
struct Offered: ~Copyable {
    private var descriptors = UniqueSlots<OwnedDescriptor>()
    private var names: [String] = []
    /// By their places; few sockets have one.
    private var profiles: [Int: OfferedProfile] = [:]
    /// What is wrong with the profiles that are not right.
    private(set) var problems: [Int: String] = [:]
    private var next = 0

    mutating func append(_ descriptor: consuming OwnedDescriptor, name: String) {
        descriptors.append(descriptor)
        names.append(name)
    }

    mutating func note(_ profile: OfferedProfile, at index: Int) { profiles[index] = profile }

    mutating func note(problem: String, at index: Int) { problems[index] = problem }

    /// Passes the next one on.
    mutating func takeNext(_ body: (consuming OwnedDescriptor, String, OfferedProfile?) -> Void) {
        guard next < descriptors.count else { return }
        defer { next += 1 }
        guard let descriptor = descriptors[next].take() else { return }
        body(descriptor, names[next], profiles[next])
    }

    mutating func removeAll() {
        for index in next..<max(next, descriptors.count) {
            if let descriptor = descriptors[index].take() { ForeignDescriptor.close(descriptor) }
        }
        descriptors.removeAll()
        names.removeAll(keepingCapacity: true)
        profiles = [:]
        problems = [:]
        next = 0
    }
}

/// A profile that fits its socket.
struct OfferedProfile {
    var settings: ProfileSettings
    var transport: Transport
    /// As it came.
    var bytes: [UInt8]
}
