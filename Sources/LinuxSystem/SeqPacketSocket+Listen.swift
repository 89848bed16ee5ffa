package import CLinux
import Glibc

extension SeqPacketSocket {
    /// Listens on a socket file. A stale file without a listener is replaced; `EADDRINUSE` means that there
    /// is a listener, or that the file is no socket. `mode` is the file's, whatever the umask.
    ///
    /// Two processes that start at the same instant could both find the same stale file; a program that must
    /// have one instance needs a lock of its own.
    package static func listen(
        path: String, mode: mode_t, backlog: CInt = 128
    ) throws(SystemError) -> SeqPacketSocket {
        let address = try UnixAddress(path: path)
        let descriptor = try makeSocket()
        let rawValue = descriptor.rawValue
        // A bound socket file starts with the mode of the socket itself, so no client can connect before
        // `chmod`.
        _ = try systemCall("fchmod \(path)") { fchmod(rawValue, mode) }
        let bound: () -> CInt = { unsafe address.withSocketAddress { unsafe bind(rawValue, $0, $1) } }
        do {
            _ = try systemCall("bind \(path)", bound)
        } catch {
            guard error.code == EADDRINUSE, isStale(path) else { throw error }
            _ = try systemCall("unlink \(path)") { unsafe unlink(path) }
            _ = try systemCall("bind \(path)", bound)
        }
        _ = try systemCall("chmod \(path)") { unsafe chmod(path, mode) }
        _ = try systemCall("listen \(path)") { Glibc.listen(rawValue, backlog) }
        return SeqPacketSocket(adopting: descriptor)
    }

    /// Whether the file is a socket without a listener.
    private static func isStale(_ path: String) -> Bool {
        var status = stat()
        guard unsafe lstat(path, &status) == 0, status.st_mode & S_IFMT == S_IFSOCK else { return false }
        do {
            _ = try connect(path: path)
            return false
        } catch {
            // Any other error, such as a full queue or another type of socket, means that there is a
            // listener.
            return error.code == ECONNREFUSED
        }
    }
}
