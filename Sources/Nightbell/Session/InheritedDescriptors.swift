import CLinux
import Glibc
import LinuxSystem
import NightbellWire

/// Descriptors that a process launched by the supervisor inherits.
enum InheritedDescriptors {
    /// Socket activation's first descriptor.
    private static let firstDescriptor: CInt = 3

    /// The connection that the supervisor has made for this process and this client, set to close-on-exec;
    /// nil if there is none, or if it was taken before.
    static func connection(for identifier: String) -> Link? {
        guard let descriptor = number("NIGHTBELL_CONNECTION_FD"),
            number("NIGHTBELL_CONNECTION_PID") == getpid(),
            Environment.value("NIGHTBELL_IDENTIFIER") == identifier, take(descriptor)
        else { return nil }
        return Link(SeqPacketSocket(adopting: OwnedDescriptor(adopting: descriptor)))
    }

    /// The descriptors of `count` sockets, passed as in socket activation; nil if they are for another
    /// process or were taken before.
    static func sockets(_ count: Int) -> [CInt]? {
        guard number("LISTEN_PID") == getpid(), number("LISTEN_FDS") == CInt(count) else { return nil }
        let descriptors = (0..<CInt(count)).map { firstDescriptor + $0 }
        return descriptors.allSatisfy(take) ? descriptors : nil
    }

    private static func number(_ variable: String) -> CInt? {
        Environment.value(variable).flatMap { CInt($0) }
    }

    /// Makes it close-on-exec; false if it already is, or is not open.
    private static func take(_ descriptor: CInt) -> Bool { clinux_take_inherited(descriptor) == 1 }
}

extension Link {
    /// The sockets of the last process that came with the Welcome just received: a descriptor and the
    /// supervisor's token for each. nil: this Welcome is not the first and has nothing new.
    func takeSockets(_ previousProcess: WirePreviousProcess) -> [(token: UInt64, socket: NewSocket)]? {
        guard !hasTakenSockets else { return nil }
        hasTakenSockets = true
        let descriptors: [CInt]
        if previousProcess.areInherited {
            descriptors = InheritedDescriptors.sockets(previousProcess.sockets.count) ?? []
        } else {
            descriptors = previousProcess.sockets.indices.compactMap { _ in takeDescriptor()?.take() }
        }
        guard descriptors.count == previousProcess.sockets.count else { return [] }
        return zip(previousProcess.sockets, descriptors).compactMap { socket, descriptor in
            guard let tag = SocketTag(socket.tag), let file = try? FileIdentity(of: descriptor) else {
                return nil
            }
            let new = NewSocket(
                descriptor: descriptor, tag: tag, name: socket.name, file: file, survives: true,
                profile: socket.hasProfile ? Profile(wire: socket.profile) : nil,
                isRouted: tag == .voip && SocketPath.isRouted(descriptor))
            return (socket.token, new)
        }
    }
}

extension WirePreviousProcess {
    /// Whether the process has had the sockets' descriptors open since it began; otherwise they come with
    /// Welcome.
    var areInherited: Bool { launched && !descriptorsAttached }
}

extension SocketTag {
    fileprivate init?(_ wire: WireSocketTag) {
        switch wire {
        case .voip: self = .voip
        case .listener: self = .listener
        case .device: self = .device
        case .unspecified, .UNRECOGNIZED: return nil
        }
    }
}
