package import Glibc
import LinuxSystem

/// Reads a text file of an administrator, unless another user could have written it.
package enum TrustedFile {
    /// Why it is not used.
    package struct Failure: Error, Sendable, Equatable {
        package let problem: String
        package let line: Int?
        /// There is no such file, and no link of this name either.
        package let isMissing: Bool

        init(_ problem: String, line: Int? = nil, isMissing: Bool = false) {
            self.problem = problem
            self.line = line
            self.isMissing = isMissing
        }
    }

    /// The content of a file, in UTF-8.
    ///
    /// - Parameters:
    ///   - owner: the only uid besides root that may be able to write to it; nil accepts a file of any user.
    ///   - limit: a longer file is refused; in bytes.
    package static func text(of path: String, owner: uid_t?, limit: Int) throws(Failure) -> String {
        var bytes: [UInt8] = []
        let problem: String?
        do throws(SystemError) {
            // A FIFO must not be waited for.
            let file = try OwnedDescriptor(opening: path, O_RDONLY | O_NONBLOCK | O_NOCTTY)
            var found = try Self.problem(with: file, owner: owner, limit: limit)
            if let owner, found == nil { found = try ManifestTrust.problem(ofLink: path, owner: owner) }
            problem = found
            if problem == nil { bytes = try SmallFile.read(file, limit: limit) }
        } catch {
            let isMissing = error.code == ENOENT
            if isMissing, ManifestTrust.isLink(path) { throw Failure("is a link to a file that is missing") }
            throw Failure("cannot be read: \(SystemError.message(for: error.code))", isMissing: isMissing)
        }
        if let problem { throw Failure(problem) }
        if let zero = bytes.firstIndex(of: 0) {
            let line = 1 + bytes[..<zero].count { $0 == UInt8(ascii: "\n") }
            throw Failure("contains a zero byte", line: line)
        }
        // Some editors begin a file with a UTF-8 byte order mark.
        if bytes.starts(with: [0xEF, 0xBB, 0xBF]) { bytes.removeFirst(3) }
        guard let text = String(validating: bytes, as: UTF8.self) else { throw Failure("is not UTF-8") }
        return text
    }

    /// The reason not to trust this file: a user that can write to it can have programs run.
    private static func problem(
        with file: borrowing OwnedDescriptor, owner: uid_t?, limit: Int
    ) throws(SystemError) -> String? {
        var status = stat()
        let rawValue = file.rawValue
        _ = try systemCall("fstat") { unsafe fstat(rawValue, &status) }
        // `/dev/null` is an empty file that no user can change.
        guard status.st_mode & S_IFMT != S_IFCHR || status.st_rdev != nullDevice else { return nil }
        guard status.st_mode & S_IFMT == S_IFREG else { return "is not a file" }
        guard status.st_size <= limit else { return "is longer than \(limit) bytes" }
        return owner.flatMap { ManifestTrust.problem(status, owner: $0) }
    }

    /// The number of `/dev/null`: major 1, minor 3.
    private static let nullDevice: dev_t = 0x103
}
