import Glibc
package import LinuxSystem

/// A clock on the wall for the programs with this environment. The one of the machine that runs the tests is not set.
package final class PretendedClock {
    private let directory: TemporaryDirectory
    private let change: OwnedDescriptor

    package var environment: [String: String] {
        ["LD_PRELOAD": directory.path + "/clock.so", "PRETENDED_CLOCK": directory.path]
    }

    package init() throws(SystemError) {
        directory = try TemporaryDirectory()
        chmod(directory.path, 0o755)
        let source = #filePath.split(separator: "/").dropLast().joined(separator: "/")
        let path = getenv("PATH").map { String(cString: $0) } ?? "/usr/bin:/bin"
        let compiler = try Child(
            "/usr/bin/env",
            ["clang", "-shared", "-fPIC", "-o", directory.file("clock.so"), "/\(source)/pretended-clock.c"],
            environment: ["PATH": path])
        compiler.reap()
        guard compiler.status == 0 else { throw SystemError(code: ENOEXEC, call: "clang") }
        let fifo = directory.path + "/set"
        _ = try systemCall("mkfifo") { mkfifo(fifo, 0o666) }
        chmod(fifo, 0o666)
        change = try OwnedDescriptor(opening: fifo, O_RDWR | O_NONBLOCK)
    }

    /// Sets it on, or back.
    package func set(by seconds: Int) throws(SystemError) {
        let path = directory.path + "/offset"
        _ = try OwnedDescriptor(opening: path, O_WRONLY | O_CREAT, mode: 0o644)
        try SmallFile.write("\(seconds)", to: path)
        let bytes = [UInt8](repeating: 1, count: 8)
        _ = try systemCall("write") { write(change.rawValue, bytes, bytes.count) }
    }
}
