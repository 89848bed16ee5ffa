import Glibc
package import LinuxSystem

/// A small file that has either its old or its new content, whenever the machine stops.
///
/// New content is written beside it and renamed into its place once it is on the disk; the old content is
/// kept as `NAME.previous`, for a disk that loses synced data.
package struct DurableFile: Sendable {
    package let path: String
    /// A longer file was not written by us.
    package static let sizeLimit = 256 << 20

    package init(path: String) {
        self.path = path
    }

    package var previousPath: String { path + ".previous" }
    private var newPath: String { path + ".new" }
    private var directory: String {
        let end = path.lastIndex(of: "/") ?? path.startIndex
        return end == path.startIndex ? "/" : String(path[..<end])
    }

    /// The contents that exist, the latest first. The reader checks which of them are whole.
    package func candidates() throws(SystemError) -> [(path: String, found: SmallFile.Found)] {
        var result: [(path: String, found: SmallFile.Found)] = []
        for path in [path, previousPath] {
            do throws(SystemError) {
                result.append((path, try SmallFile.find(path, limit: Self.sizeLimit)))
            } catch {
                guard error.code == ENOENT else { throw error }
            }
        }
        return result
    }

    /// Replaces the content. When this returns it is on the disk.
    package func write(_ bytes: [UInt8]) throws(SystemError) {
        guard bytes.count <= Self.sizeLimit else { throw SystemError(code: EFBIG, call: "write \(newPath)") }
        // Remove any file there, even a pipe: opening one could block for ever.
        unsafe unlink(newPath)
        let file = try OwnedDescriptor(
            opening: newPath, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600)
        let rawValue = file.rawValue
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = try systemCall("write \(newPath)") {
                unsafe rest.withUnsafeBytes { unsafe Glibc.write(rawValue, $0.baseAddress, $0.count) }
            }
            rest = rest.dropFirst(count)
        }
        _ = try systemCall("fsync \(newPath)") { fsync(rawValue) }
        file.close()
        // Between these two only the previous content exists, which is whole.
        if unsafe rename(path, previousPath) != 0, errno != ENOENT { throw SystemError("rename \(path)") }
        _ = try systemCall("rename \(newPath)") { unsafe rename(newPath, path) }
        let parent = try OwnedDescriptor(opening: directory, O_RDONLY | O_DIRECTORY)
        let parentValue = parent.rawValue
        _ = try systemCall("fsync \(directory)") { fsync(parentValue) }
    }

    /// Moves the latest content, which is damaged, out of the way for inspection; returns the new path.
    package func setAside() throws(SystemError) -> String {
        for path in [path, previousPath] {
            let target = path + ".damaged"
            if unsafe rename(path, target) == 0 { return target }
            guard errno == ENOENT else { break }
        }
        throw SystemError("rename \(path)")
    }
}
