import CLinux
import Glibc

/// Files that are read and written whole, such as the kernel's.
package enum SmallFile {
    /// The content, read until its end.
    package static func read(_ path: String, in directory: CInt = AT_FDCWD) throws(SystemError) -> [UInt8] {
        try read(try OwnedDescriptor(opening: path, O_RDONLY, in: directory))
    }

    /// The content of a file that the kernel generates, of at most 128 bytes, read in one call.
    ///
    /// - Throws: `EFBIG` if it may have more.
    package static func readShort(_ path: String) throws(SystemError) -> [UInt8] {
        let file = try OwnedDescriptor(opening: path, O_RDONLY)
        let rawValue = file.rawValue
        var content = [UInt8](repeating: 0, count: 128)
        let count = try systemCall("read") { unsafe Glibc.read(rawValue, &content, content.count) }
        guard count < content.count else { throw SystemError(code: EFBIG, call: "read \(path)") }
        content.removeSubrange(count...)
        return content
    }

    /// The first 4 KiB of a file that the kernel generates, read in one call.
    package static func readBeginning(_ path: String) throws(SystemError) -> [UInt8] {
        let file = try OwnedDescriptor(opening: path, O_RDONLY)
        let rawValue = file.rawValue
        var content = [UInt8](repeating: 0, count: 4096)
        let count = try systemCall("read") { unsafe Glibc.read(rawValue, &content, content.count) }
        content.removeSubrange(count...)
        return content
    }

    /// The rest of an open file.
    ///
    /// - Throws: `EFBIG` if it has more than `limit` bytes.
    package static func read(
        _ file: borrowing OwnedDescriptor, limit: Int = .max
    ) throws(SystemError) -> [UInt8] {
        let rawValue = file.rawValue
        var content = [UInt8](repeating: 0, count: 4096)
        var length = 0
        while true {
            if length == content.count {
                content.append(contentsOf: repeatElement(0, count: content.count))
            }
            let count = try systemCall("read") {
                unsafe content.withUnsafeMutableBytes { buffer in
                    let rest = unsafe UnsafeMutableRawBufferPointer(rebasing: buffer[length...])
                    return unsafe Glibc.read(rawValue, rest.baseAddress, rest.count)
                }
            }
            if count == 0 { break }
            length += count
            guard length <= limit else { throw SystemError(code: EFBIG, call: "read") }
        }
        content.removeSubrange(length...)
        return content
    }

    /// The result of `find`, for a path where one of our files is expected.
    package enum Found: Sendable, Equatable {
        case content([UInt8])
        /// Not our file, with the reason: reading it could block.
        case stranger(String)
    }

    /// The content of a regular file of at most `limit` bytes; never blocks.
    package static func find(_ path: String, limit: Int) throws(SystemError) -> Found {
        let file = try OwnedDescriptor(opening: path, O_RDONLY | O_NONBLOCK | O_NOCTTY)
        var status = stat()
        let rawValue = file.rawValue
        _ = try systemCall("fstat") { unsafe fstat(rawValue, &status) }
        guard status.st_mode & S_IFMT == S_IFREG else { return .stranger("it is no regular file") }
        guard status.st_size <= limit else { return .stranger("it is longer than \(limit) bytes") }
        return .content(try read(file, limit: limit))
    }

    package static func readText(
        _ path: String, in directory: CInt = AT_FDCWD
    ) throws(SystemError) -> String {
        String(decoding: try read(path, in: directory), as: UTF8.self)
    }

    /// Writes in one call, as the kernel's control files require.
    package static func write(
        _ text: String, to path: String, in directory: CInt = AT_FDCWD
    ) throws(SystemError) {
        let file = try OwnedDescriptor(opening: path, O_WRONLY, in: directory)
        let rawValue = file.rawValue
        let bytes = Array(text.utf8)
        _ = try systemCall("write \(path)") { unsafe Glibc.write(rawValue, bytes, bytes.count) }
    }

    /// The names in a directory, without `.` and `..`, unordered; the first `limit` of them.
    ///
    /// - Parameter followsLink: whether the path may be a symbolic link. False for a directory in one of
    ///   another user's.
    package static func names(
        in path: String, limit: Int = .max, followsLink: Bool = true
    ) throws(SystemError) -> [String] {
        let directory = try OwnedDescriptor(
            opening: path, O_RDONLY | O_DIRECTORY | (followsLink ? 0 : O_NOFOLLOW))
        guard let stream = unsafe fdopendir(directory.rawValue) else {
            throw SystemError("fdopendir \(path)")
        }
        _ = directory.take()
        defer { unsafe closedir(stream) }
        var names: [String] = []
        while names.count < limit, let entry = unsafe readdir(stream) {
            let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != ".", name != ".." { names.append(name) }
        }
        return names
    }
}

/// The target of a symbolic link.
package func readLink(_ path: String) throws(SystemError) -> String {
    var target = [CChar](repeating: 0, count: Int(PATH_MAX))
    let length = try systemCall("readlink \(path)") { unsafe readlink(path, &target, target.count) }
    return String(decoding: target.prefix(length).map(UInt8.init(bitPattern:)), as: UTF8.self)
}
