import Glibc
package import LinuxSystem

/// A directory of a test's own, removed with all that is in it when the test lets go of it.
package final class TemporaryDirectory: Sendable {
    package let path: String

    package init() throws(SystemError) {
        var template = Array("/tmp/nightbell-test-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw SystemError("mkdtemp") }
        path = String(decoding: template.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }

    deinit { Self.remove(path) }

    private static func remove(_ path: String) {
        var status = stat()
        guard lstat(path, &status) == 0 else { return }
        guard status.st_mode & S_IFMT == S_IFDIR else {
            unlink(path)
            return
        }
        for name in (try? SmallFile.names(in: path)) ?? [] { remove(path + "/" + name) }
        rmdir(path)
    }

    package func file(_ name: String) -> String { path + "/" + name }
}
