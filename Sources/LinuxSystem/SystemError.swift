import Glibc

/// A failed system call and its errno.
package struct SystemError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The value of `errno`.
    package let code: CInt
    /// The name of the call, such as `connect`.
    package let call: String

    package init(code: CInt, call: String) {
        self.code = code
        self.call = call
    }

    /// The error of the last failed call on this thread.
    package init(_ call: String) {
        self.init(code: errno, call: call)
    }

    package var description: String { "\(call): \(Self.message(for: code))" }

    /// The text of an error number, such as `Connection refused`.
    package static func message(for code: CInt) -> String {
        var buffer = [CChar](repeating: 0, count: 128)
        guard unsafe strerror_r(code, &buffer, buffer.count) == 0 else { return "error \(code)" }
        return String(decoding: buffer.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }
}

/// The only place that handles `EINTR`: repeats the call until it is not interrupted, and turns -1 into an
/// error.
package func systemCall(
    _ name: @autoclosure () -> String, _ call: () -> CInt
) throws(SystemError) -> CInt {
    try uninterrupted(name, call)
}

/// Like `systemCall`, for calls with a result of type `Int`.
package func systemCall(
    _ name: @autoclosure () -> String, _ call: () -> Int
) throws(SystemError) -> Int {
    try uninterrupted(name, call)
}

/// Like `systemCall`, but returns nil for `EAGAIN`.
package func nonblockingSystemCall(
    _ name: @autoclosure () -> String, _ call: () -> CInt
) throws(SystemError) -> CInt? {
    try uninterruptedUnlessBusy(name, call)
}

/// Like `nonblockingSystemCall`, for calls with a result of type `Int`.
package func nonblockingSystemCall(
    _ name: @autoclosure () -> String, _ call: () -> Int
) throws(SystemError) -> Int? {
    try uninterruptedUnlessBusy(name, call)
}

// Generic code used by another module is not specialized, and requests metadata from the runtime on each
// call: so these stay internal.

@inline(__always)
private func uninterrupted<Result: SignedInteger>(
    _ name: () -> String, _ call: () -> Result
) throws(SystemError) -> Result {
    while true {
        let result = call()
        if result != -1 { return result }
        let code = errno
        if code != EINTR { throw SystemError(code: code, call: name()) }
    }
}

@inline(__always)
private func uninterruptedUnlessBusy<Result: SignedInteger>(
    _ name: () -> String, _ call: () -> Result
) throws(SystemError) -> Result? {
    while true {
        let result = call()
        if result != -1 { return result }
        let code = errno
        if code == EAGAIN { return nil }
        if code != EINTR { throw SystemError(code: code, call: name()) }
    }
}
