import CLinux
import Glibc

/// The address of a Unix socket in the file system.
package struct UnixAddress {
    /// In bytes.
    package static let longestPath = 107
    private var address: sockaddr_un

    init(path: String) throws(SystemError) {
        let bytes = Array(path.utf8)
        // One byte is reserved for the terminating zero.
        guard !bytes.isEmpty, !bytes.contains(0) else { throw SystemError(code: EINVAL, call: "socket path") }
        var address = sockaddr_un()
        guard bytes.count < MemoryLayout.size(ofValue: address.sun_path) else {
            throw SystemError(code: ENAMETOOLONG, call: "socket path \(path)")
        }
        address.sun_family = sa_family_t(AF_UNIX)
        unsafe withUnsafeMutableBytes(of: &address.sun_path) { storage in
            unsafe storage.copyBytes(from: bytes)
        }
        self.address = address
    }

    func withSocketAddress<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
        unsafe withUnsafePointer(to: address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { generic in
                unsafe body(generic, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
    }
}
