import Glibc

/// A system call that failed: which one, and why.
package struct SystemError: Error, Sendable, Hashable, CustomStringConvertible {
    /// The value of `errno`.
    package let code: CInt
    /// The name of the call, such as `connect`.
    package let call: String

    package init(code: CInt, call: String) {
        self.code = code
        self.call = call
    }

    /// The error of the call that has just failed on this thread.
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

/// The one place that knows `EINTR`: calls again until the call is not interrupted, and turns -1 into an error.
package func systemCall(
    _ name: @autoclosure () -> String, _ call: () -> CInt
) throws(SystemError) -> CInt {
    try uninterrupted(name, call)
}

/// As above, for the calls whose results are sizes.
package func systemCall(
    _ name: @autoclosure () -> String, _ call: () -> Int
) throws(SystemError) -> Int {
    try uninterrupted(name, call)
}

/// As `systemCall`, for calls whose "not now" (`EAGAIN`) is no error: nil then.
package func nonblockingSystemCall(
    _ name: @autoclosure () -> String, _ call: () -> CInt
) throws(SystemError) -> CInt? {
    try uninterruptedUnlessBusy(name, call)
}

/// As above, for the calls whose results are sizes.
package func nonblockingSystemCall(
    _ name: @autoclosure () -> String, _ call: () -> Int
) throws(SystemError) -> Int? {
    try uninterruptedUnlessBusy(name, call)
}

// Generic code that another module uses is not specialized, and asks the runtime for metadata each time: so these stay
// in here.

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
