import Glibc
package import LinuxSystem

/// Lowers the limit: no descriptor with this number or a higher one can be opened any more.
package func limitDescriptors(to number: CInt) throws(SystemError) {
    var limit = rlimit()
    _ = try systemCall("getrlimit") { getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) }
    limit.rlim_cur = rlim_t(number)
    _ = try systemCall("setrlimit") { setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) }
}

/// Runs the body while no descriptor can be opened. For processes of a test's own.
package func withNoDescriptorLeft<Value>(_ body: () throws -> Value) throws -> Value {
    var limit = rlimit()
    _ = try systemCall("getrlimit") { getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) }
    let next = try OwnedDescriptor(duplicating: 0)
    let number = next.rawValue
    next.close()
    try limitDescriptors(to: number)
    defer { _ = setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) }
    return try body()
}
