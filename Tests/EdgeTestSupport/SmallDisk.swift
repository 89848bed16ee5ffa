import CLinux
import Glibc
import LinuxSystem

/// A tmpfs of 256 KiB, for tests that fill it. Needs root.
package final class SmallDisk {
    private let directory: TemporaryDirectory
    package var path: String { directory.path }

    package init() throws {
        directory = try TemporaryDirectory()
        let options = "size=256k,nr_inodes=32,mode=0700"
        _ = try systemCall("mount") { mount("tmpfs", directory.path, "tmpfs", 0, options) }
    }

    deinit { umount2(directory.path, CInt(MNT_DETACH)) }

    /// Uses all free space; and, if asked to, all inodes as well.
    package func fill(inodes: Bool = false) throws {
        let file = try OwnedDescriptor(opening: path + "/full", O_WRONLY | O_CREAT, mode: 0o600)
        let bytes = [UInt8](repeating: 0, count: 4_096)
        while write(file.rawValue, bytes, bytes.count) > 0 {}
        guard errno == ENOSPC else { throw SystemError("write \(path)/full") }
        var number = 0
        while inodes, mkdir("\(path)/full-\(number)", 0o700) == 0 { number += 1 }
    }

    package func free() throws {
        for name in try SmallFile.names(in: path) where name.hasPrefix("full") {
            if unlink("\(path)/\(name)") != 0 { rmdir("\(path)/\(name)") }
        }
    }
}
