import Glibc

/// A file that lives as long as this object.
final class TemporaryFile {
    struct Failure: Error {}
    let path: String

    convenience init(_ text: String) throws {
        try self.init(bytes: Array(text.utf8))
    }

    init(bytes: [UInt8]) throws {
        var template = Array("/tmp/nightbell-test-XXXXXX\0".utf8CString)
        let descriptor = mkstemp(&template)
        guard descriptor >= 0 else { throw Failure() }
        defer { close(descriptor) }
        path = String(decoding: template.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
        guard write(descriptor, bytes, bytes.count) == bytes.count else { throw Failure() }
    }

    deinit { unlink(path) }
}
