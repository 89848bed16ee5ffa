import Glibc

/// Notifies the service manager of our progress, by the protocol of sd_notify(3): one datagram per message,
/// to the socket in `NOTIFY_SOCKET`. Without the variable there is none to notify.
struct ServiceManager: Sendable {
    private let address: String?

    /// Child processes must not inherit the address.
    static func forget() { unsafe unsetenv("NOTIFY_SOCKET") }

    static func fromEnvironment() -> ServiceManager {
        guard let value = unsafe getenv("NOTIFY_SOCKET") else { return ServiceManager(address: nil) }
        return ServiceManager(address: unsafe String(cString: value))
    }

    func ready(status: String) { send("READY=1\nSTATUS=\(status)") }
    func stopping() { send("STOPPING=1\nSTATUS=Stopping: all clients are thawed") }
    func failed(errno code: Int32, status: String) { send("STATUS=\(status)\nERRNO=\(code)") }

    /// Failures are ignored: the supervisor works without a service manager as well.
    private func send(_ message: String) {
        guard let address, let first = address.first, first == "/" || first == "@" else { return }
        var name = Array(address.utf8)
        // An abstract address starts with a zero byte, which the environment cannot hold.
        if first == "@" { name[0] = 0 }
        var socketAddress = sockaddr_un()
        socketAddress.sun_family = sa_family_t(AF_UNIX)
        let capacity = MemoryLayout.size(ofValue: socketAddress.sun_path)
        guard name.count < capacity else { return }
        unsafe withUnsafeMutableBytes(of: &socketAddress.sun_path) { unsafe $0.copyBytes(from: name) }
        let length = socklen_t(MemoryLayout<sockaddr_un>.size - capacity + name.count)

        let descriptor = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return }
        defer { _ = close(descriptor) }
        let bytes = Array(message.utf8)
        unsafe withUnsafePointer(to: &socketAddress) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                _ = unsafe sendto(descriptor, bytes, bytes.count, CInt(MSG_NOSIGNAL), pointer, length)
            }
        }
    }
}
