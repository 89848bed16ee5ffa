import CLinux
import Descriptors
import Glibc
import NightbellWire

/// What a process that the supervisor has launched finds open.
enum Inheritance {
    /// Socket activation's first descriptor.
    private static let firstDescriptor: CInt = 3

    /// The connection that the supervisor has made for this process and this client; nil if there is none, or it was
    /// taken before: then it is close-on-exec.
    static func connection(for identifier: String) -> Link? {
        guard let descriptor = number("NIGHTBELL_CONNECTION_FD"),
            number("NIGHTBELL_CONNECTION_PID") == getpid(),
            Environment.value("NIGHTBELL_IDENTIFIER") == identifier, take(descriptor)
        else { return nil }
        return Link(SeqPacketSocket(adopting: OwnedDescriptor(adopting: descriptor)))
    }

    /// The descriptors of so many sockets, in the way of socket activation; nil if they are not ours or were taken
    /// before.
    static func sockets(_ count: Int) -> [CInt]? {
        guard number("LISTEN_PID") == getpid(), number("LISTEN_FDS") == CInt(count) else { return nil }
        let descriptors = (0..<CInt(count)).map { firstDescriptor + $0 }
        return descriptors.allSatisfy(take) ? descriptors : nil
    }

    private static func number(_ variable: String) -> CInt? {
        Environment.value(variable).flatMap { CInt($0) }
    }

    /// Makes it close-on-exec; false if it is already, or is not open.
    private static func take(_ descriptor: CInt) -> Bool { clinux_take_inherited(descriptor) == 1 }
}

extension Link {
    /// What came with the Welcome just received: descriptors for the sockets that the last process has left, each
    /// with what the supervisor calls it. nil: this is not the first, and says what is known.
    func takeSockets(_ legacy: WireLegacy) -> [(token: UInt64, socket: NewSocket)]? {
        guard !hasTakenSockets else { return nil }
        hasTakenSockets = true
        let descriptors: [CInt]
        if legacy.areInherited {
            descriptors = Inheritance.sockets(legacy.sockets.count) ?? []
        } else {
            descriptors = legacy.sockets.indices.compactMap { _ in takeDescriptor()?.take() }
        }
        guard descriptors.count == legacy.sockets.count else { return [] }
        return zip(legacy.sockets, descriptors).compactMap { socket, descriptor in
            guard let tag = SocketTag(socket.tag), let file = try? FileIdentity(of: descriptor) else {
                return nil
            }
            let new = NewSocket(
                descriptor: descriptor, tag: tag, name: socket.name, file: file, survives: true,
                profile: socket.hasProfile ? Profile(wire: socket.profile) : nil)
            return (socket.token, new)
        }
    }
}

extension WireLegacy {
    /// Whether the descriptors of the sockets are open in this process since it began; else they come with the Welcome.
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
