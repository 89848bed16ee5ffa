import CLinux
import Glibc
package import LinuxSystem

/// Files that exist only in memory, for as long as a process has them open.
package enum MemoryFile {
    /// An empty file of this length; unwritten parts take no memory.
    package static func create(_ name: String, length: Int) throws(SystemError) -> OwnedDescriptor {
        let file = OwnedDescriptor(
            adopting: try systemCall("memfd_create") { unsafe clinux_memory_file(name) })
        let rawValue = file.rawValue
        _ = try systemCall("ftruncate") { ftruncate(rawValue, off_t(length)) }
        return file
    }

    /// A file with these bytes.
    package static func create(_ name: String, _ bytes: [UInt8]) throws(SystemError) -> OwnedDescriptor {
        let file = try create(name, length: 0)
        let rawValue = file.rawValue
        var written = 0
        while written < bytes.count {
            written += try systemCall("write") {
                unsafe bytes.withUnsafeBytes { buffer in
                    let rest = unsafe UnsafeRawBufferPointer(rebasing: buffer[written...])
                    return unsafe pwrite(rawValue, rest.baseAddress, rest.count, off_t(written))
                }
            }
        }
        return file
    }

    /// Its whole content, from any offset.
    package static func read(_ descriptor: CInt) throws(SystemError) -> [UInt8] {
        var status = stat()
        _ = try systemCall("fstat") { unsafe fstat(descriptor, &status) }
        var bytes = [UInt8](repeating: 0, count: Int(status.st_size))
        var length = 0
        while length < bytes.count {
            let count = try systemCall("read") {
                unsafe bytes.withUnsafeMutableBytes { buffer in
                    let rest = unsafe UnsafeMutableRawBufferPointer(rebasing: buffer[length...])
                    return unsafe pread(descriptor, rest.baseAddress, rest.count, off_t(length))
                }
            }
            if count == 0 { break }
            length += count
        }
        bytes.removeSubrange(length...)
        return bytes
    }
}
