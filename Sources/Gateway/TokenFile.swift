import Glibc
import LinuxSystem

/// The file with the tokens' hashes: a line for each, and comments behind `#`. The gateway only reads it.
package struct TokenFile: Sendable {
    package let path: String

    package struct Failure: Error, Sendable, CustomStringConvertible {
        package let description: String
    }

    private static let limit = 256 * 1_024

    package init(_ path: String) { self.path = path }

    /// The tokens; none if there is no such file.
    package func read() throws(Failure) -> [Token] {
        let found: SmallFile.Found
        do throws(SystemError) {
            found = try SmallFile.find(path, limit: Self.limit)
        } catch {
            if error.code == ENOENT { return [] }
            throw Failure(description: "\(path): \(SystemError.message(for: error.code))")
        }
        guard case .content(let bytes) = found else {
            if case .stranger(let reason) = found { throw Failure(description: "\(path): \(reason)") }
            return []
        }
        var tokens: [Token] = []
        let lines = String(decoding: bytes, as: UTF8.self)
            .split(separator: "\n", omittingEmptySubsequences: false)
        for (index, line) in lines.enumerated() where !line.isEmpty && !line.hasPrefix("#") {
            guard let token = Token(line: line) else {
                throw Failure(description: "\(path):\(index + 1): expected a name, scopes, and a hash")
            }
            tokens.append(token)
        }
        return tokens
    }

    /// Changes the tokens. Others that do the same at the same time wait.
    package func change(_ body: (inout [Token]) throws -> Void) throws {
        let directory = try lockDirectory()
        var tokens = try read()
        try body(&tokens)
        try write(tokens)
        // A loss of power must not make a revoked token valid.
        guard fsync(directory.rawValue) == 0 else {
            throw Failure(description: "\(SystemError("fsync of its directory"))")
        }
    }

    private func lockDirectory() throws(Failure) -> OwnedDescriptor {
        let parent = path.lastIndex(of: "/").map { String(path[...$0]) } ?? "."
        do throws(SystemError) {
            let directory = try OwnedDescriptor(opening: parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            let rawValue = directory.rawValue
            _ = try systemCall("flock \(parent)") { flock(rawValue, LOCK_EX) }
            return directory
        } catch {
            throw Failure(description: "\(error)")
        }
    }

    /// Replaces the file in one step. It keeps its owner, its group and its permissions. Every user can read
    /// a new one: hashes of random bits tell nothing.
    private func write(_ tokens: [Token]) throws(Failure) {
        let text =
            "# Tokens of nightbell-gateway: name, scopes, SHA-256. Written by nightbell-gateway token.\n"
            + tokens.map { $0.line + "\n" }.joined()
        let new = path + ".new"
        do throws(SystemError) {
            var old = stat()
            let isThere = stat(path, &old) == 0
            unlink(new)
            let file = try OwnedDescriptor(opening: new, O_WRONLY | O_CREAT | O_EXCL, mode: 0o600)
            let descriptor = file.rawValue
            if isThere {
                _ = try systemCall("fchown \(new)") { fchown(descriptor, old.st_uid, old.st_gid) }
            }
            // Whatever the umask is.
            let mode = isThere ? old.st_mode & 0o777 : 0o644
            _ = try systemCall("fchmod \(new)") { fchmod(descriptor, mode) }
            let bytes = Array(text.utf8)
            var written = 0
            while written < bytes.count {
                let rest = Array(bytes[written...])
                written += try systemCall("write \(new)") { Glibc.write(descriptor, rest, rest.count) }
            }
            _ = try systemCall("fsync \(new)") { fsync(descriptor) }
            _ = try systemCall("rename \(new)") { CInt(Glibc.rename(new, path)) }
        } catch {
            throw Failure(description: "\(error)")
        }
    }
}
