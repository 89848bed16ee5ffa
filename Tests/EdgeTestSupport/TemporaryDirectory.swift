import Glibc
package import LinuxSystem

/// A directory of a test's own, removed with the files in it when the test lets go of it.
package final class TemporaryDirectory: Sendable {
    package let path: String

    package init() throws(SystemError) {
        var template = Array("/tmp/nightbell-test-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw SystemError("mkdtemp") }
        path = String(decoding: template.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }

    deinit {
        for name in (try? SmallFile.names(in: path)) ?? [] { unlink(path + "/" + name) }
        rmdir(path)
    }

    package func file(_ name: String) -> String { path + "/" + name }
}
