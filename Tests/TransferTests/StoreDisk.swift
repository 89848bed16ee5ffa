import CLinux
import Glibc
import LinuxSystem

/// A small file system of its own for the store of a transfer process. Needs root.
final class StoreDisk {
    private let path: String

    /// - Parameter path: of a directory, which belongs to the clients' user then.
    init(at path: String, bytes: Int) throws {
        self.path = path
        let user = Supervised.user
        let options = "size=\(bytes),mode=0700,uid=\(user),gid=\(user)"
        _ = try systemCall("mount") { mount("tmpfs", path, "tmpfs", 0, options) }
    }

    deinit { umount2(path, CInt(MNT_DETACH)) }

    /// Another program fills it.
    func fill() throws {
        let file = try OwnedDescriptor(opening: path + "/full", O_WRONLY | O_CREAT, mode: 0o600)
        let bytes = [UInt8](repeating: 0, count: 4_096)
        while write(file.rawValue, bytes, bytes.count) > 0 {}
        guard errno == ENOSPC else { throw SystemError("write \(path)/full") }
    }

    /// Another program takes so many bytes of it.
    func take(bytes: Int) throws {
        let file = try OwnedDescriptor(opening: path + "/full", O_WRONLY | O_CREAT, mode: 0o600)
        _ = try systemCall("posix_fallocate") { Int(posix_fallocate(file.rawValue, 0, bytes)) }
    }

    func free() { unlink(path + "/full") }
}
